//! What stands in the parentheses of `#[distributed_lock(...)]`: which options, each at most once.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{
    Error, Expr, ExprLit, Lit, LitBool, LitStr, Path, Result, Token,
    meta::ParseNestedMeta,
    parse::{Parse, ParseStream, Parser},
};

use crate::suggest::did_you_mean;

/// Every option there is, in the order of the documentation.
const OPTIONS: [&str; 6] = ["key", "ttl", "wait", "manager", "auto_renew", "crate"];

/// The options as they were written.
pub(crate) struct Args {
    pub(crate) key: LitStr,
    pub(crate) ttl: Option<Setting>,
    pub(crate) wait: Option<Setting>,
    pub(crate) manager: Option<Expr>,
    pub(crate) auto_renew: Option<LitBool>,
    pub(crate) krate: Option<Path>,
}

/// A length of time.
pub(crate) enum Setting {
    /// `"30s"`, read at compile time.
    Text(LitStr),
    /// Everything else, evaluated by the program.
    Code(Expr),
}

impl Args {
    pub(crate) fn parse(args: TokenStream) -> Result<Self> {
        // `syn` would only say that it expected an identifier.
        if let Some(TokenTree::Literal(key)) = args.clone().into_iter().next() {
            return Err(Error::new(key.span(), format!("an option has a name: write `key = {key}`")));
        }

        let (mut key, mut ttl, mut wait, mut manager, mut auto_renew, mut krate) = Default::default();
        syn::meta::parser(|option| {
            let name = option.path.get_ident().map(ToString::to_string).unwrap_or_default();
            match name.as_str() {
                "key" => once(&mut key, &option, text),
                "ttl" => once(&mut ttl, &option, |input| setting(&name, input)),
                "wait" => once(&mut wait, &option, |input| setting(&name, input)),
                "manager" => once(&mut manager, &option, Expr::parse),
                "auto_renew" => once(&mut auto_renew, &option, switch),
                "crate" => once(&mut krate, &option, path),
                _ => Err(unknown(&option)),
            }
        })
        .parse2(args)?;

        let key = key.ok_or_else(|| {
            Error::new(
                Span::call_site(),
                "the option `key` is missing: write for example `key = \"user:<id>\"`",
            )
        })?;
        Ok(Self { key, ttl, wait, manager, auto_renew, krate })
    }
}

/// Reads `= value`, unless the option was there before.
fn once<T>(
    slot: &mut Option<T>,
    option: &ParseNestedMeta<'_>,
    read: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    let name = option.path.get_ident().map(ToString::to_string).unwrap_or_default();
    let error = |message: String| Error::new_spanned(&option.path, message);
    if slot.is_some() {
        return Err(error(format!("the option `{name}` is given twice")));
    }
    // `syn` would report this at the whole attribute.
    let needs_value = || error(format!("the option `{name}` needs a value: write `{name} = …`"));
    let input = option.value().map_err(|_| needs_value())?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(needs_value());
    }
    *slot = Some(read(input)?);
    Ok(())
}

fn unknown(option: &ParseNestedMeta<'_>) -> Error {
    let path = &option.path;
    let written =
        path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::");
    let suggestion = did_you_mean(&written, OPTIONS);
    let known = OPTIONS.map(|name| format!("`{name}`")).join(", ");
    let stop = if suggestion.is_empty() { ";" } else { "" };
    Error::new_spanned(path, format!("unknown option `{written}`{suggestion}{stop} the options are {known}"))
}

fn text(input: ParseStream<'_>) -> Result<LitStr> {
    match ungrouped(input.parse()?) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        other => Err(Error::new_spanned(
            other,
            "the key is a string literal, such as \"user:<id>\": placeholders take the values in, so that they are \
             encoded",
        )),
    }
}

fn setting(name: &str, input: ParseStream<'_>) -> Result<Setting> {
    match ungrouped(input.parse()?) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(Setting::Text(text)),
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            // `30s` is one token, a number with the suffix `s`.
            let unit = if number.suffix().is_empty() { "s" } else { "" };
            Err(Error::new(
                number.span(),
                format!("a length of time is written in quotes: `{name} = \"{number}{unit}\"`"),
            ))
        }
        code => Ok(Setting::Code(code)),
    }
}

fn switch(input: ParseStream<'_>) -> Result<LitBool> {
    match ungrouped(input.parse()?) {
        Expr::Lit(ExprLit { lit: Lit::Bool(switch), .. }) => Ok(switch),
        other => Err(Error::new_spanned(other, "write `auto_renew = true` or `auto_renew = false`")),
    }
}

fn path(input: ParseStream<'_>) -> Result<Path> {
    if input.peek(LitStr) {
        return Err(input.error("a path is written without quotes, such as `crate = my_crate::lock_runtime`"));
    }
    // Unlike `Path::parse`, this takes `crate` and `self`.
    input.call(Path::parse_mod_style)
}

/// The expression without the invisible brackets around what a `macro_rules!` macro passes on.
fn ungrouped(mut expr: Expr) -> Expr {
    while let Expr::Group(group) = expr {
        expr = *group.expr;
    }
    expr
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn refusal(args: TokenStream) -> String {
        Args::parse(args).err().expect("refused").to_string()
    }

    #[test]
    fn every_option_is_read() {
        let args = Args::parse(quote! {
            key = "user:<id>", ttl = "30s", wait = config.wait(), manager = &self.locks, auto_renew = false,
            crate = crate::lock,
        })
        .expect("valid");
        assert_eq!(args.key.value(), "user:<id>");
        assert!(matches!(args.ttl, Some(Setting::Text(text)) if text.value() == "30s"));
        assert!(matches!(args.wait, Some(Setting::Code(Expr::MethodCall(_)))));
        assert!(matches!(args.manager, Some(Expr::Reference(_))));
        assert_eq!(args.auto_renew.map(|switch| switch.value), Some(false));
        assert_eq!(args.krate.map(|path| path.segments.len()), Some(2));
    }

    #[test]
    fn only_the_key_is_required() {
        let args = Args::parse(quote!(key = "a")).expect("valid");
        assert!(args.ttl.is_none() && args.wait.is_none() && args.manager.is_none());
        assert!(args.auto_renew.is_none() && args.krate.is_none());
        for args in [quote!(), quote!(ttl = "1s")] {
            assert_eq!(
                refusal(args),
                r#"the option `key` is missing: write for example `key = "user:<id>"`"#
            );
        }
    }

    #[test]
    fn an_option_is_given_once() {
        for name in OPTIONS.map(|name| syn::parse_str::<proc_macro2::TokenStream>(name).expect("a name")) {
            let value = match name.to_string().as_str() {
                "auto_renew" => quote!(true),
                "crate" | "manager" => quote!(a),
                _ => quote!("1s"),
            };
            let told = refusal(quote!(#name = #value, #name = #value));
            assert_eq!(told, format!("the option `{name}` is given twice"));
        }
    }

    #[test]
    fn unknown_options_are_named_with_the_known_ones() {
        let known = "the options are `key`, `ttl`, `wait`, `manager`, `auto_renew`, `crate`";
        assert_eq!(
            refusal(quote!(key = "a", tll = "1s")),
            format!("unknown option `tll`; did you mean `ttl`? {known}")
        );
        assert_eq!(
            refusal(quote!(keys = ["a"])),
            format!("unknown option `keys`; did you mean `key`? {known}")
        );
        assert_eq!(refusal(quote!(lease = "1s")), format!("unknown option `lease`; {known}"));
        assert_eq!(refusal(quote!(key::ttl = "1s")), format!("unknown option `key::ttl`; {known}"));
    }

    #[test]
    fn options_that_are_planned_do_not_exist_yet() {
        for name in [
            "mode",
            "permits",
            "max_hold",
            "hold_at_least",
            "on_contention",
            "or_else",
            "on_lost",
            "reentrant",
            "guard",
        ] {
            let ident = proc_macro2::Ident::new(name, Span::call_site());
            let told = refusal(quote!(key = "a", #ident = x));
            assert!(told.starts_with(&format!("unknown option `{name}`; the options are")), "{told}");
        }
    }

    #[test]
    fn values_of_another_kind_are_answered_with_what_to_write() {
        assert_eq!(refusal(quote!("user:<id>")), r#"an option has a name: write `key = "user:<id>"`"#);
        assert!(refusal(quote!(key = 5)).starts_with("the key is a string literal"));
        assert!(refusal(quote!(key = format!("user:{id}"))).starts_with("the key is a string literal"));
        assert_eq!(
            refusal(quote!(key = "a", ttl = 30)),
            r#"a length of time is written in quotes: `ttl = "30s"`"#
        );
        assert_eq!(
            refusal(quote!(key = "a", wait = 1m30s)),
            r#"a length of time is written in quotes: `wait = "1m30s"`"#
        );
        for value in [quote!("false"), quote!(1), quote!(flag)] {
            let told = refusal(quote!(key = "a", auto_renew = #value));
            assert_eq!(told, "write `auto_renew = true` or `auto_renew = false`");
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
}
