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
            or_else = Self::refused, on_lost = finish, reentrant = true, guard = held, label = config.name, crate = crate::facade
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
        let item =
            quote! { #[doc = "text"] pub async fn charge(id: u64) -> Result<(), Error> { work(id).await } };
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
