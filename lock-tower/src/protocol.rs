//! The protocol of a request and of its response: HTTP or gRPC.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

/// The protocol in which the layer responds to a request that it refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// gRPC if the request's `content-type` is `application/grpc` or one of its variants, otherwise HTTP.
    #[default]
    Auto,
    /// HTTP: a status code and an `application/problem+json` document.
    Http,
    /// gRPC: a Trailers-Only response with a `grpc-status`.
    Grpc,
}

/// The protocol of one request.
#[derive(Debug)]
pub(crate) enum Wire {
    Http,
    Grpc {
        /// The `content-type` of a response without a message.
        content_type: HeaderValue,
        /// How long the client waits for the response.
        timeout: Option<Duration>,
    },
}

impl Wire {
    pub(crate) fn of(headers: &HeaderMap, protocol: Protocol) -> Self {
        let asked = headers.get(header::CONTENT_TYPE);
        let kind = asked.map_or(Kind::Other, kind);
        if protocol == Protocol::Http || (protocol == Protocol::Auto && matches!(kind, Kind::Other)) {
            return Self::Http;
        }
        let content_type = match (kind, asked) {
            (Kind::Web, Some(asked)) => asked.clone(),
            _ => HeaderValue::from_static("application/grpc"),
        };
        let timeout = headers.get("grpc-timeout").and_then(|value| timeout(value.to_str().ok()?));
        Self::Grpc { content_type, timeout }
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Http => None,
            Self::Grpc { timeout, .. } => *timeout,
        }
    }
}

enum Kind {
    Grpc,
    /// gRPC-Web, whose clients expect their own `content-type` back.
    Web,
    Other,
}

fn kind(content_type: &HeaderValue) -> Kind {
    let Some(rest) = content_type.as_bytes().strip_prefix(b"application/grpc") else { return Kind::Other };
    match rest {
        [] | [b'+' | b';', ..] => Kind::Grpc,
        _ if rest.starts_with(b"-web") => Kind::Web,
        _ => Kind::Other,
    }
}

/// Parses a `grpc-timeout`, `TimeoutValue TimeoutUnit`: at most eight digits and one letter.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 60 * 60),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(content_type: &'static str, protocol: Protocol) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        match Wire::of(&headers, protocol) {
            Wire::Http => None,
            Wire::Grpc { content_type, .. } => Some(content_type.to_str().expect("ASCII").into()),
        }
    }

    #[test]
    fn grpc_is_told_by_its_content_type() {
        for (asked, answered) in [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("application/grpc;x=y", Some("application/grpc")),
            ("application/grpc-web", Some("application/grpc-web")),
            ("application/grpc-web+proto", Some("application/grpc-web+proto")),
            ("application/grpc-web-text", Some("application/grpc-web-text")),
            ("application/grpcish", None),
            ("application/json", None),
        ] {
            assert_eq!(wire(asked, Protocol::Auto).as_deref(), answered, "{asked}");
            assert_eq!(wire(asked, Protocol::Http), None, "{asked}");
            assert!(wire(asked, Protocol::Grpc).is_some(), "{asked}");
        }
        assert!(matches!(Wire::of(&HeaderMap::new(), Protocol::Auto), Wire::Http));
    }

    #[test]
    fn timeouts_are_read_as_the_protocol_writes_them() {
        for (text, expected) in [
            ("99999999H", Some(Duration::from_hours(99_999_999))),
            ("2M", Some(Duration::from_mins(2))),
            ("1S", Some(Duration::from_secs(1))),
            ("100m", Some(Duration::from_millis(100))),
            ("0m", Some(Duration::ZERO)),
            ("7u", Some(Duration::from_micros(7))),
            ("1n", Some(Duration::from_nanos(1))),
            ("", None),
            ("S", None),
            ("1", None),
            ("+1S", None),
            ("123456789S", None),
            ("1s", None),
            ("1é", None),
        ] {
            assert_eq!(timeout(text), expected, "{text}");
        }
    }
}
