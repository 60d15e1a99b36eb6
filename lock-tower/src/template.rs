//! Keys from route parameters.

use std::{
    fmt::Write as _,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::extract::{FromRequestParts, RawPathParams, rejection::RawPathParamsRejection};
use http::request::Parts;
use lock_runtime::{
    __private::{
        KeyParts,
        template::{self, Piece},
    },
    LockError, LockErrorKind, LockKey,
};
use uuid::Uuid;

use crate::{KeyExtractor, KeyRejection};

/// `user:<id:u64>`: text with route parameters.
#[derive(Debug)]
pub(crate) struct KeyTemplate(Vec<Segment>);

#[derive(Debug, PartialEq)]
enum Segment {
    Literal(String),
    Param { name: String, ty: Type },
}

/// How a parameter's value is read and printed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Text,
    U64,
    I64,
    Uuid,
}

impl KeyTemplate {
    /// Reads a template; the error's kind is [`LockErrorKind::InvalidKey`] and it says what to write.
    pub(crate) fn parse(text: &str) -> Result<Self, LockError> {
        let invalid = |problem: String| {
            LockError::new(LockErrorKind::InvalidKey, format!("lock key template {text:?}: {problem}"))
        };
        let pieces = template::parse(text).map_err(|error| invalid(error.to_string()))?;
        let segments: Vec<_> = pieces.into_iter().map(segment).collect::<Result<_, _>>().map_err(invalid)?;
        if let [Segment::Literal(name)] = segments.as_slice() {
            LockKey::new(name)?;
        }
        Ok(Self(segments))
    }

    fn has_params(&self) -> bool {
        self.0.iter().any(|segment| matches!(segment, Segment::Param { .. }))
    }

    /// The key of a route with these parameters.
    fn fill<'a, P>(&self, params: impl Fn() -> P) -> Result<LockKey, KeyRejection>
    where
        P: Iterator<Item = (&'a str, &'a str)>,
    {
        let mut key = KeyParts::new();
        for segment in &self.0 {
            match segment {
                Segment::Literal(text) => key.literal(text),
                Segment::Param { name, ty } => push(&mut key, name, *ty, value_of(name, &params)?)?,
            }
        }
        let name = key.finish().map_err(|empty| {
            KeyRejection::bad_request(format!("the path parameter `{}` is empty", empty.placeholder()))
        })?;
        // The literals were checked and values are encoded, so what is left to refuse is the length.
        LockKey::new(name)
            .map_err(|error| KeyRejection::bad_request("the path parameters are too long").with_source(error))
    }
}

fn segment(piece: Piece) -> Result<Segment, String> {
    let (name, ty) = match piece {
        Piece::Literal(text) => return Ok(Segment::Literal(text)),
        Piece::Placeholder { path, ty } => (path, ty),
    };
    let ty = match ty.as_deref() {
        None => Type::Text,
        Some("u64") => Type::U64,
        Some("i64") => Type::I64,
        Some("uuid") => Type::Uuid,
        Some(other) => {
            return Err(format!(
                "`{other}` in `<{name}:{other}>` is not a type that keys know: write `u64` or `i64`, which also fit \
                 the smaller ones, `uuid`, or `<{name}>` for text"
            ));
        }
    };
    if let Some(rest) = name.strip_prefix('*') {
        return Err(format!("`<{name}>` is not the name of a route parameter: write `<{rest}>`"));
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        return Err(format!(
            "`<{name}>` is not the name of a route parameter: write it as the route does, like `<id>`; for keys from \
             elsewhere use `LockLayer::with_key`"
        ));
    }
    Ok(Segment::Param { name, ty })
}

/// The one value of `name`. None, or several, mean that the layer stands where it cannot work: nothing is guessed.
fn value_of<'a, P>(name: &str, params: &impl Fn() -> P) -> Result<&'a str, KeyRejection>
where
    P: Iterator<Item = (&'a str, &'a str)>,
{
    let mut values = params().filter(|(known, _)| *known == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (Some(_), Some(_)) => Err(KeyRejection::internal(format!(
            "the route has two parameters `{name}`, as nested routers may: rename one of them"
        ))),
        (None, _) => {
            let mut known = String::new();
            for (name, _) in params() {
                let _ = write!(known, " `{name}`");
            }
            Err(KeyRejection::internal(format!(
                "the lock key names `<{name}>`, which is not a parameter of the matched route (it has:{}); add the \
                 layer to the route itself, `post(handler).route_layer(lock)`, because `Router::layer` also runs where \
                 no route matches",
                if known.is_empty() { " none" } else { &known }
            )))
        }
    }
}

fn push(key: &mut KeyParts, name: &str, ty: Type, value: &str) -> Result<(), KeyRejection> {
    let not = |what: &str| KeyRejection::bad_request(format!("the path parameter `{name}` is not {what}"));
    match ty {
        Type::Text => key.value(name, value),
        Type::U64 => {
            key.value(name, &value.parse::<u64>().map_err(|_| not("a whole number from 0 to 2^64-1"))?);
        }
        Type::I64 => {
            key.value(name, &value.parse::<i64>().map_err(|_| not("a whole number from -2^63 to 2^63-1"))?);
        }
        Type::Uuid => key.value(name, &Uuid::try_parse(value).map_err(|_| not("a UUID"))?),
    }
    Ok(())
}

impl KeyExtractor for KeyTemplate {
    fn extract(&self, parts: &mut Parts) -> Result<Option<LockKey>, KeyRejection> {
        if !self.has_params() {
            return self.fill(std::iter::empty).map(Some);
        }
        let params = path_params(parts)?;
        self.fill(|| params.iter()).map(Some)
    }
}

/// The route's parameters, decoded. Axum has them ready: its extractor is asynchronous in form only.
fn path_params(parts: &mut Parts) -> Result<RawPathParams, KeyRejection> {
    let params = pin!(RawPathParams::from_request_parts(parts, &()));
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(params)) => Ok(params),
        Poll::Ready(Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) => {
            Err(KeyRejection::bad_request("a path parameter is not valid UTF-8"))
        }
        Poll::Ready(Err(RawPathParamsRejection::MissingPathParams(_))) => Err(KeyRejection::internal(
            "the lock key names route parameters, but the layer runs before the route is known: add it to the route \
             itself, `post(handler).route_layer(lock)`, not around the `Router`",
        )),
        Poll::Ready(Err(other)) => Err(KeyRejection::internal(format!("no route parameters: {other}"))),
        Poll::Pending => {
            Err(KeyRejection::internal("this version of axum does not have route parameters at once"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Fault;

    fn filled(template: &str, params: &[(&str, &str)]) -> Result<String, (Fault, String)> {
        let template = KeyTemplate::parse(template).expect("a template");
        let key = template.fill(|| params.iter().copied());
        key.map(|key| key.as_str().to_owned()).map_err(|refused| (refused.fault, refused.text.into_owned()))
    }

    fn refusal(template: &str) -> String {
        let error = KeyTemplate::parse(template).expect_err(template);
        assert_eq!(error.kind(), LockErrorKind::InvalidKey);
        error.to_string()
    }

    #[test]
    fn a_bad_template_is_told_what_to_write() {
        for (template, told) in [
            ("user:{id}", "write `<id>`"),
            ("", "write a name"),
            ("<a><b>", "write `<a>:<b>`"),
            ("user:<id:u32>", "write `u64` or `i64`"),
            ("user:<id:Uuid>", "`uuid`"),
            ("file:<*rest>", "write `<rest>`"),
            ("user:<user.id>", "`LockLayer::with_key`"),
            ("user:<header.x-tenant>", "`LockLayer::with_key`"),
            ("user:<id:>", "like `<id>`"),
            ("~x", "reserved"),
        ] {
            let text = refusal(template);
            assert!(text.contains(told) && text.contains(&format!("{template:?}")), "{text}");
        }
    }

    #[test]
    fn text_is_encoded() {
        assert_eq!(filled("a:<x>:<y>", &[("x", "1:2"), ("y", "3/ü")]), Ok("a:1%3A2:3%2Fü".into()));
        assert_eq!(filled("nightly", &[]), Ok("nightly".into()));
    }

    #[test]
    fn typed_values_are_printed_in_one_form() {
        for (ty, value, canonical) in [
            ("u64", "42", "42"),
            ("u64", "042", "42"),
            ("u64", "+42", "42"),
            ("u64", "18446744073709551615", "18446744073709551615"),
            ("i64", "-007", "-7"),
            ("i64", "-0", "0"),
            ("i64", "+7", "7"),
            ("uuid", "3F2504E0-4F89-11D3-9A0C-0305E82C3301", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
            ("uuid", "3f2504e04f8911d39a0c0305e82c3301", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
            ("uuid", "{3f2504e0-4f89-11d3-9a0c-0305e82c3301}", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
            ("uuid", "urn:uuid:3f2504e0-4f89-11d3-9a0c-0305e82c3301", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
        ] {
            assert_eq!(
                filled(&format!("k:<v:{ty}>"), &[("v", value)]),
                Ok(format!("k:{canonical}")),
                "{value}"
            );
        }
    }

    #[test]
    fn a_value_of_another_type_is_the_clients_fault_and_not_repeated() {
        for (ty, values) in [
            ("u64", ["-1", "18446744073709551616", "4 2", "0x2a", "42.0", "٤٢"]),
            ("i64", ["9223372036854775808", "--1", "1e3", " 1", "x", "+"]),
            ("uuid", ["42", "3f2504e0-4f89-11d3-9a0c-0305e82c330", "g", "-", "{}", "urn:uuid:"]),
        ] {
            for value in values {
                let (fault, text) = filled(&format!("k:<v:{ty}>"), &[("v", value)]).expect_err(value);
                assert_eq!(fault, Fault::Request);
                assert!(text.starts_with("the path parameter `v` is not a "), "{text}");
            }
        }
    }

    #[test]
    fn empty_and_long_values_are_the_clients_fault() {
        assert_eq!(
            filled("k:<v>", &[("v", "")]),
            Err((Fault::Request, "the path parameter `v` is empty".into()))
        );
        assert_eq!(filled("k:<v>", &[("v", &"x".repeat(510))]).map(|key| key.len()), Ok(512));
        // It counts as encoded.
        for long in ["x".repeat(511), ":".repeat(171)] {
            assert_eq!(
                filled("k:<v>", &[("v", &long)]),
                Err((Fault::Request, "the path parameters are too long".into()))
            );
        }
    }

    #[test]
    fn a_missing_or_doubled_parameter_is_the_servers_fault() {
        let (fault, text) = filled("k:<id>", &[("a", "1"), ("b", "2")]).expect_err("missing");
        assert_eq!(fault, Fault::Server);
        assert!(
            text.contains("`<id>`") && text.contains("(it has: `a` `b`)") && text.contains("route_layer")
        );
        let (_, text) = filled("k:<id>", &[]).expect_err("missing");
        assert!(text.contains("(it has: none)"), "{text}");
        // Even where both are the same.
        let (fault, text) = filled("k:<id>", &[("id", "1"), ("id", "1")]).expect_err("doubled");
        assert_eq!(fault, Fault::Server);
        assert!(text.contains("two parameters `id`"), "{text}");
    }
}
