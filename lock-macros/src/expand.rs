//! The code that takes the place of the function.
//!
//! Everything that can be a function lives in `lock_runtime::__private`. The rest has to be code inside the user's
//! function: it reads the parameters, returns from the function, and wraps its body without boxing it.

mod body;
pub(crate) mod lock;

use proc_macro2::{Delimiter, Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Result, ReturnType, Type, spanned::Spanned};

use crate::{
    args::{Args, OnContention, OnLost},
    check::{Plan, check},
    function::{Body, Function},
    tokens::{group, local, located},
};
use body::{mention_rebound, moved, never_run};
use lock::acquire;

/// Expands the attribute.
///
/// After an error the function is kept, so that no further errors follow and editors go on working.
pub(crate) fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    try_expand(args, item.clone()).unwrap_or_else(|error| {
        // Without the key, a parameter that only the key uses would be reported as unused.
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
    // A `Body::Block` moves its parameters itself, as `#[async_trait]` writes it.
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
    let [wanted, acquire] = acquire(plan, &function.sig.ident, &runtime);
    let answer = returned(&function.sig.output, answer(plan, &runtime, place));

    let [lock, guard, ended, outcome, error] = ["lock", "guard", "ended", "outcome", "error"].map(local);
    let held = plan.guard.as_ref().map(|name| quote!(let #name = #guard.held();));
    let on_lost = match plan.on_lost {
        OnLost::Cancel => quote!(#runtime::OnLost::Cancel),
        OnLost::Finish => quote!(#runtime::OnLost::Finish),
    };
    let what_counts = if plan.output.is_plain {
        quote!(#runtime::Kept::kept(#ended))
    } else {
        // If the output is a `Result`, the method of `Outcome` itself takes precedence.
        quote! {{
            #[allow(unused_imports)]
            use #runtime::Kept as _;
            #ended.kept()
        }}
    };
    function.map(|body, braces| {
        let body = if used.is_some() { body } else { mention_rebound(body, &roots) };
        let body = group(Delimiter::Brace, quote!(#never_run #used #body), braces);
        // Located at the user's braces: rustc's errors do not name the variables that a macro's block captures.
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

/// Returns the expression as a statement. As the last expression of the function it would raise
/// `clippy::implicit_return`, which no attribute inside of the function can allow.
fn returned(output: &ReturnType, answer: TokenStream) -> TokenStream {
    if matches!(output, ReturnType::Type(_, ty) if matches!(**ty, Type::Never(_))) {
        return answer;
    }
    quote! {
        #[allow(unknown_lints, clippy::needless_return)]
        return #answer;
    }
}

/// Creates the expression that the function returns.
///
/// rustc reports a type error at the expression concerned, so generated expressions are located at the return type.
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

#[cfg(test)]
mod tests;
