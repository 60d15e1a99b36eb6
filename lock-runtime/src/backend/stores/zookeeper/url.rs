//! Parts of a ZooKeeper URL.

/// Takes `%40` and the like for what they stand for.
pub(super) fn decode(text: &str) -> String {
    // A form would take `+` for a space and `&` and `=` for its own.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}
