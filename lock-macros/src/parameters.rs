//! The parameters of the annotated function: the names that a key may use, and the properties that matter elsewhere.

use std::collections::HashSet;

use quote::ToTokens;
use syn::{
    Attribute, Generics, Ident, Pat, PatIdent, PatType, PathArguments, Type,
    visit::{self, Visit},
};

use crate::tokens::identifiers;

/// The names that a key may use.
pub(crate) struct Parameters {
    /// `self`, with the hygiene of the receiver.
    pub(crate) receiver: Option<Ident>,
    /// Whether the receiver is owned, not borrowed.
    pub(crate) receiver_is_owned: bool,
    /// The variables that the patterns bind, in order.
    pub(crate) named: Vec<Parameter>,
    /// Whether `#[async_trait]` replaced patterns by names of its own.
    pub(crate) has_hidden_patterns: bool,
}

pub(crate) struct Parameter {
    pub(crate) ident: Ident,
    /// The `#[cfg(…)]` attributes of the parameter.
    pub(crate) cfg: Vec<Attribute>,
    /// Whether an `allow` keeps rustc from warning if the parameter is unused.
    pub(crate) may_be_unused: bool,
    pub(crate) shape: Shape,
}

/// The kind of a parameter's type, judged by its syntax. It decides the advice if the type has no `Display`.
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
        // A variable inside a pattern has another type than the parameter.
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
            // The type parameters of the `impl` block are out of sight; by custom they are one capital letter.
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

/// Whether the attribute is `#[allow(unused_variables)]` or the like, directly or in `cfg_attr`.
pub(crate) fn allows_unused(attribute: &Attribute) -> bool {
    let mut words = HashSet::new();
    identifiers(attribute.meta.to_token_stream(), &mut words);
    words.contains("allow")
        && ["unused", "unused_variables", "warnings"].iter().any(|lint| words.contains(*lint))
}

/// Returns the names that a pattern binds.
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
