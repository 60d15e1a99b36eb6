//! The body under the lock: the parameters that it takes along, and what rustc has to know of it.

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

/// Statements that make the code under the lock own the parameters, so that they are dropped before the lock is
/// released; and statements that use those that are used outside of it.
///
/// `async move` takes along what it mentions, and of that only the fields that are used. So whatever is mentioned
/// somewhere is mentioned as a whole, and what is by its name not to be mentioned too. The first statements are not to be
/// run: a mention that is not run takes the parameter along and is no use of it, so that rustc still says of a parameter
/// that it is unused where the body mentions only another variable of its name.
///
/// What only `or_else` mentions is left alone: that runs outside of the block.
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

/// Code that never runs and tells rustc what the block evaluates to, as a function's signature does, and what it takes
/// along.
///
/// Without it, `?` and `collect()` in the body would not know their types.
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
