async fn charge(
    self: Arc<Self>,
    user: User,
    config: &Config,
    _permit: Permit,
    #[cfg(test)]
    (a, b): (u8, u8),
    unused: u8,
) -> Result<Option<impl Display>, Error> {
    #![allow(clippy::unused_async)]
    let lock = crate::facade::__private::all(
        ::core::concat!(::core::module_path!(), "::charge"),
        crate::facade::__private::manager(&self.locks),
        [
            {
                let mut key = crate::facade::__private::KeyParts::of(
                    "<self.tenant>/<user.id>",
                );
                key.value("self.tenant", &self.tenant);
                key.literal("/");
                key.value("user.id", &user.id);
                key
            },
            {
                let mut key = crate::facade::__private::KeyParts::of("report");
                key.literal("report");
                key
            },
        ],
        {
            let mut options = <crate::facade::__private::Options as ::core::default::Default>::default();
            options.ttl = ::core::option::Option::Some(
                ::core::time::Duration::from_millis(90000u64),
            );
            options.wait = {
                let wait: ::core::time::Duration = config.wait;
                ::core::option::Option::Some(
                    crate::facade::__private::Wait::AtMost(wait),
                )
            };
            options.auto_renew = ::core::option::Option::Some(true);
            options.max_hold = ::core::option::Option::Some(::core::time::Duration::MAX);
            options.hold_at_least = ::core::option::Option::Some(
                ::core::time::Duration::from_millis(5000u64),
            );
            options.reentrant = true;
            options.label = ::core::option::Option::Some(
                crate::facade::__private::label(&config.name),
            );
            options
        },
    );
    let outcome = match crate::facade::__private::acquire_all(lock).await {
        ::core::result::Result::Ok(guard) => {
            let held = guard.held();
            let ended = crate::facade::__private::run(
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
                            let ret: Result<Option<_>, Error> = loop {};
                            return ret;
                            #[cfg(test)]
                            let _ = &a;
                            let _ = &_permit;
                            let _ = &config;
                            let _ = &user;
                            let _ = &self;
                        }
                        #[allow(clippy::used_underscore_binding)]
                        let _ = &config;
                        #[allow(clippy::used_underscore_binding)]
                        let _ = &user;
                        let _ = &self;
                        work(a, held.fencing_tokens()).await
                    },
                    crate::facade::__private::OnLost::Finish,
                )
                .await;
            {
                #[allow(unused_imports)]
                use crate::facade::__private::Kept as _;
                ended.kept()
            }
        }
        ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
    };
    #[allow(unknown_lints, clippy::needless_return)]
    return match outcome {
        ::core::result::Result::Err(
            error,
        ) if crate::facade::__private::is_contention(&error) => {
            crate::facade::__private::nothing()
        }
        outcome => crate::facade::__private::or_else(outcome, Self::refused),
    };
}
