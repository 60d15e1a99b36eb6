//! The code that takes the place of the function.
//!
//! What can be a function lives in `lock_runtime::__private`; what is left here is what only code inside the user's
//! function can do: read the parameters, return from it, and wrap its body without boxing it.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, quote, quote_spanned};
use syn::{
    ExprReference, Result, ReturnType, Token, Type, TypeInfer,
    ext::IdentExt,
    spanned::Spanned,
    visit_mut::{self, VisitMut},
};

use crate::{
    args::Args,
    check::{Key, KeyPart, Length, Plan, Wait, check},
    function::{Body, Function, Parameters, group, identifiers},
};

/// The whole attribute. After an error the function is still there, so that nothing else is reported because of it
/// and editors go on working.
pub(crate) fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    try_expand(args, item.clone()).unwrap_or_else(|error| {
        let mut tokens = item;
        tokens.extend(error.into_compile_error());
        tokens
    })
}

fn try_expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (args, function) = match (Args::parse(args), Function::parse(item)) {
        (Ok(args), Ok(function)) => (args, function),
        (Err(mut error), Err(other)) => {
            error.combine(other);
            return Err(error);
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let plan = check(args, &function)?;
    Ok(expand(&plan, function))
}

fn expand(plan: &Plan, function: Function) -> TokenStream {
    let runtime = {
        let krate = &plan.krate;
        quote!(#krate::__private)
    };
    let acquire = acquire(plan, &runtime);
    // A block moves its own parameters, as `#[async_trait]` does.
    let moved = match &function.body {
        Body::Async(body) => Some(moved(plan, &function.parameters(), body)),
        Body::Block(_) => None,
    };
    let place = match &function.sig.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => function.sig.ident.span(),
    };
    let edge = plan.output.as_ref().map(|output| inference_edge(output, place));

    let guard = local("guard");
    // Shown at the return type, when that is no `Result`.
    let [out, error] = ["out", "error"].map(|name| Ident::new(name, Span::mixed_site().located_at(place)));
    let fail = fail(&error, place);
    function.map(|body, braces| {
        let body = if moved.is_some() { body } else { mention_rebound(body, &plan.key.roots) };
        let body = group(Delimiter::Brace, quote!(#moved #edge #body), braces);
        quote! {
            let #guard = #acquire;
            let #guard = match #guard.await {
                ::core::result::Result::Ok(#guard) => #guard,
                ::core::result::Result::Err(#error) => #fail,
            };
            match #runtime::run(#guard, async move #body, #runtime::OnLost::Cancel).await {
                ::core::result::Result::Ok(#out) => #out,
                ::core::result::Result::Err(#error) => #fail,
            }
        }
    })
}

/// A block that builds the key and returns the future of the guard, which borrows nothing: what the block borrowed is
/// given back before anything is awaited.
fn acquire(plan: &Plan, runtime: &TokenStream) -> TokenStream {
    let key = local("key");
    let Key { parts, span, .. } = &plan.key;
    let parts = parts.iter().map(|part| match part {
        KeyPart::Literal(text) => quote!(#key.literal(#text);),
        // Where the key is written, for the error about a value that has no text.
        KeyPart::Value { placeholder, value } => quote_spanned!(*span=> #key.value(#placeholder, &#value);),
    });

    let manager = plan.manager.as_ref().map_or_else(
        || quote!(#runtime::default_manager()),
        |manager| {
            // As an expression, which puts parentheses where they are needed and only there.
            let reference = ExprReference {
                attrs: Vec::new(),
                and_token: Token![&](manager.span()),
                mutability: None,
                expr: Box::new(manager.clone()),
            };
            quote!(#runtime::manager(#reference))
        },
    );
    let options = options(plan, runtime);

    quote! {{
        let mut #key = #runtime::KeyParts::new();
        #(#parts)*
        #runtime::acquire(#manager, #key, #options)
    }}
}

/// What is not given stays as the manager has it.
fn options(plan: &Plan, runtime: &TokenStream) -> TokenStream {
    let ttl = plan.ttl.as_ref().map(|ttl| set("ttl", ttl, |ttl| quote!(#ttl)));
    let wait = plan.wait.as_ref().map(|wait| match wait {
        Wait::AtMost(wait) => set("wait", wait, |wait| quote!(#runtime::Wait::AtMost(#wait))),
        Wait::Forever => quote!(wait = ::core::option::Option::Some(#runtime::Wait::Forever)),
    });
    let auto_renew =
        plan.auto_renew.as_ref().map(|on| quote!(auto_renew = ::core::option::Option::Some(#on)));

    let default = quote!(<#runtime::Options as ::core::default::Default>::default());
    let given: Vec<_> = [ttl, wait, auto_renew].into_iter().flatten().collect();
    if given.is_empty() {
        return default;
    }
    let options = local("options");
    quote! {{
        let mut #options = #default;
        #(#options.#given;)*
        #options
    }}
}

/// The right side of an assignment to the option `name`.
fn set(name: &str, length: &Length, wrap: impl FnOnce(TokenStream) -> TokenStream) -> TokenStream {
    let name = local(name);
    match length {
        Length::Fixed(length) => {
            let millis = u64::try_from(length.as_millis()).expect("parsed as milliseconds");
            let length = wrap(quote!(::core::time::Duration::from_millis(#millis)));
            quote!(#name = ::core::option::Option::Some(#length))
        }
        Length::Code(code) => {
            // A variable of its own, so that an expression of another type is told what it should be.
            let length = wrap(name.to_token_stream());
            quote! {
                #name = {
                    let #name: ::core::time::Duration = #code;
                    ::core::option::Option::Some(#length)
                }
            }
        }
    }
}

/// Statements that make the code under the lock own the parameters, so that they are dropped before the lock is
/// released.
///
/// `async move` takes along what it mentions, and of that only the fields that are used. So whatever is mentioned
/// somewhere is mentioned as a whole, and what is by its name not to be mentioned too. Others are left alone: rustc is
/// to say that they are unused.
fn moved(plan: &Plan, parameters: &Parameters, body: &TokenStream) -> TokenStream {
    let mut used: HashSet<String> = plan.key.roots.clone();
    identifiers(body.clone(), &mut used);
    let options = [
        plan.manager.as_ref(),
        plan.ttl.as_ref().and_then(Length::code),
        plan.wait.as_ref().and_then(Wait::code),
    ];
    for code in options.into_iter().flatten() {
        identifiers(code.to_token_stream(), &mut used);
    }

    let mut tokens = TokenStream::new();
    // Dropped in the order of this list; parameters are dropped from the last to the first.
    for parameter in parameters.named.iter().rev() {
        let (ident, cfg) = (&parameter.ident, &parameter.cfg);
        let name = ident.unraw().to_string();
        if used.contains(&name) || name.starts_with('_') {
            tokens.extend(quote!(#(#cfg)* #[allow(clippy::used_underscore_binding)] let _ = &#ident;));
        }
    }
    if let Some(receiver) = parameters.receiver.as_ref().filter(|_| parameters.receiver_is_owned) {
        tokens.extend(quote!(let _ = &#receiver;));
    }
    tokens
}

/// Mentions what is in the key where `#[async_trait]` moves it into the block, which is by `let id = id;`: that `id`
/// is not the one the key uses, and rustc is not to say that it is unused.
fn mention_rebound(body: TokenStream, roots: &HashSet<String>) -> TokenStream {
    let trees: Vec<TokenTree> = body.into_iter().collect();
    let mut tokens = TokenStream::new();
    for (i, tree) in trees.iter().enumerate() {
        tokens.append(tree.clone());
        if let [
            ..,
            TokenTree::Ident(to),
            TokenTree::Punct(equals),
            TokenTree::Ident(from),
            TokenTree::Punct(end),
        ] = &trees[..=i]
            && to == from
            && equals.as_char() == '='
            && end.as_char() == ';'
            && roots.contains(&from.unraw().to_string())
        {
            tokens.extend(quote!(let _ = &#from;));
        }
    }
    tokens
}

/// Code that never runs and tells rustc what the block evaluates to, as a function's signature does.
///
/// Without it, `?` and `collect()` in the body would not know their types.
fn inference_edge(output: &Type, place: Span) -> TokenStream {
    let ret = local("ret");
    let mut output = output.clone();
    EraseImplTrait.visit_type_mut(&mut output);
    quote_spanned! {place=>
        #[allow(
            unknown_lints,
            unreachable_code,
            clippy::diverging_sub_expression,
            clippy::empty_loop,
            clippy::let_unit_value,
            clippy::let_with_type_underscore,
            clippy::needless_return,
            clippy::type_complexity,
            clippy::unreachable
        )]
        if false {
            let #ret: #output = loop {};
            return #ret;
        }
    }
}

/// Returns the converted error from the user's function.
fn fail(error: &Ident, place: Span) -> TokenStream {
    // rustc blames a missing `From<LockError>` on the argument and a return type that is no `Result` on the returned
    // expression. With only these tokens at the return type, both errors are shown there; the parentheses around the
    // path keep the call itself at the attribute.
    let convert = quote_spanned!(place=> ::core::convert::From::from);
    let converted = quote!((#convert)(#error));
    quote_spanned!(place=> return ::core::result::Result::Err(#converted))
}

/// A variable that the user's code can neither see nor shadow.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// `impl Trait` cannot be written in a `let`; `_` can.
struct EraseImplTrait;

impl VisitMut for EraseImplTrait {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if let Type::ImplTrait(erased) = ty {
            *ty = Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token: Token![_](erased.span()) });
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with `tests/expand/<name>.rs`, and writes it when `UPDATE_SNAPSHOTS` is set.
    fn assert_expands(name: &str, args: TokenStream, item: TokenStream) {
        let file = syn::parse2(distributed_lock(args, item)).expect("expands to items");
        let expanded = prettyplease::unparse(&file);
        let path = format!("{}/tests/expand/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &expanded).expect("writable");
        }
        let expected = std::fs::read_to_string(&path).expect(&path);
        assert!(expanded == expected, "{path} differs; the expansion is now:\n{expanded}");
    }

    #[test]
    fn a_function() {
        assert_expands(
            "function",
            quote!(key = "user:<id>"),
            quote! {
                /// Documentation.
                pub async fn charge(id: u64) -> Result<(), Error> {
                    work(id).await
                }
            },
        );
    }

    #[test]
    fn a_method_with_every_option() {
        assert_expands(
            "method",
            quote! {
                key = "<self.tenant>/<user.id>", ttl = "1m30s", wait = config.wait, manager = self.locks,
                auto_renew = false, crate = crate::facade
            },
            quote! {
                async fn charge(self: Arc<Self>, user: User, config: &Config, _permit: Permit, #[cfg(test)] (a, b): (u8, u8), unused: u8)
                    -> Result<impl Display, Error>
                {
                    #![allow(clippy::unused_async)]
                    work(a).await
                }
            },
        );
    }

    #[test]
    fn a_boxed_future() {
        assert_expands(
            "boxed",
            quote!(key = "user:<id>", wait = "forever"),
            quote! {
                fn charge<'a>(&'a self, id: u64) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
                    Box::pin(async move {
                        let __self = self;
                        let id = id;
                        __self.work(id).await
                    })
                }
            },
        );
    }

    #[test]
    fn the_function_is_still_there_after_an_error() {
        for args in [quote!(), quote!(key = "<other>"), quote!(key = "a", lease = 1)] {
            let item = quote! { #[doc = "text"] pub async fn charge(id: u64) -> Result<(), Error> { work(id).await } };
            let expanded = distributed_lock(args, item.clone()).to_string();
            let error = expanded.strip_prefix(&item.to_string()).expect("begins with the function");
            assert!(error.contains("compile_error !"), "{error}");
        }
    }

    #[test]
    fn errors_of_options_and_function_are_told_at_once() {
        let expanded = distributed_lock(
            quote!(lease = 1),
            quote!(
                fn charge() {}
            ),
        )
        .to_string();
        assert_eq!(expanded.matches("compile_error !").count(), 2, "{expanded}");
    }
}
