//! Parts of a ZooKeeper URL.

/// Decodes percent-encoding such as `%40`.
pub(super) fn decode(text: &str) -> String {
    // A form decoder would take `+` for a space, and `&` and `=` for separators.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}
