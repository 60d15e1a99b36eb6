//! The parameters of the annotated function: what a key may name, and what else is asked of them.

use std::collections::HashSet;

use quote::ToTokens;
use syn::{
    Attribute, Generics, Ident, Pat, PatIdent, PatType, PathArguments, Type,
    visit::{self, Visit},
};

use crate::tokens::identifiers;

/// What a key may name.
pub(crate) struct Parameters {
    /// `self`, with the hygiene of the receiver.
    pub(crate) receiver: Option<Ident>,
    /// Whether the receiver is owned, not borrowed.
    pub(crate) receiver_is_owned: bool,
    /// All that the patterns bind, in their order.
    pub(crate) named: Vec<Parameter>,
    /// Whether `#[async_trait]` put names of its own in place of patterns.
    pub(crate) has_hidden_patterns: bool,
}

pub(crate) struct Parameter {
    pub(crate) ident: Ident,
    /// The conditions under which it exists.
    pub(crate) cfg: Vec<Attribute>,
    /// Nothing is to be said of it if it is unused.
    pub(crate) may_be_unused: bool,
    pub(crate) shape: Shape,
}

/// What the type of a parameter looks like, which decides the advice where it has no text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Shape {
    #[default]
    Plain,
    /// A wrapper of a web framework, like `Path<u64>`.
    Extractor,
    /// A type parameter or `impl Trait`.
    Generic,
}

impl Shape {
    pub(crate) fn of(typed: &PatType, generics: &Generics) -> Self {
        // What a pattern takes out of it has another type.
        if !matches!(*typed.pat, Pat::Ident(_)) {
            return Self::Plain;
        }
        let mut ty = &*typed.ty;
        let bare = loop {
            ty = match ty {
                Type::Reference(reference) => &reference.elem,
                Type::Paren(inside) => &inside.elem,
                Type::Group(inside) => &inside.elem,
                _ => break ty,
            };
        };
        let path = match bare {
            Type::ImplTrait(_) => return Self::Generic,
            Type::Path(path) if path.qself.is_none() => &path.path,
            _ => return Self::Plain,
        };
        let Some(last) = path.segments.last() else { return Self::Plain };
        match &last.arguments {
            // Those of the `impl` block cannot be seen; by custom they are one capital letter.
            PathArguments::None if path.segments.len() == 1 => {
                let name = last.ident.to_string();
                let is_letter = matches!(name.as_bytes(), [b'A'..=b'Z']);
                if is_letter || generics.type_params().any(|known| known.ident == last.ident) {
                    Self::Generic
                } else {
                    Self::Plain
                }
            }
            PathArguments::AngleBracketed(_)
                if ["Path", "Query", "Json", "Form", "State", "Extension"]
                    .iter()
                    .any(|known| last.ident == known) =>
            {
                Self::Extractor
            }
            _ => Self::Plain,
        }
    }
}

/// Whether this is `#[allow(unused_variables)]` or the like, also under a condition.
pub(crate) fn allows_unused(attribute: &Attribute) -> bool {
    let mut words = HashSet::new();
    identifiers(attribute.meta.to_token_stream(), &mut words);
    words.contains("allow")
        && ["unused", "unused_variables", "warnings"].iter().any(|lint| words.contains(*lint))
}

/// The names that a pattern binds.
pub(crate) fn bound_by(pattern: &Pat) -> Vec<Ident> {
    let mut bindings = Bindings(Vec::new());
    bindings.visit_pat(pattern);
    bindings.0
}

struct Bindings(Vec<Ident>);

impl<'a> Visit<'a> for Bindings {
    fn visit_pat_ident(&mut self, pattern: &'a PatIdent) {
        self.0.push(pattern.ident.clone());
        visit::visit_pat_ident(self, pattern);
    }
}
