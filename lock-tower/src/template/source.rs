//! Where a value comes from.

use std::{borrow::Cow, fmt};

use http::{HeaderName, header, request::Parts};

use crate::KeyRejection;

/// The source that a placeholder names.
#[derive(Debug, PartialEq)]
pub(super) enum Source {
    /// `<id>`
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "refused when the template is read"))]
    Param(String),
    /// `<header.x-tenant>`; in gRPC, metadata.
    Header(HeaderName),
    /// `<query.name>`
    Query(String),
    /// `<rpc.service>`, which includes the package.
    RpcService,
    /// `<rpc.method>`
    RpcMethod,
}

impl Source {
    /// Parses the name of a source. The error says how to correct it.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        match name.split_once('.') {
            Some(("header", header)) => header
                .parse()
                .map(Self::Header)
                .map_err(|_| format!("`{header}` is not the name of a header")),
            Some(("query", "")) => {
                Err("`<query.>` has no name: write that of the value, like `<query.id>`".into())
            }
            Some(("query", query)) => Ok(Self::Query(query.into())),
            Some(("rpc", "service")) => Ok(Self::RpcService),
            Some(("rpc", "method")) => Ok(Self::RpcMethod),
            Some(_) => Err(format!(
                "`<{name}>` is not known: write a route parameter, like `<id>`, `<header.…>`, `<query.…>`, \
                 `<rpc.service>` or `<rpc.method>`; for keys from elsewhere use `LockLayer::with_key_fn`"
            )),
            None => param(name),
        }
    }

    /// Returns the only value of a source other than the route.
    pub(super) fn value<'a>(&self, parts: &'a Parts) -> Result<Cow<'a, str>, KeyRejection> {
        match self {
            Self::Param(_) => Err(KeyRejection::internal("no route")),
            Self::Header(name) => {
                let not_ascii = |_| KeyRejection::bad_request(format!("{self} is not visible ASCII"));
                let fields =
                    || parts.headers.get_all(name).iter().map(|value| value.to_str().map_err(not_ascii));
                // HTTP/2 splits this field and no other (RFC 9113 §8.2.3).
                if *name == header::COOKIE && fields().nth(1).is_some() {
                    return Ok(fields().collect::<Result<Vec<_>, _>>()?.join("; ").into());
                }
                self.only(fields())?.map(Cow::Borrowed)
            }
            Self::Query(name) => {
                let query = parts.uri.query().unwrap_or_default();
                let pairs = form_urlencoded::parse(query.as_bytes());
                self.only(pairs.filter(|(known, _)| known == name).map(|(_, value)| value))
            }
            Self::RpcService => rpc(parts).map(|(service, _)| service.into()),
            Self::RpcMethod => rpc(parts).map(|(_, method)| method.into()),
        }
    }

    /// Returns the only value. If there are several, this function does not guess which one the handler would read.
    fn only<T>(&self, mut values: impl Iterator<Item = T>) -> Result<T, KeyRejection> {
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value),
            (None, _) => Err(KeyRejection::bad_request(format!("{self} is missing")).missing()),
            (Some(_), Some(_)) => Err(KeyRejection::bad_request(format!("{self} is given more than once"))),
        }
    }
}

#[cfg(feature = "axum")]
fn param(name: &str) -> Result<Source, String> {
    if let Some(rest) = name.strip_prefix('*') {
        return Err(format!("`<{name}>` is not the name of a route parameter: write `<{rest}>`"));
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        return Err(format!(
            "`<{name}>` is not the name of a route parameter: write it as the route does, like `<id>`; for keys from \
             elsewhere use `LockLayer::with_key_fn`"
        ));
    }
    Ok(Source::Param(name.into()))
}

#[cfg(not(feature = "axum"))]
fn param(name: &str) -> Result<Source, String> {
    Err(format!(
        "`<{name}>` is a route parameter, which needs the feature `axum` of lock-tower; without it there are \
         `<header.…>`, `<query.…>`, `<rpc.service>`, `<rpc.method>` and `LockLayer::with_key_fn`"
    ))
}

/// Splits `/package.Service/Method`. Servers compare the path without decoding it, so it has only one form.
fn rpc(parts: &Parts) -> Result<(&str, &str), KeyRejection> {
    let names = parts.uri.path().strip_prefix('/').and_then(|path| path.split_once('/'));
    names
        .filter(|(service, method)| !service.is_empty() && !method.is_empty() && !method.contains('/'))
        .ok_or_else(|| KeyRejection::bad_request("the path is not that of a gRPC method"))
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Param(name) => write!(f, "the path parameter `{name}`"),
            Self::Header(name) => write!(f, "the header `{name}`"),
            Self::Query(name) => write!(f, "the query value `{name}`"),
            Self::RpcService => f.write_str("the service of the path"),
            Self::RpcMethod => f.write_str("the method of the path"),
        }
    }
}
