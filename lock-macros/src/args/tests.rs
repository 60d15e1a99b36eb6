use quote::quote;

use super::*;

fn refusal(args: TokenStream) -> String {
    Args::parse(args).err().expect("refused").to_string()
}

#[test]
fn every_option_is_read() {
    let args = Args::parse(quote! {
        key = "user:<id>", ttl = "30s", wait = config.wait(), manager = &self.locks, auto_renew = false,
        max_hold = "5m", hold_at_least = config.least, on_contention = skip, or_else = |_| None, on_lost = finish,
        reentrant = true, guard = held, label = self.name(), crate = crate::lock,
    })
    .expect("valid");
    assert!(matches!(args.keys, Keys::One(key) if key.value() == "user:<id>"));
    assert!(matches!(args.ttl, Some(Setting::Text(text)) if text.value() == "30s"));
    assert!(matches!(args.wait, Some(Setting::Code(Expr::MethodCall(_)))));
    assert!(matches!(args.manager, Some(Expr::Reference(_))));
    assert_eq!(args.auto_renew.map(|switch| switch.value), Some(false));
    assert!(matches!(args.max_hold, Some(Setting::Text(text)) if text.value() == "5m"));
    assert!(matches!(args.hold_at_least, Some(Setting::Code(Expr::Field(_)))));
    assert_eq!(args.on_contention.map(|chosen| chosen.value), Some(OnContention::Skip));
    assert!(matches!(args.or_else, Some(Expr::Closure(_))));
    assert_eq!(args.on_lost.map(|chosen| chosen.value), Some(OnLost::Finish));
    assert_eq!(args.reentrant.map(|switch| switch.value), Some(true));
    assert_eq!(args.guard.map(|name| name.to_string()).as_deref(), Some("held"));
    assert!(matches!(args.label, Some(Expr::MethodCall(_))));
    assert_eq!(args.krate.map(|path| path.segments.len()), Some(2));
}

#[test]
fn several_keys_are_a_list() {
    let args = Args::parse(quote!(keys = ["a:<x>", "b"])).expect("valid");
    let Keys::Several(keys) = args.keys else { panic!("one key") };
    assert_eq!(keys.iter().map(LitStr::value).collect::<Vec<_>>(), ["a:<x>", "b"]);

    for no_list in [quote!("a:<x>"), quote!(ids)] {
        let told = refusal(quote!(keys = #no_list));
        assert!(
            told.starts_with("`keys` is a list of literals") && told.contains("`LockManager::all`"),
            "{told}"
        );
    }
    assert_eq!(
        refusal(quote!(keys = [])),
        r#"`keys` is empty: write at least one, like `keys = ["user:<id>"]`"#
    );
    assert!(refusal(quote!(keys = [id])).starts_with("the key must be a string literal"));
    assert_eq!(refusal(quote!(key = ["a"])), "`key` is one name: write `keys = […]` for several");
    assert_eq!(
        refusal(quote!(key = "a", keys = ["b"])),
        "both `key` and `keys` are given: move this key into `keys`"
    );
}

#[test]
fn only_the_key_is_required() {
    let args = Args::parse(quote!(key = "a")).expect("valid");
    assert!(args.ttl.is_none() && args.wait.is_none() && args.manager.is_none());
    assert!(args.auto_renew.is_none() && args.krate.is_none() && args.guard.is_none());
    for args in [quote!(), quote!(ttl = "1s")] {
        assert_eq!(refusal(args), r#"the option `key` is missing: write for example `key = "user:<id>"`"#);
    }
}

#[test]
fn an_option_is_given_once() {
    for name in OPTIONS.map(|name| syn::parse_str::<proc_macro2::TokenStream>(name).expect("a name")) {
        let value = match name.to_string().as_str() {
            "auto_renew" | "reentrant" => quote!(true),
            "crate" | "manager" | "or_else" | "guard" => quote!(a),
            "keys" => quote!(["a"]),
            "on_contention" => quote!(skip),
            "on_lost" => quote!(finish),
            _ => quote!("1s"),
        };
        let told = refusal(quote!(#name = #value, #name = #value));
        assert_eq!(told, format!("the option `{name}` is given twice"));
    }
}

#[test]
fn unknown_options_are_named_with_the_known_ones() {
    let known = format!("the options are {}", OPTIONS.map(|name| format!("`{name}`")).join(", "));
    for (typo, meant) in [("tll", "ttl"), ("wiat", "wait"), ("kye", "key"), ("max_held", "max_hold")] {
        let ident = Ident::new(typo, Span::call_site());
        assert_eq!(
            refusal(quote!(key = "a", #ident = "1s")),
            format!("unknown option `{typo}`; did you mean `{meant}`?")
        );
    }
    assert_eq!(refusal(quote!(colour = "1s")), format!("unknown option `colour`; {known}"));
    assert_eq!(refusal(quote!(key::ttl = "1s")), format!("unknown option `key::ttl`; {known}"));
}

#[test]
fn names_that_other_libraries_have_for_an_option_are_understood() {
    for (theirs, ours) in [("timeout", "wait"), ("lease", "ttl"), ("lock_at_most_for", "max_hold")] {
        let ident = Ident::new(theirs, Span::call_site());
        assert_eq!(
            refusal(quote!(key = "a", #ident = "1s")),
            format!("unknown option `{theirs}`; it is called `{ours}` here")
        );
        assert!(OPTIONS.contains(&ours));
    }
}

#[test]
fn all_unknown_options_are_told_at_once() {
    let error = Args::parse(quote!(one = "1s", two(x), three, key = "a", four = 4)).err().expect("refused");
    assert_eq!(error.into_iter().count(), 4);
}

#[test]
fn options_that_are_planned_do_not_exist_yet() {
    for name in PLANNED {
        let ident = Ident::new(name, Span::call_site());
        assert_eq!(
            refusal(quote!(key = "a", #ident = x)),
            format!("the option `{name}` is not available yet: every lock is exclusive so far, leave it out")
        );
    }
}

#[test]
fn values_of_another_kind_are_answered_with_what_to_write() {
    assert_eq!(refusal(quote!("user:<id>")), r#"options are named: write `key = "user:<id>"`"#);
    assert!(refusal(quote!(key = 5)).starts_with("the key must be a string literal"));
    assert!(refusal(quote!(key = format!("user:{id}"))).starts_with("the key must be a string literal"));
    assert_eq!(
        refusal(quote!(key = "a", ttl = 30)),
        r#"a length of time is written in quotes: `ttl = "30s"`"#
    );
    assert_eq!(
        refusal(quote!(key = "a", wait = 1m30s)),
        r#"a length of time is written in quotes: `wait = "1m30s"`"#
    );
    assert_eq!(refusal(quote!(key = "a", wait = forever)), r#"written in quotes: `wait = "forever"`"#);
    for value in [quote!("false"), quote!(1), quote!(flag)] {
        let told = refusal(quote!(key = "a", auto_renew = #value));
        assert_eq!(told, "write `auto_renew = true` or `auto_renew = false`");
        let told = refusal(quote!(key = "a", reentrant = #value));
        assert_eq!(told, "write `reentrant = true` or `reentrant = false`");
    }
    assert_eq!(
        refusal(quote!(key = "a", on_contention = "skip")),
        "write `on_contention = error` or `on_contention = skip`, without quotes"
    );
    for value in [quote!(true), quote!(Skip), quote!(skip()), quote!(a::skip)] {
        let told = refusal(quote!(key = "a", on_contention = #value));
        assert_eq!(told, "write `on_contention = error` or `on_contention = skip`");
    }
    assert_eq!(refusal(quote!(key = "a", on_lost = error)), "write `on_lost = cancel` or `on_lost = finish`");
    assert!(refusal(quote!(key = "a", or_else = "busy")).starts_with("`or_else` is a function"));
    for value in [quote!("held"), quote!(_), quote!(self), quote!(a.b), quote!(a::b), quote!(f())] {
        assert_eq!(
            refusal(quote!(key = "a", guard = #value)),
            "`guard` is the name under which the body finds the hold, such as `guard = held`"
        );
    }
    assert_eq!(
        refusal(quote!(key = "a", crate = "lock")),
        "a path is written without quotes, such as `crate = my_crate::lock_runtime`"
    );
}

#[test]
fn an_option_needs_a_value() {
    for args in [quote!(key), quote!(key =), quote!(key = , ttl = "1s"), quote!(key("a"))] {
        assert_eq!(refusal(args), "the option `key` needs a value: write `key = …`");
    }
}
