//! The grammar of lock keys such as `user:<id>`: literals with placeholders between them.
//!
//! The attribute parses a template at compile time, the layer when it is built. This file is compiled for both, and
//! each of them decides what a placeholder may name: function parameters for the attribute; route parameters,
//! headers and the like for the layer.
//!
//! The rules make keys injective: two lists of values with different text never produce the same name. Values are
//! percent-encoded (see `KeyParts`), so `:`, `/` and braces in a name come only from literals, and every literal
//! between two placeholders contains one of these characters.
//!
//! Braces mark the hash tag, which determines the slot in a Redis Cluster. A template may have one pair of them,
//! around a placeholder.

use std::{error::Error, fmt};

/// The maximum total length of a template's literals in bytes, which is that of a name.
pub const MAX_LITERAL_BYTES: usize = 512;

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that is added to the name unchanged; never empty.
    Literal(String),
    /// A value.
    Placeholder {
        /// The name in the placeholder, such as `id`, `user.id` or `header.x-tenant`. Not empty, otherwise unchecked.
        path: String,
        /// The type as which the value is parsed, such as the `u64` in `<id:u64>`.
        ty: Option<String>,
    },
}

/// The reason why a text is not a valid template, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError(String);

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for TemplateError {}

/// Parses a template. The result has at least one piece, and never two literals or two placeholders in a row.
///
/// # Errors
///
/// Returns an error if a bracket has no counterpart, or if the names could be ambiguous, reserved or malformed.
pub fn parse(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let pieces = split(text).map_err(TemplateError)?;
    check(&pieces).map_err(TemplateError)?;
    Ok(pieces)
}

/// Splits `text` into pieces.
fn split(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut tag = Tag::None;
    let mut rest = text;
    while let Some(at) = rest.find(['<', '>', '{', '}']) {
        let (before, from) = rest.split_at(at);
        literal.push_str(before);
        if let Some(after) = from.strip_prefix("<<") {
            literal.push('<');
            rest = after;
        } else if let Some(after) = from.strip_prefix(">>") {
            literal.push('>');
            rest = after;
        } else if let Some(after) = from.strip_prefix('<') {
            let inside = &after[..after.find(['<', '>', '{', '}']).unwrap_or(after.len())];
            rest = after[inside.len()..].strip_prefix('>').ok_or_else(|| {
                format!(
                    "`<{inside}` in the lock key is not closed: write `<name>`, or `<<` where `<` itself is meant"
                )
            })?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(placeholder(inside)?);
            tag = tag.with_value();
        } else if from.starts_with('>') {
            return Err(
                "`>` in the lock key closes nothing: write `<name>`, or `>>` where `>` itself is meant"
                    .into(),
            );
        } else {
            tag = tag.with_brace(from)?;
            literal.push_str(&from[..1]);
            rest = &from[1..];
        }
    }
    if let Tag::Empty | Tag::Open = tag {
        return Err(
            "`{` in the lock key is not closed: write `}` after the placeholder, like `{<tenant>}:x`".into(),
        );
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

fn placeholder(inside: &str) -> Result<Piece, String> {
    if inside.trim().is_empty() {
        return Err(format!("`<{inside}>` in the lock key names nothing: write a name in it, like `<id>`"));
    }
    Ok(match inside.split_once(':') {
        // `<Self::ID>` contains no type. The caller knows the valid names and rejects it.
        Some((path, ty)) if !path.is_empty() && !ty.is_empty() && !ty.contains(':') => {
            Piece::Placeholder { path: path.into(), ty: Some(ty.into()) }
        }
        _ => Piece::Placeholder { path: inside.into(), ty: None },
    })
}

/// How much of the hash tag has been parsed.
#[derive(Clone, Copy)]
enum Tag {
    None,
    /// Opened, with no placeholder so far.
    Empty,
    Open,
    Closed,
}

impl Tag {
    fn with_value(self) -> Self {
        if let Self::Empty = self { Self::Open } else { self }
    }

    /// Parses the brace at the beginning of `from`.
    ///
    /// `{id}` is rejected: Rust and routers write placeholders like this, and if it counted as text, all callers
    /// would share one lock.
    fn with_brace(self, from: &str) -> Result<Self, String> {
        if let Some((name, _)) = from.strip_prefix('{').and_then(|rest| rest.split_once('}'))
            && !name.trim().is_empty()
            && !name.contains(['<', '>', '{'])
        {
            return Err(format!("`{{{name}}}` in the lock key is not a placeholder: write `<{name}>`"));
        }
        match (self, &from[..1]) {
            (Self::None, "{") => Ok(Self::Empty),
            (Self::Open, "}") => Ok(Self::Closed),
            (_, brace) => Err(format!(
                "`{brace}` does not belong here in the lock key: braces may stand once, around a placeholder, like \
                 `{{<tenant>}}:x` for the hash tag of a Redis Cluster; a placeholder itself is `<id>`"
            )),
        }
    }
}

/// Checks the rules that make names injective and well formed, and distinct from reserved names.
fn check(pieces: &[Piece]) -> Result<(), String> {
    if pieces.is_empty() {
        return Err("the lock key is empty: write a name, like `user:<id>`".into());
    }
    for window in pieces.windows(2) {
        if let [Piece::Placeholder { path: first, .. }, Piece::Placeholder { path: second, .. }] = window {
            return Err(format!(
                "nothing separates `<{first}>` and `<{second}>` in the lock key, so different values would give one \
                 key: write `<{first}>:<{second}>`"
            ));
        }
    }
    for window in pieces.windows(3) {
        if let [
            Piece::Placeholder { path: first, .. },
            Piece::Literal(text),
            Piece::Placeholder { path: second, .. },
        ] = window
            && !text.contains([':', '/', '{', '}'])
        {
            return Err(format!(
                "{text:?} does not separate `<{first}>` and `<{second}>` in the lock key, because values may contain \
                 it: write `:` or `/` between them, like `<{first}>:<{second}>`"
            ));
        }
    }
    let literals = || {
        pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(text) => Some(text.as_str()),
            Piece::Placeholder { .. } => None,
        })
    };
    if let Some(control) = literals().flat_map(str::chars).find(|character| character.is_control()) {
        return Err(format!(
            "the lock key contains the control character `{}`: write visible text",
            control.escape_default()
        ));
    }
    // Values contain no `~` (it is encoded) and are never empty, so the literals decide.
    let begins = matches!(pieces.first(), Some(Piece::Literal(text)) if text.starts_with('~'));
    if begins || literals().any(|text| text.contains(":~")) {
        return Err(
            "`~` at the beginning of a lock key and after `:` is reserved for the stores' own entries: leave it out"
                .into(),
        );
    }
    let bytes: usize = literals().map(str::len).sum();
    if bytes > MAX_LITERAL_BYTES {
        return Err(format!(
            "the fixed text of the lock key is {bytes} bytes long: a key has at most {MAX_LITERAL_BYTES}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Piece {
        Piece::Literal(text.into())
    }

    fn value(path: &str) -> Piece {
        Piece::Placeholder { path: path.into(), ty: None }
    }

    fn refusal(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn literals_and_placeholders_are_told_apart() {
        assert_eq!(parse("user:<id>"), Ok(vec![literal("user:"), value("id")]));
        assert_eq!(parse("<id>"), Ok(vec![value("id")]));
        assert_eq!(parse("nightly report"), Ok(vec![literal("nightly report")]));
        assert_eq!(
            parse("<self.tenant>/<pair.0>:<header.x-tenant>!"),
            Ok(vec![
                value("self.tenant"),
                literal("/"),
                value("pair.0"),
                literal(":"),
                value("header.x-tenant"),
                literal("!")
            ])
        );
        assert_eq!(parse("grün:<größe>"), Ok(vec![literal("grün:"), value("größe")]));
    }

    #[test]
    fn doubled_brackets_are_text() {
        assert_eq!(parse("a<<b>>c"), Ok(vec![literal("a<b>c")]));
        assert_eq!(parse("<<<id>>>"), Ok(vec![literal("<"), value("id"), literal(">")]));
        assert_eq!(parse("<<id>>"), Ok(vec![literal("<id>")]));
    }

    #[test]
    fn a_type_is_split_off() {
        assert_eq!(
            parse("<id:u64>"),
            Ok(vec![Piece::Placeholder { path: "id".into(), ty: Some("u64".into()) }])
        );
        for path in ["id:", ":u64", "Self::ID", "a:b:c"] {
            assert_eq!(parse(&format!("<{path}>")), Ok(vec![value(path)]));
        }
    }

    #[test]
    fn a_pair_of_braces_round_a_placeholder_is_a_hash_tag() {
        assert_eq!(
            parse("{<tenant>}:user:<id>"),
            Ok(vec![literal("{"), value("tenant"), literal("}:user:"), value("id")])
        );
        for text in ["{<id>}", "x{<id>}", "{a:<id>}", "{<a>:<b>}:c", "{<a>b}c", "<a>{<b>}<c>", "a<<{<id>}"] {
            parse(text).expect(text);
        }
    }

    #[test]
    fn a_name_in_braces_is_answered_with_what_to_write() {
        assert_eq!(refusal("user:{id}"), "`{id}` in the lock key is not a placeholder: write `<id>`");
        assert_eq!(
            refusal("{user.id}:<x>"),
            "`{user.id}` in the lock key is not a placeholder: write `<user.id>`"
        );
        // Also as it is escaped in a format string.
        assert_eq!(refusal("{{id}}"), "`{id}` in the lock key is not a placeholder: write `<id>`");
        assert_eq!(refusal("{<x>}:{id}"), "`{id}` in the lock key is not a placeholder: write `<id>`");
    }

    #[test]
    fn other_braces_are_refused() {
        for (text, brace) in [
            ("a}", '}'),
            ("{}", '}'),
            ("{ }", '}'),
            ("{a<<b}", '}'),
            ("{<a>}:{<b>}", '{'),
            ("{{<id>}}", '{'),
            ("{<id>}}", '}'),
            ("<id>}{", '}'),
            ("}{<id>}", '}'),
        ] {
            assert_eq!(
                refusal(text),
                format!(
                    "`{brace}` does not belong here in the lock key: braces may stand once, around a placeholder, \
                     like `{{<tenant>}}:x` for the hash tag of a Redis Cluster; a placeholder itself is `<id>`"
                )
            );
        }
        for text in ["{", "<id>{", "{<id>:x", "{a"] {
            assert_eq!(
                refusal(text),
                "`{` in the lock key is not closed: write `}` after the placeholder, like `{<tenant>}:x`"
            );
        }
    }

    #[test]
    fn a_bracket_without_its_partner_is_refused() {
        for (text, inside) in
            [("user:<id", "id"), ("<", ""), ("<a<b>", "a"), ("<id{x}>", "id"), ("<<<id", "id")]
        {
            assert_eq!(
                refusal(text),
                format!(
                    "`<{inside}` in the lock key is not closed: write `<name>`, or `<<` where `<` itself is meant"
                )
            );
        }
        for text in [">", "id>", "<id>>", "<<id>", "a>b"] {
            let told = refusal(text);
            assert_eq!(
                told,
                "`>` in the lock key closes nothing: write `<name>`, or `>>` where `>` itself is meant"
            );
        }
    }

    #[test]
    fn nothing_is_no_name() {
        assert_eq!(refusal(""), "the lock key is empty: write a name, like `user:<id>`");
        assert_eq!(refusal("a<>"), "`<>` in the lock key names nothing: write a name in it, like `<id>`");
        assert_eq!(refusal("a< >"), "`< >` in the lock key names nothing: write a name in it, like `<id>`");
    }

    #[test]
    fn placeholders_need_a_separator_that_values_cannot_contain() {
        assert_eq!(
            refusal("<a><b>"),
            "nothing separates `<a>` and `<b>` in the lock key, so different values would give one key: write \
             `<a>:<b>`"
        );
        assert_eq!(
            refusal("x:<a>-<b>"),
            "\"-\" does not separate `<a>` and `<b>` in the lock key, because values may contain it: write `:` or \
             `/` between them, like `<a>:<b>`"
        );
        for text in ["<a>:<b>", "<a>/<b>", "<a>-x:<b>", "<a>:<b>/<c>", "x-<a>-y"] {
            parse(text).expect(text);
        }
        refusal("<a>:<b>.<c>");
    }

    #[test]
    fn reserved_names_cannot_be_written() {
        for text in ["~x", "~", "~<id>", "a:~", "a:~1:<id>", "<id>:~x", "<a>:~:<b>"] {
            assert_eq!(
                refusal(text),
                "`~` at the beginning of a lock key and after `:` is reserved for the stores' own entries: leave it out"
            );
        }
        for text in ["a~b", "<id>~", "<id>~x", "a/~b", "<<~"] {
            parse(text).expect(text);
        }
    }

    #[test]
    fn control_characters_are_refused() {
        for (text, shown) in
            [("a\nb", "\\n"), ("<id>\0", "\\u{0}"), ("\u{7f}", "\\u{7f}"), ("\u{85}", "\\u{85}")]
        {
            assert_eq!(
                refusal(text),
                format!("the lock key contains the control character `{shown}`: write visible text")
            );
        }
    }

    #[test]
    fn literals_fit_into_a_key() {
        parse(&"é".repeat(256)).expect("512 bytes");
        parse(&format!("{}:<id>", "x".repeat(511))).expect("512 bytes");
        assert_eq!(
            refusal(&format!("{}:<id>!", "x".repeat(511))),
            "the fixed text of the lock key is 513 bytes long: a key has at most 512"
        );
    }
}
