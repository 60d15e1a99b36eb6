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
mod tests {
    use quote::quote;

    use super::*;

    fn checked(args: TokenStream, item: TokenStream) -> Result<Plan> {
        let function = Function::parse(item).expect("a function");
        check(Args::parse(args).expect("options"), &function)
    }

    fn refusals(args: TokenStream, item: TokenStream) -> Vec<String> {
        let error = checked(args, item).err().expect("refused");
        error.into_iter().map(|error| error.to_string()).collect()
    }

    /// What is said about the only thing that is wrong.
    fn refusal(args: TokenStream, item: TokenStream) -> String {
        let mut all = refusals(args, item);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// The expressions in the key `template` of a function with these parameters.
    fn values(template: &str, parameters: TokenStream) -> Vec<String> {
        let plan = checked(quote!(key = #template), quote!(async fn f(#parameters) -> R {})).expect(template);
        let value = |part| match part {
            KeyPart::Value { value, .. } => Some(value.to_string()),
            KeyPart::Literal(_) => None,
        };
        plan.key.parts.into_iter().filter_map(value).collect()
    }

    fn key_refusal(template: &str, parameters: TokenStream) -> String {
        refusal(quote!(key = #template), quote!(async fn f(#parameters) -> R {}))
    }

    fn output_refusal(output: TokenStream) -> String {
        refusal(quote!(key = "a"), quote!(async fn f() #output {}))
    }

    #[test]
    fn placeholders_are_parameters_and_their_fields() {
        assert_eq!(values("<id>", quote!(id: u64)), ["id"]);
        assert_eq!(
            values("<user.id>:<user.place.1>/<pair.0>", quote!(user: &User, pair: (u8, u8))),
            ["user . id", "user . place . 1", "pair . 0"]
        );
        assert_eq!(values("<self.tenant>:<self.a.b>", quote!(&mut self)), ["self . tenant", "self . a . b"]);
        assert_eq!(
            values(
                "<a>:<x>:<rest>:<whole>",
                quote!((mut a, _): (u8, u8), User { id: x, .. }: User, whole @ [_, rest @ ..]: [u8; 3])
            ),
            ["a", "x", "rest", "whole"]
        );
        for template in ["<type>", "<r#type>"] {
            assert_eq!(values(template, quote!(r#type: u8)), ["r#type"]);
        }
        assert_eq!(values("<größe>", quote!(größe: u8)), ["größe"]);
        assert!(values("constant", quote!(id: u8)).is_empty());
    }

    #[test]
    fn unknown_parameters_are_named_with_the_known_ones() {
        let unknown = |name: &str| format!("`<{name}>` in the lock key is not a parameter of this function");
        assert_eq!(key_refusal("<idd>", quote!(id: u8, x: u8)), unknown("idd") + "; did you mean `id`?");
        assert_eq!(
            key_refusal("<user>", quote!(id: u8, (x, _): P)),
            unknown("user") + " (its parameters: `id`, `x`)"
        );
        assert_eq!(key_refusal("<id>", quote!()), unknown("id") + ", which has none");
        assert_eq!(key_refusal("<id>", quote!(_: u8)), unknown("id") + ", which has none");
        assert_eq!(
            key_refusal("<tenant>", quote!(&self, id: u8)),
            unknown("tenant") + " (its parameters: `id`); a field of `self` is written `<self.tenant>`"
        );
        assert_eq!(
            key_refusal("<self.id>", quote!(id: u8)),
            "the lock key uses `self`, which this function does not have"
        );
        let hidden = quote!(
            fn f(__arg0: (u8, u8)) -> BoxFuture<R> {
                Box::pin(async move { Ok(()) })
            }
        );
        assert_eq!(
            refusal(quote!(key = "<a>"), hidden),
            unknown("a")
                + "; the names inside a pattern cannot be used under `#[async_trait]`, give that parameter a name of \
                   its own"
        );
    }

    #[test]
    fn code_in_a_key_is_refused() {
        for path in [
            "id()", "id.len()", "ids[0]", " id", "id ", "Self::ID", "a.b()", "1", "a..b", "a.01", "a.+1",
            "id?", "&id", "x/**/", "a.await", "type",
        ] {
            assert_eq!(
                key_refusal(&format!("<{path}>"), quote!(id: u8, a: u8, x: u8)),
                format!(
                    "`<{path}>` in the lock key is not a parameter or a field of one, like `<id>` or `<user.id>`: code \
                     does not belong into the key, pass its result as a parameter"
                )
            );
        }
        assert_eq!(
            key_refusal("<id:u64>", quote!(id: u64)),
            "`<id:u64>` has a type, which only a layer's key needs: write `<id>`, the parameter has its own"
        );
    }

    #[test]
    fn errors_of_the_template_are_passed_on() {
        assert_eq!(
            key_refusal("{id}", quote!(id: u8)),
            "`{id}` in the lock key is not a placeholder: write `<id>`"
        );
    }

    #[test]
    fn ttl_is_a_bounded_length() {
        let item = || {
            quote!(
                async fn f() -> R {}
            )
        };
        for (text, millis) in [("100ms", 100), ("30s", 30_000), ("24h", 86_400_000)] {
            let plan = checked(quote!(key = "a", ttl = #text), item()).expect(text);
            assert!(
                matches!(plan.ttl, Some(Length::Fixed(ttl)) if ttl == Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in ["0s", "0ms", "99ms", "24h1ms", "25h"] {
            assert_eq!(
                refusal(quote!(key = "a", ttl = #text), item()),
                format!("`ttl` is at least \"100ms\" and at most \"24h\", not {text:?}")
            );
        }
        assert_eq!(
            refusal(quote!(key = "a", ttl = "30"), item()),
            r#""30" has no unit: write "30s" or "30ms""#
        );
        assert_eq!(
            refusal(quote!(key = "a", ttl = "forever"), item()),
            "a lease cannot last forever, or a crash would keep the lock: leave `ttl` out; the lease is renewed while \
             the body runs"
        );
        let plan = checked(quote!(key = "a", ttl = Duration::ZERO), item()).expect("code");
        assert!(matches!(plan.ttl, Some(Length::Code(_))));
    }

    #[test]
    fn wait_is_any_length_or_forever() {
        let wait = |text: &str| {
            checked(
                quote!(key = "a", wait = #text),
                quote!(
                    async fn f() -> R {}
                ),
            )
        };
        for (text, millis) in [("0s", 0), ("5s", 5_000), ("48h", 172_800_000)] {
            let plan = wait(text).expect(text);
            let expected = Duration::from_millis(millis);
            assert!(
                matches!(plan.wait, Some(Wait::AtMost(Length::Fixed(wait))) if wait == expected),
                "{text}"
            );
        }
        assert!(matches!(wait("forever").expect("valid").wait, Some(Wait::Forever)));
        for text in ["soon", "Forever", "-1s", ""] {
            let error = wait(text).err().expect("refused").to_string();
            assert!(
                error.starts_with(&format!("{text:?} is not a duration"))
                    && error.ends_with("; or \"forever\"")
            );
        }
    }

    #[test]
    fn what_is_surely_no_result_is_refused() {
        let message = "a locked function returns `Result<_, E>` where `E: From<LockError>`, because taking the lock can \
                       fail";
        for output in [
            quote!(),
            quote!(-> ()),
            quote!(-> (u8, Result<(), E>)),
            quote!(-> !),
            quote!(-> u64),
            quote!(-> (u64)),
            quote!(-> &'static str),
            quote!(-> [u8; 4]),
            quote!(-> fn() -> Result<(), E>),
            quote!(-> *const u8),
            quote!(-> String),
            quote!(-> Vec<Result<(), E>>),
            quote!(-> Option<u8>),
        ] {
            assert_eq!(output_refusal(output), message);
        }
        assert_eq!(
            output_refusal(quote!(-> impl IntoResponse)),
            format!("{message}; `impl Trait` hides the error, write `Result<impl Trait, E>`")
        );
        for output in
            [quote!(Result<(), E>), quote!(io::Result<u8>), quote!(Answer), quote!(Self::Option), quote!(T)]
        {
            checked(quote!(key = "a"), quote!(async fn f() -> #output {})).expect("may be a result");
        }
    }

    #[test]
    fn the_output_of_a_boxed_future_is_checked_too() {
        let output = |ty: TokenStream| {
            checked(quote!(key = "a"), quote!(fn f<'a>() -> #ty { Box::pin(async move { x }) }))
                .map(|plan| plan.output)
        };
        let found = |ty| output(ty).expect("may be a result").map(|ty| quote!(#ty).to_string());
        let expected = quote!(Result<u8, E>).to_string();
        for ty in [
            quote!(Pin<Box<dyn Future<Output = Result<u8, E>> + Send + 'a>>),
            quote!(impl ::core::future::Future<Output = Result<u8, E>> + Send),
        ] {
            assert_eq!(found(ty), Some(expected.clone()));
        }
        assert_eq!(found(quote!(BoxFuture<'a, Result<u8, E>>)), None);
        assert!(output(quote!(Pin<Box<dyn Future<Output = u8> + 'a>>)).is_err());
    }

    #[test]
    fn all_errors_are_told_at_once() {
        let all = refusals(
            quote!(key = "{id}", ttl = "1", wait = "2"),
            quote!(
                async fn f(id: u8) -> u64 {}
            ),
        );
        assert_eq!(all.len(), 4, "{all:?}");
    }
}
