fn charge<'a>(
    &'a self,
    id: u64,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
    Box::pin(async move {
        let lock = ::lock_runtime::__private::lock(
            ::core::concat!(::core::module_path!(), "::charge"),
            ::lock_runtime::__private::default_manager(),
            {
                let mut key = ::lock_runtime::__private::KeyParts::of("user:<id>");
                key.literal("user:");
                key.value("id", &id);
                key
            },
            {
                let mut options = <::lock_runtime::__private::Options as ::core::default::Default>::default();
                options.wait = ::core::option::Option::Some(
                    ::lock_runtime::__private::Wait::Forever,
                );
                options
            },
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
                                let ret: Result<(), Error> = loop {};
                                return ret;
                            }
                            let __self = self;
                            let id = id;
                            let _ = &id;
                            __self.work(id).await
                        },
                        ::lock_runtime::__private::OnLost::Cancel,
                    )
                    .await;
                {
                    #[allow(unused_imports)]
                    use ::lock_runtime::__private::Kept as _;
                    ended.kept()
                }
            }
            ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
        };
        #[allow(unknown_lints, clippy::needless_return)]
        return ::lock_runtime::__private::or_error(outcome);
    })
}
