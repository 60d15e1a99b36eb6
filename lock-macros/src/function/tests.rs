use quote::quote;

use super::*;

fn refusal(item: TokenStream) -> String {
    Function::parse(item).err().expect("refused").to_string()
}

/// `item` with the code under the lock put into parentheses.
fn marked(item: TokenStream) -> String {
    let function = Function::parse(item).expect("valid");
    function.map(|code, _| quote!((#code))).to_string()
}

#[test]
fn everything_but_the_code_under_the_lock_comes_back() {
    let code = quote!(let x = 1; x. ; Ok(()));
    for head in [
        quote!(async fn f() -> R),
        quote!(#[doc = "text"] #[must_use] pub(crate) async unsafe fn f<'a, T: X<Y = [u8; { 1 + 1 }]>>(&'a mut self, (a, mut b): (T, u8), #[cfg(no)] c: impl Fn(u8) -> u8) -> Result<&'a T, E> where T: 'a),
    ] {
        let inner = quote!(#![allow(unused)]);
        let item = quote!(#head { #inner #code });
        assert_eq!(marked(item), quote!(#head { #inner (#code) }).to_string());
    }
}

#[test]
fn the_block_of_a_boxed_future_is_found() {
    for (start, end) in [
        (quote!(async move), quote!()),
        (quote!(async), quote!()),
        (quote!(Box::pin), quote!()),
        (quote!(::std::boxed::Box::pin), quote!(,)),
    ] {
        let block = |code: TokenStream| {
            if end.is_empty() && start.to_string().starts_with("async") {
                quote!(fn f() -> F { #start { #code } })
            } else {
                quote!(fn f() -> F { #start(#[allow(unused)] async move { #code } #end) })
            }
        };
        assert_eq!(marked(block(quote!(a; b))), block(quote!((a; b))).to_string());
    }
}

#[test]
fn code_that_would_run_without_the_lock_is_refused() {
    for start in [quote!(let x = 1;), quote!(run();)] {
        for block in [quote!(async move { x }), quote!(Box::pin(async move { x }))] {
            let told = refusal(quote!(fn f() -> F { #start #block }));
            assert!(told.starts_with("code before the `async` block would run without the lock"), "{told}");
        }
    }
}

#[test]
fn a_function_that_is_not_async_is_refused() {
    for body in [
        quote!(),
        quote!(1),
        quote!(async move { 1 };),
        quote!(g(async move { 1 })),
        quote!(Box::pin(g(async move { 1 }))),
        quote!(Box::pin(Box::pin(async move { 1 }))),
        quote!(Box::new(async move { 1 })),
    ] {
        assert_eq!(
            refusal(quote!(fn f() -> F { #body })),
            "`#[distributed_lock]` needs an `async fn`, or a body that is a single `async` block, like `Box::pin(async move { … })`"
        );
    }
    let main = quote!(
        fn main() -> R {
            let body = async { Ok(()) };
            return runtime().block_on(body);
        }
    );
    assert_eq!(
        refusal(main),
        "`#[distributed_lock]` needs an `async fn`: write it above `#[tokio::main]`, `#[tokio::test]` and the \
         like, which make the function blocking"
    );
}

#[test]
fn what_is_no_function_with_a_body_is_refused() {
    assert_eq!(
        refusal(quote!(
            async fn f(&self) -> R;
        )),
        "`#[distributed_lock]` needs a function body: write it on the method of the `impl`, not in the trait"
    );
    for item in [
        quote!(
            struct S {
                a: u8,
            }
        ),
        quote!(impl S { async fn f() {} }),
        quote!(
            mod m {}
        ),
    ] {
        assert_eq!(
            refusal(item),
            "`#[distributed_lock]` is written on an `async fn`; in an `impl` block on each method that needs it"
        );
    }
}
