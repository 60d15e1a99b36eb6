//! The lock and its options, built before anything is awaited.

use std::time::Duration;

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprReference, Token, ext::IdentExt, spanned::Spanned};

use crate::{
    check::{Key, KeyPart, Keys, Length, Plan, Wait},
    parameters::Shape,
    tokens::local,
};

/// Returns the expression of the lock, and the function that acquires it.
///
/// The lock borrows nothing: the borrows of its arguments end before anything is awaited.
pub(super) fn acquire(plan: &Plan, function: &Ident, runtime: &TokenStream) -> [TokenStream; 2] {
    // For errors.
    let function = format!("::{}", function.unraw());
    let function = quote!(::core::concat!(::core::module_path!(), #function));
    let manager = plan.manager.as_ref().map_or_else(
        || quote!(#runtime::default_manager()),
        |manager| {
            let reference = reference(manager);
            quote!(#runtime::manager(#reference))
        },
    );
    let options = options(plan, runtime);
    match &plan.keys {
        Keys::One(one) => {
            let name = name(one, runtime);
            [quote!(#runtime::lock(#function, #manager, #name, #options)), quote!(#runtime::acquire)]
        }
        Keys::Several(several) => {
            let names = several.iter().map(|key| name(key, runtime));
            [
                quote!(#runtime::all(#function, #manager, [#(#names),*], #options)),
                quote!(#runtime::acquire_all),
            ]
        }
    }
}

/// Creates `&code`. As an expression, it gets parentheses only where they are needed.
fn reference(code: &Expr) -> ExprReference {
    ExprReference {
        attrs: Vec::new(),
        and_token: Token![&](code.span()),
        mutability: None,
        expr: Box::new(code.clone()),
    }
}

/// Creates a block that builds a lock's name.
pub(crate) fn name(Key { template, parts, span, .. }: &Key, runtime: &TokenStream) -> TokenStream {
    let key = local("key");
    let parts = parts.iter().map(|part| match part {
        KeyPart::Literal(text) => quote!(#key.literal(#text);),
        // Located at the key, for the error about a value without `Display`.
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
        let mut #key = #runtime::KeyParts::of(#template);
        #(#parts)*
        #key
    }}
}

/// Creates the options that are given; the manager's defaults fill in the others.
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

    let label = plan.label.as_ref().map(|label| {
        let label = reference(label);
        quote!(label = ::core::option::Option::Some(#runtime::label(#label)))
    });

    let default = quote!(<#runtime::Options as ::core::default::Default>::default());
    let given: Vec<_> = [
        length("ttl", plan.ttl.as_ref()),
        wait,
        auto_renew,
        length("max_hold", plan.max_hold.as_ref()),
        length("hold_at_least", plan.hold_at_least.as_ref()),
        length("once_per", plan.once_per.as_ref()),
        reentrant,
        label,
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

/// Creates `name = Some(…)`, the assignment to an option.
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
            // A variable with a type, so that rustc names the expected type if the expression has another one.
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
