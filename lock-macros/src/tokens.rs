//! Helpers for tokens: identifiers, groups and spans.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;

/// Adds the names to which `tokens` may refer: identifiers without `r#`, but no fields, methods or lifetimes.
pub(crate) fn identifiers(tokens: TokenStream, found: &mut HashSet<String>) {
    // The punctuation in the two tokens before this one. Two dots are a range, so a value follows.
    let (mut before, mut last) = (' ', ' ');
    for tree in tokens {
        let mut this = ' ';
        match tree {
            TokenTree::Ident(ident) => {
                if last != '\'' && (last != '.' || before == '.') {
                    found.insert(ident.unraw().to_string());
                }
            }
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Punct(punct) => this = punct.as_char(),
            TokenTree::Literal(_) => {}
        }
        (before, last) = (last, this);
    }
}

pub(crate) fn group(delimiter: Delimiter, content: TokenStream, span: Span) -> Group {
    let mut group = Group::new(delimiter, content);
    group.set_span(span);
    group
}

/// Returns the same tokens, located at `place`; they keep their hygiene.
pub(crate) fn located(tokens: TokenStream, place: Span) -> TokenStream {
    let tree = |tree| match tree {
        TokenTree::Group(inside) => {
            let mut outside = Group::new(inside.delimiter(), located(inside.stream(), place));
            outside.set_span(inside.span().located_at(place));
            TokenTree::Group(outside)
        }
        mut leaf => {
            leaf.set_span(leaf.span().located_at(place));
            leaf
        }
    };
    tokens.into_iter().map(tree).collect()
}

/// Creates a variable name that the user's code can neither see nor shadow.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn identifiers_are_what_may_be_a_variable() {
        let mut found = HashSet::new();
        identifiers(quote!(a.b.c(d)[0..e]; x!("{f}", &g); r#type; &'h i; ..j), &mut found);
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort();
        assert_eq!(found, ["a", "d", "e", "g", "i", "j", "type", "x"]);
    }
}
