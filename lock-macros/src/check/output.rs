//! The return type of the function, and whether it can express that the lock is not held.

use quote::ToTokens;
use syn::{
    AssocType, Error, Expr, Result, ReturnType, Type, parse_quote,
    visit::{self, Visit},
};

use crate::{
    args::OnContention,
    function::{Body, Function},
};

/// The output of the code under the lock.
pub(crate) struct Output {
    /// The type; `None` if it cannot be written in a `let`.
    pub(crate) ty: Option<Type>,
    /// Whether the type is certainly not a `Result`.
    pub(crate) is_plain: bool,
}

pub(super) fn check(
    function: &Function,
    or_else: Option<&Expr>,
    on_contention: OnContention,
) -> Result<Output> {
    let no_result = |place: &dyn ToTokens, hint: &str| {
        let fails = match on_contention {
            OnContention::Error => "acquiring the lock can fail",
            OnContention::Skip => "`skip` covers only a lock that is held; the store can fail as well",
        };
        Err(Error::new_spanned(
            place,
            format!(
                "{fails}: return `Result<_, E>` where `E: From<LockError>`, or write `or_else = …`, a function from \
                 `LockError` to the value to return{hint}"
            ),
        ))
    };
    let ty = match (&function.sig.output, &function.body) {
        (ReturnType::Default, _) if or_else.is_some() => {
            return Ok(Output { ty: Some(parse_quote!(())), is_plain: true });
        }
        (ReturnType::Default, _) => return no_result(&function.sig, ""),
        (ReturnType::Type(_, ty), Body::Async(_)) => ungrouped(ty),
        (ReturnType::Type(_, ty), Body::Block(_)) => {
            let mut future = FutureOutput(None);
            future.visit_type(ty);
            match future.0 {
                Some(ty) => ungrouped(ty),
                None => return Ok(Output { ty: None, is_plain: false }),
            }
        }
    };
    let is_plain = is_surely_no_result(ty);
    match ty {
        Type::ImplTrait(_) if or_else.is_none() => {
            no_result(ty, "; `impl Trait` hides the error, write `Result<impl Trait, E>`")
        }
        ty if is_plain && or_else.is_none() => no_result(ty, ""),
        // Only the body knows the type, or it is `!`, which cannot be written in a `let`.
        Type::ImplTrait(_) | Type::Never(_) => Ok(Output { ty: None, is_plain }),
        ty => Ok(Output { ty: Some(ty.clone()), is_plain }),
    }
}

/// Whether `ty` is certainly not a `Result`. Any type not listed here may be an alias of one; only rustc knows.
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

/// Strips parentheses and the invisible delimiters of a `macro_rules!` macro from the type.
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
