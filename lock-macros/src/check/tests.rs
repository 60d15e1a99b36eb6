use std::time::Duration;

use quote::quote;

use super::*;

fn checked(args: TokenStream, item: TokenStream) -> Result<Plan> {
    let function = Function::parse(item).expect("a function");
    check(Args::parse(args).expect("options"), &function)
}

fn refusals(args: TokenStream, item: TokenStream) -> Vec<String> {
    let error = checked(args, item).err().expect("refused");
    error.into_iter().map(|error| error.to_string()).collect()
}

/// Returns the message of the only error.
fn refusal(args: TokenStream, item: TokenStream) -> String {
    let mut all = refusals(args, item);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The expressions in the key `template` of a function with these parameters.
fn values(template: &str, parameters: TokenStream) -> Vec<String> {
    let plan = checked(quote!(key = #template), quote!(async fn f(#parameters) -> R {})).expect(template);
    let value = |part| match part {
        KeyPart::Value { value, .. } => Some(value.to_string()),
        KeyPart::Literal(_) => None,
    };
    let Keys::One(key) = plan.keys else { panic!("several keys") };
    key.parts.into_iter().filter_map(value).collect()
}

fn key_refusal(template: &str, parameters: TokenStream) -> String {
    refusal(quote!(key = #template), quote!(async fn f(#parameters) -> R {}))
}

fn output_refusal(output: TokenStream) -> String {
    refusal(quote!(key = "a"), quote!(async fn f() #output {}))
}

#[test]
fn placeholders_are_parameters_and_their_fields() {
    assert_eq!(values("<id>", quote!(id: u64)), ["id"]);
    assert_eq!(
        values("<user.id>:<user.place.1>/<pair.0>", quote!(user: &User, pair: (u8, u8))),
        ["user . id", "user . place . 1", "pair . 0"]
    );
    assert_eq!(values("<self.tenant>:<self.a.b>", quote!(&mut self)), ["self . tenant", "self . a . b"]);
    assert_eq!(
        values(
            "<a>:<x>:<rest>:<whole>",
            quote!((mut a, _): (u8, u8), User { id: x, .. }: User, whole @ [_, rest @ ..]: [u8; 3])
        ),
        ["a", "x", "rest", "whole"]
    );
    for template in ["<type>", "<r#type>"] {
        assert_eq!(values(template, quote!(r#type: u8)), ["r#type"]);
    }
    assert_eq!(values("<größe>", quote!(größe: u8)), ["größe"]);
    assert!(values("constant", quote!(id: u8)).is_empty());
}

#[test]
fn unknown_parameters_are_named_with_the_known_ones() {
    let unknown = |name: &str| format!("`<{name}>` in the lock key is not a parameter of this function");
    assert_eq!(key_refusal("<idd>", quote!(id: u8, x: u8)), unknown("idd") + "; did you mean `id`?");
    assert_eq!(
        key_refusal("<user>", quote!(id: u8, (x, _): P)),
        unknown("user") + " (its parameters: `id`, `x`)"
    );
    assert_eq!(key_refusal("<id>", quote!()), unknown("id") + ", which has none");
    assert_eq!(key_refusal("<id>", quote!(_: u8)), unknown("id") + ", which has none");
    assert_eq!(
        key_refusal("<tenant>", quote!(&self, id: u8)),
        unknown("tenant") + " (its parameters: `id`); a field of `self` is written `<self.tenant>`"
    );
    assert_eq!(
        key_refusal("<self.id>", quote!(id: u8)),
        "the lock key uses `self`, which this function does not have"
    );
    let hidden = quote!(
        fn f(__arg0: (u8, u8)) -> BoxFuture<R> {
            Box::pin(async move { Ok(()) })
        }
    );
    assert_eq!(
        refusal(quote!(key = "<a>"), hidden),
        unknown("a")
            + "; the names inside a pattern cannot be used under `#[async_trait]`, give that parameter a name of \
               its own"
    );
}

#[test]
fn code_in_a_key_is_refused() {
    for path in [
        "id()", "id.len()", "ids[0]", " id", "id ", "Self::ID", "a.b()", "1", "a..b", "a.01", "a.+1", "id?",
        "&id", "x/**/", "a.await", "type",
    ] {
        assert_eq!(
            key_refusal(&format!("<{path}>"), quote!(id: u8, a: u8, x: u8)),
            format!(
                "`<{path}>` in the lock key is not a parameter or a field of one, like `<id>` or `<user.id>`: code \
                 does not belong in the key, pass its result as a parameter"
            )
        );
    }
    assert_eq!(
        key_refusal("<id:u64>", quote!(id: u64)),
        "`<id:u64>` has a type, which only a layer's key needs: write `<id>`, the parameter has its own"
    );
}

#[test]
fn forgotten_brackets_are_seen() {
    for key in ["user:id", "user::id", "user:$id", "user/id", "$id", "all of id"] {
        let told = key_refusal(key, quote!(id: u64));
        assert!(told.contains("text, so all values") && told.contains("write `<id>`"), "{key}: {told}");
    }
    // The first word may name the subject of the key, and a placeholder shows that the author knows the brackets.
    for key in ["id", "id:all", "user:ids", "user:my_id", "user:<id>:id"] {
        assert_eq!(values(key, quote!(id: u64)).len(), usize::from(key.contains('<')), "{key}");
    }
}

#[test]
fn errors_of_the_template_are_passed_on() {
    assert_eq!(
        key_refusal("{id}", quote!(id: u8)),
        "`{id}` in the lock key is not a placeholder: write `<id>`"
    );
}

#[test]
fn ttl_is_a_bounded_length() {
    let item = || {
        quote!(
            async fn f() -> R {}
        )
    };
    for (text, millis) in [("100ms", 100), ("30s", 30_000), ("24h", 86_400_000)] {
        let plan = checked(quote!(key = "a", ttl = #text), item()).expect(text);
        assert!(
            matches!(plan.ttl, Some(Length::Fixed { length, .. }) if length == Duration::from_millis(millis)),
            "{text}"
        );
    }
    for text in ["0s", "0ms", "99ms", "24h1ms", "25h"] {
        assert_eq!(
            refusal(quote!(key = "a", ttl = #text), item()),
            format!("`ttl` is at least \"100ms\" and at most \"24h\", not {text:?}")
        );
    }
    assert_eq!(refusal(quote!(key = "a", ttl = "30"), item()), r#""30" has no unit: write "30s" or "30ms""#);
    assert_eq!(
        refusal(quote!(key = "a", ttl = "forever"), item()),
        "a lease cannot last forever, or a crash would keep the lock: leave `ttl` out; the lease is renewed while \
         the body runs"
    );
    let plan = checked(quote!(key = "a", ttl = Duration::ZERO), item()).expect("code");
    assert!(matches!(plan.ttl, Some(Length::Code(_))));
}

#[test]
fn wait_is_any_length_or_forever() {
    let wait = |text: &str| {
        checked(
            quote!(key = "a", wait = #text),
            quote!(
                async fn f() -> R {}
            ),
        )
    };
    for (text, millis) in [("0s", 0), ("5s", 5_000), ("48h", 172_800_000)] {
        let plan = wait(text).expect(text);
        let expected = Duration::from_millis(millis);
        assert!(
            matches!(plan.wait, Some(Wait::AtMost(Length::Fixed { length, .. })) if length == expected),
            "{text}"
        );
    }
    assert!(matches!(wait("forever").expect("valid").wait, Some(Wait::Forever)));
    for text in ["soon", "Forever", "-1s", ""] {
        let error = wait(text).err().expect("refused").to_string();
        assert!(
            error.starts_with(&format!("{text:?} is not a duration")) && error.ends_with("; or \"forever\"")
        );
    }
}

#[test]
fn max_hold_and_hold_at_least_are_lengths_above_zero() {
    let item = || {
        quote!(
            async fn f() -> R {}
        )
    };
    let plan = checked(quote!(key = "a", max_hold = "5m", hold_at_least = "10s"), item()).expect("valid");
    assert!(matches!(plan.max_hold, Some(Length::Fixed { length, .. }) if length == Duration::from_mins(5)));
    assert!(
        matches!(plan.hold_at_least, Some(Length::Fixed { length, .. }) if length == Duration::from_secs(10))
    );
    let plan = checked(quote!(key = "a", max_hold = "forever"), item()).expect("valid");
    assert!(matches!(plan.max_hold, Some(Length::Fixed { length: Duration::MAX, .. })));

    assert!(
        refusal(quote!(key = "a", max_hold = "0s"), item()).starts_with("the lock would be lost at once")
    );
    assert!(refusal(quote!(key = "a", max_hold = "long"), item()).ends_with("; or \"forever\""));
    for nothing in ["0s", "0ms"] {
        assert_eq!(
            refusal(quote!(key = "a", hold_at_least = #nothing), item()),
            "a minimum of zero has no effect: leave `hold_at_least` out"
        );
    }
    assert!(refusal(quote!(key = "a", hold_at_least = "forever"), item()).contains("never released"));
}

#[test]
fn a_period_has_bounds_and_needs_a_single_lock() {
    let item = || {
        quote!(
            async fn f() -> R {}
        )
    };
    for period in ["1s", "24h", "744h"] {
        let plan = checked(quote!(key = "a", once_per = #period), item()).expect(period);
        assert!(matches!(plan.once_per, Some(Length::Fixed { .. })));
    }
    for period in ["999ms", "0s", "744h1ms"] {
        let refused = refusal(quote!(key = "a", once_per = #period), item());
        assert!(refused.starts_with("`once_per` is at least \"1s\" and at most 31 days"), "{refused}");
    }
    assert!(matches!(
        checked(quote!(key = "a", once_per = config.period), item()).expect("code").once_per,
        Some(Length::Code(_))
    ));
    let refused = refusal(quote!(keys = ["a", "b"], once_per = "24h"), item());
    assert!(refused.starts_with("`once_per` needs a single lock"), "{refused}");
}

#[test]
fn each_of_several_keys_is_checked() {
    let item = || {
        quote!(
            async fn f(from: u8, to: u8) -> R {}
        )
    };
    let plan = checked(quote!(keys = ["a:<from>", "a:<to>"]), item()).expect("valid");
    assert_eq!(plan.keys.roots(), HashSet::from(["from".to_owned(), "to".to_owned()]));
    assert!(matches!(plan.keys, Keys::Several(keys) if keys.len() == 2));
    let all = refusals(quote!(keys = ["a:<form>", "b", "a:{to}", "b"]), item());
    assert_eq!(
        all,
        [
            "`<form>` in the lock key is not a parameter of this function; did you mean `from`?",
            "`{to}` in the lock key is not a placeholder: write `<to>`",
            "this key is in the list already: leave it out",
        ]
    );
}

#[test]
fn the_guard_hides_no_parameter() {
    let item = || {
        quote!(
            async fn f(id: u8, (r#type, _): P) -> R {}
        )
    };
    let plan = checked(quote!(key = "a", guard = held), item()).expect("valid");
    assert_eq!(plan.guard.expect("given"), "held");
    for name in ["id", "type"] {
        let ident = syn::parse_str::<Ident>(name).unwrap_or_else(|_| Ident::new_raw(name, Span::call_site()));
        assert_eq!(
            refusal(quote!(key = "a", guard = #ident), item()),
            format!(
                "`guard = {ident}` would hide the parameter `{ident}` from the body: choose another name"
            )
        );
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let item = || {
        quote!(
            async fn f() -> Result<(), E> {}
        )
    };
    for (options, told) in [
        (
            quote!(hold_at_least = "10s", max_hold = "9s"),
            "`hold_at_least` is longer than `max_hold`, which is \"9s\"",
        ),
        (
            quote!(hold_at_least = "10s", ttl = "9s", auto_renew = false),
            "`hold_at_least` is longer than `ttl`, which is \"9s\"",
        ),
        (quote!(ttl = "30s", max_hold = "10s"), "`ttl` is longer than `max_hold`, which is \"10s\""),
        (
            quote!(max_hold = "10s", ttl = "9s", auto_renew = false),
            "`max_hold` is longer than `ttl`, which is \"9s\"",
        ),
        (
            quote!(on_contention = skip, wait = "forever"),
            "nothing is ever skipped under `wait = \"forever\"`",
        ),
    ] {
        let refused = refusal(quote!(key = "a", #options), item());
        assert!(refused.starts_with(told), "{refused}");
    }
    for options in [
        quote!(hold_at_least = "10s", max_hold = "10s"),
        quote!(hold_at_least = "10s", ttl = "9s"),
        quote!(hold_at_least = "10s", ttl = "9s", auto_renew = true),
        quote!(hold_at_least = "10s", ttl = "10s", auto_renew = false),
        quote!(hold_at_least = "10s", max_hold = most),
        quote!(ttl = "10s", max_hold = "10s"),
        quote!(ttl = ttl, max_hold = "1s"),
        quote!(hold_at_least = least, max_hold = "1s"),
        quote!(on_contention = error, wait = "forever"),
        quote!(on_contention = skip, wait = "0s"),
        quote!(on_contention = skip),
    ] {
        let shown = options.to_string();
        checked(quote!(key = "a", #options), item()).unwrap_or_else(|error| panic!("{shown}: {error}"));
    }
}

#[test]
fn what_is_surely_no_result_is_refused() {
    let way_out = "return `Result<_, E>` where `E: From<LockError>`, or write `or_else = …`, a function from \
                   `LockError` to the value to return";
    let outputs = [
        quote!(),
        quote!(-> ()),
        quote!(-> (u8, Result<(), E>)),
        quote!(-> !),
        quote!(-> u64),
        quote!(-> (u64)),
        quote!(-> &'static str),
        quote!(-> [u8; 4]),
        quote!(-> fn() -> Result<(), E>),
        quote!(-> *const u8),
        quote!(-> String),
        quote!(-> Vec<Result<(), E>>),
        quote!(-> Option<u8>),
    ];
    for output in outputs {
        assert_eq!(output_refusal(output.clone()), format!("acquiring the lock can fail: {way_out}"));
        let item = quote!(async fn f() #output {});
        assert_eq!(
            refusal(quote!(key = "a", on_contention = skip), item.clone()),
            format!("`skip` covers only a lock that is held; the store can fail as well: {way_out}")
        );
        checked(quote!(key = "a", or_else = g), item).expect("has a way out");
    }
    assert_eq!(
        output_refusal(quote!(-> impl IntoResponse)),
        format!(
            "acquiring the lock can fail: {way_out}; `impl Trait` hides the error, write `Result<impl Trait, E>`"
        )
    );
    for output in
        [quote!(Result<(), E>), quote!(io::Result<u8>), quote!(Answer), quote!(Self::Option), quote!(T)]
    {
        checked(quote!(key = "a"), quote!(async fn f() -> #output {})).expect("may be a result");
    }
}

#[test]
fn a_type_that_cannot_be_written_is_left_to_the_body() {
    for (output, is_written) in [
        (quote!(), true),
        (quote!(-> u8), true),
        (quote!(-> Vec<impl Display>), true),
        (quote!(-> impl Display), false),
        (quote!(-> !), false),
    ] {
        let plan = checked(quote!(key = "a", or_else = g), quote!(async fn f() #output {})).expect("valid");
        assert_eq!(plan.output.ty.is_some(), is_written, "{output}");
    }
}

#[test]
fn the_output_of_a_boxed_future_is_checked_too() {
    let output = |ty: TokenStream| {
        checked(quote!(key = "a"), quote!(fn f<'a>() -> #ty { Box::pin(async move { x }) }))
            .map(|plan| plan.output.ty)
    };
    let found = |ty| output(ty).expect("may be a result").map(|ty| quote!(#ty).to_string());
    let expected = quote!(Result<u8, E>).to_string();
    for ty in [
        quote!(Pin<Box<dyn Future<Output = Result<u8, E>> + Send + 'a>>),
        quote!(impl ::core::future::Future<Output = Result<u8, E>> + Send),
    ] {
        assert_eq!(found(ty), Some(expected.clone()));
    }
    assert_eq!(found(quote!(BoxFuture<'a, Result<u8, E>>)), None);
    assert!(output(quote!(Pin<Box<dyn Future<Output = u8> + 'a>>)).is_err());
}

#[test]
fn all_errors_are_told_at_once() {
    let all = refusals(
        quote!(key = "{id}", ttl = "1", wait = "2"),
        quote!(
            async fn f(id: u8) -> u64 {}
        ),
    );
    assert_eq!(all.len(), 4, "{all:?}");
}
