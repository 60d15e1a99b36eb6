async fn charge(
    self: Arc<Self>,
    user: User,
    config: &Config,
    _permit: Permit,
    #[cfg(test)]
    (a, b): (u8, u8),
    unused: u8,
) -> Result<impl Display, Error> {
    #![allow(clippy::unused_async)]
    let guard = {
        let mut key = crate::facade::__private::KeyParts::new();
        key.value("self.tenant", &self.tenant);
        key.literal("/");
        key.value("user.id", &user.id);
        crate::facade::__private::acquire(
            crate::facade::__private::manager(&self.locks),
            key,
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
                options.auto_renew = ::core::option::Option::Some(false);
                options
            },
        )
    };
    let guard = match guard.await {
        ::core::result::Result::Ok(guard) => guard,
        ::core::result::Result::Err(error) => {
            return ::core::result::Result::Err((::core::convert::From::from)(error));
        }
    };
    match crate::facade::__private::run(
            guard,
            async move {
                #[cfg(test)]
                #[allow(clippy::used_underscore_binding)]
                let _ = &a;
                #[allow(clippy::used_underscore_binding)]
                let _ = &_permit;
                #[allow(clippy::used_underscore_binding)]
                let _ = &config;
                #[allow(clippy::used_underscore_binding)]
                let _ = &user;
                let _ = &self;
                #[allow(
                    unknown_lints,
                    unreachable_code,
                    clippy::diverging_sub_expression,
                    clippy::empty_loop,
                    clippy::let_unit_value,
                    clippy::let_with_type_underscore,
                    clippy::needless_return,
                    clippy::type_complexity,
                    clippy::unreachable
                )]
                if false {
                    let ret: Result<_, Error> = loop {};
                    return ret;
                }
                work(a).await
            },
            crate::facade::__private::OnLost::Cancel,
        )
        .await
    {
        ::core::result::Result::Ok(out) => out,
        ::core::result::Result::Err(error) => {
            return ::core::result::Result::Err((::core::convert::From::from)(error));
        }
    }
}
