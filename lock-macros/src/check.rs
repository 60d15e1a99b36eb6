//! What an option means for this function, and whether it can mean anything.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{
    AssocType, Error, Expr, Index, LitBool, LitStr, Path, Result, ReturnType, Type,
    ext::IdentExt,
    parse_quote,
    visit::{self, Visit},
};

use crate::{
    args::{Args, Setting},
    duration,
    function::{Body, Function, Parameters},
    suggest::did_you_mean,
    template::{self, Piece},
};

/// What the manager accepts too; a ttl that the program computes is checked there.
const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(24);

/// What is to be generated; nothing in it is wrong any more, as far as can be seen without types.
pub(crate) struct Plan {
    pub(crate) key: Key,
    pub(crate) ttl: Option<Length>,
    pub(crate) wait: Option<Wait>,
    pub(crate) manager: Option<Expr>,
    pub(crate) auto_renew: Option<LitBool>,
    pub(crate) krate: Path,
    /// The `Result`, where it is not hidden behind an alias of a boxed future.
    pub(crate) output: Option<Type>,
}

pub(crate) struct Key {
    pub(crate) parts: Vec<KeyPart>,
    /// The names of the parameters in it.
    pub(crate) roots: HashSet<String>,
    pub(crate) span: Span,
}

pub(crate) enum KeyPart {
    Literal(String),
    Value { placeholder: String, value: TokenStream },
}

pub(crate) enum Length {
    Fixed(Duration),
    Code(Expr),
}

pub(crate) enum Wait {
    AtMost(Length),
    Forever,
}

impl Length {
    /// What the program evaluates.
    pub(crate) fn code(&self) -> Option<&Expr> {
        match self {
            Self::Fixed(_) => None,
            Self::Code(code) => Some(code),
        }
    }
}

impl Wait {
    /// What the program evaluates.
    pub(crate) fn code(&self) -> Option<&Expr> {
        match self {
            Self::AtMost(length) => length.code(),
            Self::Forever => None,
        }
    }
}

/// # Errors
///
/// All that is wrong at once.
pub(crate) fn check(args: Args, function: &Function) -> Result<Plan> {
    let output = output(function);
    let key = key(&args.key, &function.parameters());
    let ttl = args.ttl.map(ttl).transpose();
    let wait = args.wait.map(wait).transpose();
    match (output, key, ttl, wait) {
        (Ok(output), Ok(key), Ok(ttl), Ok(wait)) => Ok(Plan {
            key,
            ttl,
            wait,
            manager: args.manager,
            auto_renew: args.auto_renew,
            krate: args.krate.unwrap_or_else(|| parse_quote!(::lock_runtime)),
            output,
        }),
        (output, key, ttl, wait) => {
            let errors = [output.err(), key.err(), ttl.err(), wait.err()];
            let all = errors.into_iter().flatten().reduce(|mut all, error| {
                all.combine(error);
                all
            });
            Err(all.expect("one of the four failed"))
        }
    }
}

fn ttl(setting: Setting) -> Result<Length> {
    let text = match setting {
        Setting::Code(code) => return Ok(Length::Code(code)),
        Setting::Text(text) => text,
    };
    if text.value() == "forever" {
        return Err(Error::new(
            text.span(),
            "a lease cannot last forever, or a crash would keep the lock: leave `ttl` out; the lease is renewed while \
             the body runs",
        ));
    }
    let ttl = duration::parse(&text.value()).map_err(|error| Error::new(text.span(), error))?;
    if TTL.contains(&ttl) {
        Ok(Length::Fixed(ttl))
    } else {
        Err(Error::new(
            text.span(),
            format!("`ttl` is at least \"100ms\" and at most \"24h\", not {:?}", text.value()),
        ))
    }
}

fn wait(setting: Setting) -> Result<Wait> {
    match setting {
        Setting::Code(code) => Ok(Wait::AtMost(Length::Code(code))),
        Setting::Text(text) if text.value() == "forever" => Ok(Wait::Forever),
        Setting::Text(text) => match duration::parse(&text.value()) {
            Ok(wait) => Ok(Wait::AtMost(Length::Fixed(wait))),
            Err(error) => Err(Error::new(text.span(), format!("{error}; or \"forever\""))),
        },
    }
}

fn key(template: &LitStr, parameters: &Parameters) -> Result<Key> {
    let span = template.span();
    let pieces = template::parse(&template.value()).map_err(|error| Error::new(span, error))?;
    let mut key = Key { parts: Vec::new(), roots: HashSet::new(), span };
    for piece in pieces {
        key.parts.push(match piece {
            Piece::Literal(text) => KeyPart::Literal(text),
            Piece::Placeholder { path, ty: Some(ty) } => {
                let message = format!(
                    "`<{path}:{ty}>` has a type, which only a layer's key needs: write `<{path}>`, the parameter has \
                     its own"
                );
                return Err(Error::new(span, message));
            }
            Piece::Placeholder { path, ty: None } => {
                let (root, value) =
                    value(&path, parameters, span).map_err(|message| Error::new(span, message))?;
                key.roots.insert(root);
                KeyPart::Value { placeholder: path, value }
            }
        });
    }
    Ok(key)
}

/// The parameter that `path` begins with, and the expression that it stands for.
fn value(
    path: &str,
    parameters: &Parameters,
    span: Span,
) -> std::result::Result<(String, TokenStream), String> {
    let no_path = || {
        format!(
            "`<{path}>` in the lock key is not a parameter or a field of one, like `<id>` or `<user.id>`: code does \
             not belong into the key, pass its result as a parameter"
        )
    };
    let mut segments = path.split('.');
    let root = segments.next().unwrap_or_default();
    let name = root.strip_prefix("r#").unwrap_or(root);
    let found = if root == "self" {
        parameters.receiver.as_ref().ok_or("the lock key uses `self`, which this function does not have")?
    } else if let Some(parameter) = parameters.named.iter().find(|parameter| parameter.ident.unraw() == name)
    {
        &parameter.ident
    } else if identifier(root).is_some() {
        return Err(unknown(root, parameters));
    } else {
        return Err(no_path());
    };

    // Means what the parameter means, also in a `macro_rules!` macro, and is shown where the key is written.
    let mut value = found.clone();
    value.set_span(found.span().located_at(span));
    let mut value = quote_spanned!(span=> #value);
    for segment in segments {
        value = if let Some(index) = index(segment) {
            let index = Index { index, span };
            quote_spanned!(span=> #value.#index)
        } else {
            let mut field = identifier(segment).ok_or_else(no_path)?;
            field.set_span(span);
            quote_spanned!(span=> #value.#field)
        };
    }
    Ok((name.to_owned(), value))
}

/// `text` as an identifier, if it is one and nothing else.
fn identifier(text: &str) -> Option<Ident> {
    syn::parse_str::<Ident>(text).ok().filter(|ident| ident == text)
}

/// `text` as the index of a tuple's field.
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
    let field = if parameters.receiver.is_some() && suggestion.is_empty() {
        format!("; a field of `self` is written `<self.{root}>`")
    } else {
        String::new()
    };
    format!("`<{root}>` in the lock key is not a parameter of this function{suggestion}{known}{field}")
}

/// The type that the code under the lock evaluates to.
fn output(function: &Function) -> Result<Option<Type>> {
    let ty = match (&function.sig.output, &function.body) {
        (ReturnType::Default, _) => return Err(no_result(&function.sig, "")),
        (ReturnType::Type(_, ty), Body::Async(_)) => ungrouped(ty),
        (ReturnType::Type(_, ty), Body::Block(_)) => {
            let mut future = FutureOutput(None);
            future.visit_type(ty);
            match future.0 {
                Some(ty) => ungrouped(ty),
                None => return Ok(None),
            }
        }
    };
    match ty {
        Type::ImplTrait(_) => {
            Err(no_result(ty, "; `impl Trait` hides the error, write `Result<impl Trait, E>`"))
        }
        ty if is_surely_no_result(ty) => Err(no_result(ty, "")),
        ty => Ok(Some(ty.clone())),
    }
}

fn no_result(place: impl quote::ToTokens, hint: &str) -> Error {
    Error::new_spanned(
        place,
        format!(
            "a locked function returns `Result<_, E>` where `E: From<LockError>`, because taking the lock can \
             fail{hint}"
        ),
    )
}

/// Everything else may be an alias; rustc knows.
fn is_surely_no_result(ty: &Type) -> bool {
    const NAMES: [&str; 20] = [
        "bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128",
        "isize", "f32", "f64", "String", "Vec", "Option",
    ];
    match ty {
        Type::Path(path) if path.qself.is_none() && path.path.leading_colon.is_none() => {
            path.path.segments.len() == 1 && NAMES.iter().any(|name| path.path.segments[0].ident == name)
        }
        Type::Tuple(_)
        | Type::Never(_)
        | Type::Reference(_)
        | Type::Array(_)
        | Type::Ptr(_)
        | Type::FnPtr(_) => true,
        _ => false,
    }
}

/// The type without parentheses and the invisible brackets of a `macro_rules!` macro.
fn ungrouped(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            ty => return ty,
        }
    }
}

/// Finds `Output = …` in the type of a future.
struct FutureOutput<'a>(Option<&'a Type>);

impl<'a> Visit<'a> for FutureOutput<'a> {
    fn visit_assoc_type(&mut self, binding: &'a AssocType) {
        if binding.ident == "Output" && self.0.is_none() {
            self.0 = Some(&binding.ty);
        }
        visit::visit_assoc_type(self, binding);
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "so that the cases are `quote!(…)` and nothing more")]
mod tests;
