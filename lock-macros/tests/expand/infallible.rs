async fn report() {
    let lock = ::lock_runtime::__private::lock(
        ::core::concat!(::core::module_path!(), "::report"),
        ::lock_runtime::__private::default_manager(),
        {
            let mut key = ::lock_runtime::__private::KeyParts::of("report");
            key.literal("report");
            key
        },
        <::lock_runtime::__private::Options as ::core::default::Default>::default(),
    );
    let outcome = match ::lock_runtime::__private::acquire(lock).await {
        ::core::result::Result::Ok(guard) => {
            let ended = ::lock_runtime::__private::run(
                    guard,
                    async move {
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
                            let ret: () = loop {};
                            return ret;
                        }
                        write().await;
                    },
                    ::lock_runtime::__private::OnLost::Cancel,
                )
                .await;
            ::lock_runtime::__private::Kept::kept(ended)
        }
        ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
    };
    #[allow(unknown_lints, clippy::needless_return)]
    return ::lock_runtime::__private::or_else(outcome, |error| eprintln!("{error}"));
}
