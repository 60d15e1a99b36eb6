//! Turns the options into a plan for this function, and refuses those that cannot work.

mod contradictions;
mod durations;
mod output;

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{Error, Expr, Index, LitBool, LitStr, Path, Result, ext::IdentExt, parse_quote};

pub(crate) use durations::{Length, Wait};
use output::Output;

use crate::{
    args::{self, Args, OnContention, OnLost},
    errors::Errors,
    function::Function,
    parameters::{Parameters, Shape},
    suggest::did_you_mean,
    template::{self, Piece},
};

/// The code to be generated, free of errors as far as that shows without types.
pub(crate) struct Plan {
    pub(crate) keys: Keys,
    pub(crate) manager: Option<Expr>,
    pub(crate) ttl: Option<Length>,
    pub(crate) wait: Option<Wait>,
    pub(crate) auto_renew: Option<LitBool>,
    pub(crate) max_hold: Option<Length>,
    pub(crate) hold_at_least: Option<Length>,
    pub(crate) once_per: Option<Length>,
    pub(crate) reentrant: Option<LitBool>,
    pub(crate) on_contention: OnContention,
    pub(crate) or_else: Option<Expr>,
    pub(crate) on_lost: OnLost,
    pub(crate) guard: Option<Ident>,
    pub(crate) label: Option<Expr>,
    pub(crate) krate: Path,
    pub(crate) output: Output,
}

pub(crate) enum Keys {
    One(Key),
    Several(Vec<Key>),
}

impl Keys {
    /// The names of the parameters in the keys.
    pub(crate) fn roots(&self) -> HashSet<String> {
        let keys = match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Several(keys) => keys,
        };
        keys.iter().flat_map(|key| key.roots.iter().cloned()).collect()
    }
}

pub(crate) struct Key {
    /// The template, as written.
    pub(crate) template: String,
    pub(crate) parts: Vec<KeyPart>,
    /// The names of the parameters in the key.
    pub(crate) roots: HashSet<String>,
    pub(crate) span: Span,
}

pub(crate) enum KeyPart {
    Literal(String),
    Value { placeholder: String, value: TokenStream, shape: Shape },
}

/// Checks the options against each other and against the function.
///
/// # Errors
///
/// All mistakes, reported together.
pub(crate) fn check(args: Args, function: &Function) -> Result<Plan> {
    let mut errors = Errors::default();
    let parameters = function.parameters();
    let on_contention = args.on_contention.as_ref().map_or(OnContention::Error, |chosen| chosen.value);
    let output = errors.out(output::check(function, args.or_else.as_ref(), on_contention));
    let keys = errors.out(keys(&args.keys, &parameters));
    let ttl = errors.out(args.ttl.map(durations::ttl).transpose());
    let wait = errors.out(args.wait.map(durations::wait).transpose());
    let max_hold = errors.out(args.max_hold.map(durations::max_hold).transpose());
    let hold_at_least = errors.out(args.hold_at_least.map(durations::hold_at_least).transpose());
    let once_per = errors.out(args.once_per.map(durations::once_per).transpose());
    let guard = errors.out(args.guard.map(|name| not_a_parameter(name, &parameters)).transpose());
    let lengths = (ttl, wait, max_hold, hold_at_least, once_per);
    let (Some(output), Some(keys), Some(guard)) = (output, keys, guard) else {
        return Err(errors.or(()).expect_err("a missing part was refused"));
    };
    let (Some(ttl), Some(wait), Some(max_hold), Some(hold_at_least), Some(once_per)) = lengths else {
        return Err(errors.or(()).expect_err("a missing part was refused"));
    };
    let plan = Plan {
        keys,
        manager: args.manager,
        ttl,
        wait,
        auto_renew: args.auto_renew,
        max_hold,
        hold_at_least,
        once_per,
        reentrant: args.reentrant,
        on_contention,
        or_else: args.or_else,
        on_lost: args.on_lost.map_or(OnLost::Cancel, |chosen| chosen.value),
        guard,
        label: args.label,
        krate: args.krate.unwrap_or_else(|| parse_quote!(::lock_runtime)),
        output,
    };
    contradictions::check(&plan, args.on_contention.map(|chosen| chosen.span))?;
    Ok(plan)
}

fn keys(written: &args::Keys, parameters: &Parameters) -> Result<Keys> {
    let several = match written {
        args::Keys::One(template) => return key(template, Names::Parameters(parameters)).map(Keys::One),
        args::Keys::Several(several) => several,
    };
    let mut errors = Errors::default();
    let mut keys = Vec::new();
    for (i, template) in several.iter().enumerate() {
        if several[..i].iter().any(|earlier| earlier.value() == template.value()) {
            errors.add(Error::new(template.span(), "this key is in the list already: leave it out"));
        }
        keys.extend(errors.out(key(template, Names::Parameters(parameters))));
    }
    errors.or(Keys::Several(keys))
}

fn not_a_parameter(name: Ident, parameters: &Parameters) -> Result<Ident> {
    if parameters.named.iter().any(|parameter| parameter.ident.unraw() == name.unraw()) {
        let message =
            format!("`guard = {name}` would hide the parameter `{name}` from the body: choose another name");
        return Err(Error::new(name.span(), message));
    }
    Ok(name)
}

/// The names with which a placeholder may begin.
#[derive(Clone, Copy)]
pub(crate) enum Names<'a> {
    Parameters(&'a Parameters),
    /// Any variable that rustc finds where the key is written.
    Variables,
}

impl Names<'_> {
    fn kind(self) -> &'static str {
        match self {
            Self::Parameters(_) => "parameter",
            Self::Variables => "variable",
        }
    }

    /// Returns the variable named `root`; `None` if that is no identifier, an error if there is no such parameter.
    fn find(self, root: &str, span: Span) -> std::result::Result<Option<(Ident, Shape)>, String> {
        let plain = |ident| Some((ident, Shape::Plain));
        let parameters = match self {
            Self::Parameters(parameters) => parameters,
            Self::Variables if root == "self" => return Ok(plain(Ident::new("self", span))),
            Self::Variables => {
                return Ok(identifier(root).and_then(|mut variable| {
                    variable.set_span(span);
                    plain(variable)
                }));
            }
        };
        if root == "self" {
            let receiver = parameters.receiver.clone();
            return receiver
                .map(plain)
                .ok_or("the lock key uses `self`, which this function does not have".into());
        }
        let name = unraw(root);
        match parameters.named.iter().find(|parameter| parameter.ident.unraw() == name) {
            Some(parameter) => Ok(Some((parameter.ident.clone(), parameter.shape))),
            None if identifier(root).is_some() => Err(unknown(root, parameters)),
            None => Ok(None),
        }
    }
}

pub(crate) fn key(template: &LitStr, names: Names<'_>) -> Result<Key> {
    let span = template.span();
    let pieces = template::parse(&template.value()).map_err(|error| Error::new(span, error))?;
    if let (Names::Parameters(parameters), [Piece::Literal(text)]) = (names, pieces.as_slice())
        && let Some(name) = forgotten_brackets(text, parameters)
    {
        let message = format!(
            "`{name}` in the lock key is text, so all values of the parameter `{name}` share one lock: write \
             `<{name}>`, or another word if that is intended"
        );
        return Err(Error::new(span, message));
    }
    let mut key = Key { template: template.value(), parts: Vec::new(), roots: HashSet::new(), span };
    for piece in pieces {
        key.parts.push(match piece {
            Piece::Literal(text) => KeyPart::Literal(text),
            Piece::Placeholder { path, ty: Some(ty) } => {
                let message = format!(
                    "`<{path}:{ty}>` has a type, which only a layer's key needs: write `<{path}>`, the {} has its own",
                    names.kind()
                );
                return Err(Error::new(span, message));
            }
            Piece::Placeholder { path, ty: None } => {
                let (root, value, shape) =
                    value(&path, names, span).map_err(|message| Error::new(span, message))?;
                key.roots.insert(root);
                KeyPart::Value { placeholder: path, value, shape }
            }
        });
    }
    Ok(key)
}

/// Finds a parameter whose name is a word of a key without placeholders, as in `user:id` or `user:$id`.
///
/// The first word names the subject of the key, and may well be the name of a parameter.
fn forgotten_brackets(text: &str, parameters: &Parameters) -> Option<String> {
    let names = parameters.named.iter().map(|parameter| parameter.ident.unraw().to_string());
    let is_word = |name: &String| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').skip(1).any(|word| word == name)
    };
    names.into_iter().find(is_word)
}

/// Returns the first name of `path`, the expression for the path, and the shape of its type.
fn value(
    path: &str,
    names: Names<'_>,
    span: Span,
) -> std::result::Result<(String, TokenStream, Shape), String> {
    let no_path = || {
        let (kind, way_out) = match names {
            Names::Parameters(_) => ("parameter", "pass its result as a parameter"),
            Names::Variables => ("variable", "put its result into a variable"),
        };
        format!(
            "`<{path}>` in the lock key is not a {kind} or a field of one, like `<id>` or `<user.id>`: code does not \
             belong in the key, {way_out}"
        )
    };
    let mut segments = path.split('.');
    let root = segments.next().unwrap_or_default();
    let (mut value, mut shape) = names.find(root, span)?.ok_or_else(no_path)?;
    // Keeps the hygiene of the parameter, for `macro_rules!` macros, with the location of the key.
    value.set_span(value.span().located_at(span));
    let mut value = quote_spanned!(span=> #value);
    for segment in segments {
        shape = Shape::Plain;
        value = if let Some(index) = index(segment) {
            let index = Index { index, span };
            quote_spanned!(span=> #value.#index)
        } else {
            let mut field = identifier(segment).ok_or_else(no_path)?;
            // The hygiene of a macro: with the user's, rustc would offer to replace the whole template by a field of a
            // similar name.
            field.set_span(Span::call_site().located_at(span));
            quote_spanned!(span=> #value.#field)
        };
    }
    Ok((unraw(root).to_owned(), value, shape))
}

/// Returns the name without `r#`.
fn unraw(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// Parses `text` as an identifier; `None` if it is anything else.
fn identifier(text: &str) -> Option<Ident> {
    syn::parse_str::<Ident>(text).ok().filter(|ident| ident == text)
}

/// Parses `text` as the index of a tuple's field; `None` if it is anything else.
fn index(text: &str) -> Option<u32> {
    text.parse().ok().filter(|index: &u32| index.to_string() == text)
}

fn unknown(root: &str, parameters: &Parameters) -> String {
    let names: Vec<String> =
        parameters.named.iter().map(|parameter| parameter.ident.unraw().to_string()).collect();
    let suggestion = did_you_mean(root, names.iter().map(String::as_str));
    let known = match names.as_slice() {
        _ if !suggestion.is_empty() => String::new(),
        _ if parameters.has_hidden_patterns => {
            "; the names inside a pattern cannot be used under `#[async_trait]`, \
             give that parameter a name of its own"
                .into()
        }
        [] => ", which has none".into(),
        names => format!(" (its parameters: `{}`)", names.join("`, `")),
    };
    let field = if parameters.receiver.is_some() && suggestion.is_empty() && !parameters.has_hidden_patterns {
        format!("; a field of `self` is written `<self.{root}>`")
    } else {
        String::new()
    };
    format!("`<{root}>` in the lock key is not a parameter of this function{suggestion}{known}{field}")
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "keeps each case a bare `quote!(…)`")]
mod tests;
