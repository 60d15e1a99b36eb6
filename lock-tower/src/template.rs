//! Keys built from values in a request: route parameters, headers, query parameters, the gRPC method.

use std::borrow::Cow;

use http::request::Parts;
use lock_runtime::{
    __private::{
        KeyParts, class,
        template::{self, Piece},
    },
    IntoLockKey, LockError, LockErrorKind, LockKey,
};
use uuid::Uuid;

use crate::{KeyExtractor, KeyRejection};

#[cfg(feature = "axum")]
mod route;
mod source;

use source::Source;

/// A template of a key, such as `user:<id:u64>`: text with placeholders for values in the request.
#[derive(Debug)]
pub(crate) struct KeyTemplate {
    segments: Vec<Segment>,
    /// The text of the template, as the class of its locks.
    class: &'static str,
}

#[derive(Debug, PartialEq)]
enum Segment {
    Literal(String),
    Value { source: Source, ty: Type },
}

/// How a value is read and printed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Text,
    U64,
    I64,
    Uuid,
}

impl KeyTemplate {
    /// Parses a template. The error is of kind [`LockErrorKind::InvalidKey`] and says how to correct the template.
    pub(crate) fn parse(text: &str) -> Result<Self, LockError> {
        let invalid = |problem: String| {
            LockError::new(LockErrorKind::InvalidKey, format!("lock key template {text:?}: {problem}"))
        };
        let pieces = template::parse(text).map_err(|error| invalid(error.to_string()))?;
        let segments: Vec<_> = pieces.into_iter().map(segment).collect::<Result<_, _>>().map_err(invalid)?;
        if let [Segment::Literal(name)] = segments.as_slice() {
            LockKey::new(name)?;
        }
        Ok(Self { segments, class: class::of_template(text) })
    }

    /// Builds the key, with a value for each source.
    fn fill<'a>(
        &self,
        value_of: impl Fn(&Source) -> Result<Cow<'a, str>, KeyRejection>,
    ) -> Result<LockKey, KeyRejection> {
        let mut key = KeyParts::of(self.class);
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => key.literal(text),
                Segment::Value { source, ty } => push(&mut key, source, *ty, &value_of(source)?)?,
            }
        }
        let name = key.finish().map_err(|empty| KeyRejection::internal(empty.to_string()))?;
        // The literals were checked and the values are encoded, so only the length can be refused.
        name.into_lock_key("").map_err(|error| {
            KeyRejection::bad_request("the values that name the lock are too long").with_source(error)
        })
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
                "`{other}` in `<{name}:{other}>` is not a known type: write `u64` or `i64`, which also fit \
                 the smaller ones, `uuid`, or `<{name}>` for text"
            ));
        }
    };
    Ok(Segment::Value { source: Source::parse(&name)?, ty })
}

fn push(key: &mut KeyParts, source: &Source, ty: Type, value: &str) -> Result<(), KeyRejection> {
    // Empty values are refused below, so the name of the placeholder is never needed for an error.
    const UNNAMED: &str = "";
    let not = |what: &str| KeyRejection::bad_request(format!("{source} is not {what}"));
    match ty {
        Type::Text if value.is_empty() => {
            return Err(KeyRejection::bad_request(format!("{source} is empty")));
        }
        Type::Text => key.value(UNNAMED, value),
        Type::U64 => {
            key.value(UNNAMED, &value.parse::<u64>().map_err(|_| not("a whole number from 0 to 2^64-1"))?);
        }
        Type::I64 => {
            key.value(
                UNNAMED,
                &value.parse::<i64>().map_err(|_| not("a whole number from -2^63 to 2^63-1"))?,
            );
        }
        Type::Uuid => key.value(UNNAMED, &Uuid::try_parse(value).map_err(|_| not("a UUID"))?),
    }
    Ok(())
}

impl KeyExtractor for KeyTemplate {
    #[cfg(feature = "axum")]
    fn extract(&self, parts: &mut Parts) -> Result<Option<LockKey>, KeyRejection> {
        let in_route = |segment: &Segment| matches!(segment, Segment::Value { source: Source::Param(_), .. });
        let params = if self.segments.iter().any(in_route) { Some(route::params(parts)?) } else { None };
        let values = |source: &Source| match (source, &params) {
            (Source::Param(name), Some(params)) => route::value(name, || params.iter()).map(Cow::Borrowed),
            _ => source.value(parts),
        };
        self.fill(values).map(Some)
    }

    #[cfg(not(feature = "axum"))]
    fn extract(&self, parts: &mut Parts) -> Result<Option<LockKey>, KeyRejection> {
        self.fill(|source| source.value(parts)).map(Some)
    }
}

#[cfg(all(test, feature = "axum"))]
mod tests {
    use super::*;
    use crate::key::Fault;

    fn filled(template: &str, params: &[(&str, &str)]) -> Result<String, (Fault, String)> {
        let template = KeyTemplate::parse(template).expect("a template");
        let key = template.fill(|source| match source {
            Source::Param(name) => route::value(name, || params.iter().copied()).map(Cow::Borrowed),
            other => panic!("{other}"),
        });
        key.map(|key| key.as_str().to_owned()).map_err(|refused| (refused.fault, refused.text.into_owned()))
    }

    #[test]
    fn the_template_is_the_class_of_the_locks() {
        let template = KeyTemplate::parse("user:<header.x-id:u64>").expect("a template");
        let mut parts =
            http::Request::builder().header("x-id", "7").body(()).expect("a request").into_parts().0;
        let key = template.extract(&mut parts).expect("valid").expect("always one");
        assert_eq!((key.as_str(), key.class()), ("user:7", "user:<header.x-id:u64>"));
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
            ("user:<user.id>", "`LockLayer::with_key_fn`"),
            ("user:<header.x tenant>", "`x tenant` is not the name of a header"),
            ("user:<header.>", "not the name of a header"),
            ("user:<query.>", "like `<query.id>`"),
            ("user:<rpc.host>", "`<rpc.service>`"),
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
        // The length counts as encoded.
        for long in ["x".repeat(511), ":".repeat(171)] {
            assert_eq!(
                filled("k:<v>", &[("v", &long)]),
                Err((Fault::Request, "the values that name the lock are too long".into()))
            );
        }
    }

    fn read(template: &str, uri: &str, headers: &[(&str, &str)]) -> Result<String, (Fault, String, bool)> {
        let template = KeyTemplate::parse(template).expect("a template");
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request =
                request.header(*name, http::HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        let mut parts = request.body(()).expect("a request").into_parts().0;
        let key = template.extract(&mut parts);
        key.map(|key| key.expect("always one").as_str().to_owned())
            .map_err(|refused| (refused.fault, refused.text.into_owned(), refused.missing))
    }

    #[test]
    fn headers_and_query_values_name_locks() {
        let headers = &[("x-tenant", "a:b"), ("X-Id", "042"), ("x-two", "1"), ("x-two", "1"), ("x-none", "")];
        let uri = "/p?name=J%C3%BCrgen+M&id=%2B7&twice=1&twice=1&none=&a.b=c";
        for (template, key) in [
            ("t:<header.x-tenant>", "t:a%3Ab"),
            ("t:<header.X-Tenant>", "t:a%3Ab"),
            ("t:<header.x-id>", "t:042"),
            ("t:<header.x-id:u64>", "t:42"),
            ("q:<query.name>", "q:Jürgen%20M"),
            ("q:<query.id:i64>", "q:7"),
            ("q:<query.a.b>", "q:c"),
        ] {
            assert_eq!(read(template, uri, headers), Ok(key.into()), "{template}");
        }
        for (template, told, missing) in [
            ("t:<header.x-other>", "the header `x-other` is missing", true),
            ("t:<header.x-two>", "the header `x-two` is given more than once", false),
            ("t:<header.x-none>", "the header `x-none` is empty", false),
            (
                "t:<header.x-tenant:u64>",
                "the header `x-tenant` is not a whole number from 0 to 2^64-1",
                false,
            ),
            ("q:<query.other>", "the query value `other` is missing", true),
            ("q:<query.twice>", "the query value `twice` is given more than once", false),
            ("q:<query.none>", "the query value `none` is empty", false),
            ("q:<query.none:u64>", "the query value `none` is not a whole number from 0 to 2^64-1", false),
        ] {
            assert_eq!(
                read(template, uri, headers),
                Err((Fault::Request, told.into(), missing)),
                "{template}"
            );
        }
        let told = read("t:<header.x>", "/", &[("x", "ü")]).expect_err("not ASCII").1;
        assert_eq!(told, "the header `x` is not visible ASCII");
    }

    #[test]
    fn methods_of_grpc_name_locks() {
        for (path, key) in [
            ("http://host/demo.Users/Update", Ok("demo.Users/Update".into())),
            ("/demo.Users/Update", Ok("demo.Users/Update".into())),
        ] {
            assert_eq!(read("<rpc.service>/<rpc.method>", path, &[]), key, "{path}");
        }
        for path in ["/", "/demo.Users", "/demo.Users/", "//Update", "/a/b/c"] {
            let (fault, _, missing) = read("<rpc.service>/<rpc.method>", path, &[]).expect_err(path);
            assert_eq!((fault, missing), (Fault::Request, false), "{path}");
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
        // Even if both are the same.
        let (fault, text) = filled("k:<id>", &[("id", "1"), ("id", "1")]).expect_err("doubled");
        assert_eq!(fault, Fault::Server);
        assert!(text.contains("two parameters `id`"), "{text}");
    }
}
