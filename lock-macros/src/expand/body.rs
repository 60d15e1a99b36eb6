//! The body under the lock: the parameters that it captures, and the type hints that rustc needs.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, quote, quote_spanned};
use syn::{
    Token, Type, TypeInfer,
    ext::IdentExt,
    spanned::Spanned,
    visit_mut::{self, VisitMut},
};

use crate::{
    check::{Length, Plan, Wait},
    parameters::Parameters,
    tokens::{identifiers, local},
};

/// Returns statements that make the code under the lock own the parameters, so that they are dropped before the lock is
/// released; and statements that use those parameters that are used outside of it.
///
/// `async move` captures only the variables that it mentions, and of those only the fields that are used. So every
/// parameter that is mentioned somewhere is mentioned as a whole, and so is each whose name begins with `_`. The first
/// statements must not run: a mention in dead code captures the parameter but does not use it, so rustc still reports a
/// parameter as unused if the body mentions only another variable of its name.
///
/// A parameter that only `or_else` mentions is left alone, because `or_else` runs outside of the block.
pub(super) fn moved(
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
        plan.once_per.as_ref().and_then(Length::code),
        plan.label.as_ref(),
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
        // rustc also warns of a captured variable that no running code uses, even if the parameter allows that.
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

/// Adds a use of each parameter in the key after the `let id = id;` by which `#[async_trait]` moves it into the block.
///
/// The key uses the outer `id`, so rustc would report the inner one as unused.
pub(super) fn mention_rebound(body: TokenStream, roots: &HashSet<String>) -> TokenStream {
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

/// Creates code that never runs. It gives rustc the output type of the block, as a function's signature does, and the
/// variables to capture.
///
/// Without it, rustc could not infer the types of `?` and `collect()` in the body.
pub(super) fn never_run(output: Option<&Type>, moved: Option<&TokenStream>, place: Span) -> TokenStream {
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
