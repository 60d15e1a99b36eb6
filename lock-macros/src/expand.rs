//! The code that takes the place of the function.
//!
//! What can be a function lives in `lock_runtime::__private`; what is left here is what only code inside the user's
//! function can do: read the parameters, return from it, and wrap its body without boxing it.

use std::{collections::HashSet, time::Duration};

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, quote, quote_spanned};
use syn::{
    ExprReference, Result, ReturnType, Token, Type, TypeInfer,
    ext::IdentExt,
    spanned::Spanned,
    visit_mut::{self, VisitMut},
};

use crate::{
    args::{Args, OnContention, OnLost},
    check::{Key, KeyPart, Keys, Length, Plan, Wait, check},
    function::{Body, Function, Parameters, Shape, group, identifiers},
};

/// The whole attribute. After an error the function is still there, so that nothing else is reported because of it
/// and editors go on working.
pub(crate) fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    try_expand(args, item.clone()).unwrap_or_else(|error| {
        // What the key would have used is not to be called unused.
        let mut tokens = quote!(#[allow(unused)]);
        tokens.extend(item);
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
    let roots = plan.keys.roots();
    // A block moves its own parameters, as `#[async_trait]` does.
    let moved = match &function.body {
        Body::Async(body) => Some(moved(plan, &roots, &function.parameters(), body)),
        Body::Block(_) => None,
    };
    let place = match &function.sig.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => function.sig.ident.span(),
    };
    let (moved, used) = moved.unzip();
    let never_run = never_run(plan.output.ty.as_ref(), moved.as_ref(), place);
    let [wanted, acquire] = acquire(plan, &runtime);
    let answer = answer(plan, &runtime, place);

    let [lock, guard, ended, outcome, error] = ["lock", "guard", "ended", "outcome", "error"].map(local);
    let held = plan.guard.as_ref().map(|name| quote!(let #name = #guard.held();));
    let on_lost = match plan.on_lost {
        OnLost::Cancel => quote!(#runtime::OnLost::Cancel),
        OnLost::Finish => quote!(#runtime::OnLost::Finish),
    };
    let what_counts = if plan.output.is_plain {
        quote!(#runtime::Kept::kept(#ended))
    } else {
        // A method of `Outcome` itself comes first, where the output is a `Result`.
        quote! {{
            #[allow(unused_imports)]
            use #runtime::Kept as _;
            #ended.kept()
        }}
    };
    function.map(|body, braces| {
        let body = if used.is_some() { body } else { mention_rebound(body, &roots) };
        let body = group(Delimiter::Brace, quote!(#never_run #used #body), braces);
        // Where the user's block stands: of variables that a macro's block takes along, rustc tells no names.
        let body = quote_spanned!(braces=> async move #body);
        quote! {
            let #lock = #wanted;
            let #outcome = match #acquire(#lock).await {
                ::core::result::Result::Ok(#guard) => {
                    #held
                    let #ended = #runtime::run(#guard, #body, #on_lost).await;
                    #what_counts
                }
                ::core::result::Result::Err(#error) => ::core::result::Result::Err(#error),
            };
            #answer
        }
    })
}

/// The lock, which borrows nothing: what its arguments borrow is given back before anything is awaited. And the function
/// that acquires it.
fn acquire(plan: &Plan, runtime: &TokenStream) -> [TokenStream; 2] {
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
    match &plan.keys {
        Keys::One(one) => {
            let name = name(one, runtime);
            [quote!(#runtime::lock(#manager, #name, #options)), quote!(#runtime::acquire)]
        }
        Keys::Several(several) => {
            let names = several.iter().map(|key| name(key, runtime));
            [quote!(#runtime::all(#manager, [#(#names),*], #options)), quote!(#runtime::acquire_all)]
        }
    }
}

/// A block that puts a lock's name together.
pub(crate) fn name(Key { parts, span, .. }: &Key, runtime: &TokenStream) -> TokenStream {
    let key = local("key");
    let parts = parts.iter().map(|part| match part {
        KeyPart::Literal(text) => quote!(#key.literal(#text);),
        // Where the key is written, for the error about a value that has no text.
        KeyPart::Value { placeholder, value, shape } => {
            let add = match shape {
                Shape::Plain => quote_spanned!(*span=> value),
                Shape::Extractor => quote_spanned!(*span=> extractor),
                Shape::Generic => quote_spanned!(*span=> generic),
            };
            quote_spanned!(*span=> #key.#add(#placeholder, &#value);)
        }
    });
    quote! {{
        let mut #key = #runtime::KeyParts::new();
        #(#parts)*
        #key
    }}
}

/// What is not given stays as the manager has it.
fn options(plan: &Plan, runtime: &TokenStream) -> TokenStream {
    let length =
        |name, length: Option<&Length>| length.map(|length| set(name, length, |length| quote!(#length)));
    let auto_renew =
        plan.auto_renew.as_ref().map(|on| quote!(auto_renew = ::core::option::Option::Some(#on)));
    let reentrant = plan.reentrant.as_ref().map(|on| quote!(reentrant = #on));
    let wait = plan.wait.as_ref().map(|wait| match wait {
        Wait::AtMost(wait) => set("wait", wait, |wait| quote!(#runtime::Wait::AtMost(#wait))),
        Wait::Forever => quote!(wait = ::core::option::Option::Some(#runtime::Wait::Forever)),
    });

    let default = quote!(<#runtime::Options as ::core::default::Default>::default());
    let given: Vec<_> = [
        length("ttl", plan.ttl.as_ref()),
        wait,
        auto_renew,
        length("max_hold", plan.max_hold.as_ref()),
        length("hold_at_least", plan.hold_at_least.as_ref()),
        reentrant,
    ]
    .into_iter()
    .flatten()
    .collect();
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
        Length::Fixed { length: Duration::MAX, .. } => {
            let length = wrap(quote!(::core::time::Duration::MAX));
            quote!(#name = ::core::option::Option::Some(#length))
        }
        Length::Fixed { length, .. } => {
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

/// What the function returns.
///
/// rustc blames an error about types on the expression that it is about: what the user did not write stands where the
/// return type stands.
fn answer(plan: &Plan, runtime: &TokenStream, place: Span) -> TokenStream {
    let [outcome, error] =
        ["outcome", "error"].map(|name| Ident::new(name, Span::mixed_site().located_at(place)));
    let there = located(runtime.clone(), place);
    let answer = plan.or_else.as_ref().map_or_else(
        || quote_spanned!(place=> #there::or_error(#outcome)),
        |or_else| quote!(#runtime::or_else(#outcome, #or_else)),
    );
    if plan.on_contention == OnContention::Error {
        return answer;
    }
    let nothing = quote_spanned!(place=> #there::nothing());
    quote! {
        match #outcome {
            ::core::result::Result::Err(#error) if #runtime::is_contention(&#error) => #nothing,
            #outcome => #answer,
        }
    }
}

/// Statements that make the code under the lock own the parameters, so that they are dropped before the lock is
/// released; and statements that use those that are used outside of it.
///
/// `async move` takes along what it mentions, and of that only the fields that are used. So whatever is mentioned
/// somewhere is mentioned as a whole, and what is by its name not to be mentioned too. The first statements are not to be
/// run: a mention that is not run takes the parameter along and is no use of it, so that rustc still says of a parameter
/// that it is unused where the body mentions only another variable of its name.
///
/// What only `or_else` mentions is left alone: that runs outside of the block.
fn moved(
    plan: &Plan,
    roots: &HashSet<String>,
    parameters: &Parameters,
    body: &TokenStream,
) -> (TokenStream, TokenStream) {
    let mut outside = roots.clone();
    let options = [
        plan.manager.as_ref(),
        plan.ttl.as_ref().and_then(Length::code),
        plan.wait.as_ref().and_then(Wait::code),
        plan.max_hold.as_ref().and_then(Length::code),
        plan.hold_at_least.as_ref().and_then(Length::code),
    ];
    for code in options.into_iter().flatten() {
        identifiers(code.to_token_stream(), &mut outside);
    }
    let mut inside = HashSet::new();
    identifiers(body.clone(), &mut inside);

    let (mut moved, mut used) = (TokenStream::new(), TokenStream::new());
    // Dropped in the order of this list; parameters are dropped from the last to the first.
    for parameter in parameters.named.iter().rev() {
        let (ident, cfg) = (&parameter.ident, &parameter.cfg);
        let name = ident.unraw().to_string();
        let is_mentioned = inside.contains(&name);
        // Of what nothing runs rustc also says that it is taken along in vain, whatever is allowed of the parameter.
        let is_used = outside.contains(&name) || (is_mentioned && parameter.may_be_unused);
        if is_used || is_mentioned || name.starts_with('_') {
            moved.extend(quote!(#(#cfg)* let _ = &#ident;));
        }
        if is_used {
            used.extend(quote!(#(#cfg)* #[allow(clippy::used_underscore_binding)] let _ = &#ident;));
        }
    }
    if let Some(receiver) = parameters.receiver.as_ref().filter(|_| parameters.receiver_is_owned) {
        moved.extend(quote!(let _ = &#receiver;));
        used.extend(quote!(let _ = &#receiver;));
    }
    (moved, used)
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

/// Code that never runs and tells rustc what the block evaluates to, as a function's signature does, and what it takes
/// along.
///
/// Without it, `?` and `collect()` in the body would not know their types.
fn never_run(output: Option<&Type>, moved: Option<&TokenStream>, place: Span) -> TokenStream {
    let ends = output.map_or_else(
        || quote_spanned!(place=> loop {}),
        |output| {
            let ret = local("ret");
            let mut output = output.clone();
            EraseImplTrait.visit_type_mut(&mut output);
            quote_spanned! {place=>
                let #ret: #output = loop {};
                return #ret;
            }
        },
    );
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
            clippy::unreachable,
            clippy::used_underscore_binding
        )]
        if false {
            #ends
            #moved
        }
    }
}

/// The same tokens, shown at `place`; they mean what they meant.
fn located(tokens: TokenStream, place: Span) -> TokenStream {
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
                keys = ["<self.tenant>/<user.id>", "report"], ttl = "1m30s", wait = config.wait, manager = self.locks,
                auto_renew = true, max_hold = "forever", hold_at_least = "5s", on_contention = skip,
                or_else = Self::refused, on_lost = finish, reentrant = true, guard = held, crate = crate::facade
            },
            quote! {
                async fn charge(self: Arc<Self>, user: User, config: &Config, _permit: Permit, #[cfg(test)] (a, b): (u8, u8), unused: u8)
                    -> Result<Option<impl Display>, Error>
                {
                    #![allow(clippy::unused_async)]
                    work(a, held.fencing_tokens()).await
                }
            },
        );
    }

    #[test]
    fn a_function_that_cannot_fail() {
        assert_expands(
            "infallible",
            quote!(key = "report", or_else = |error| eprintln!("{error}")),
            quote! {
                async fn report() {
                    write().await;
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
            let (_, error) = expanded.split_once(&item.to_string()).expect("the function is there");
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
