//! The arguments of `#[distributed_lock(...)]`: known options, each at most once.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{
    Error, Expr, ExprLit, Ident, Lit, LitBool, LitStr, Path, Result, Token,
    ext::IdentExt,
    meta::ParseNestedMeta,
    parse::{Parse, ParseStream, Parser},
    spanned::Spanned,
};

use crate::{errors::Errors, suggest::did_you_mean};

/// All options, in the order of the documentation.
const OPTIONS: [&str; 16] = [
    "key",
    "keys",
    "ttl",
    "wait",
    "manager",
    "auto_renew",
    "max_hold",
    "hold_at_least",
    "once_per",
    "on_contention",
    "or_else",
    "on_lost",
    "reentrant",
    "guard",
    "label",
    "crate",
];

/// Options of lock modes that do not exist yet.
const PLANNED: [&str; 2] = ["mode", "permits"];

/// Upper bound on the length of a label in bytes.
const MAX_LABEL_BYTES: usize = 63;

/// The options as written.
pub(crate) struct Args {
    pub(crate) keys: Keys,
    pub(crate) ttl: Option<Setting>,
    pub(crate) wait: Option<Setting>,
    pub(crate) manager: Option<Expr>,
    pub(crate) auto_renew: Option<LitBool>,
    pub(crate) max_hold: Option<Setting>,
    pub(crate) hold_at_least: Option<Setting>,
    pub(crate) once_per: Option<Setting>,
    pub(crate) on_contention: Option<Chosen<OnContention>>,
    pub(crate) or_else: Option<Expr>,
    pub(crate) on_lost: Option<Chosen<OnLost>>,
    pub(crate) reentrant: Option<LitBool>,
    pub(crate) guard: Option<Ident>,
    pub(crate) label: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

/// The templates of the keys.
pub(crate) enum Keys {
    /// `key = "…"`
    One(LitStr),
    /// `keys = ["…", "…"]`
    Several(Vec<LitStr>),
}

/// A duration.
pub(crate) enum Setting {
    /// `"30s"`, read at compile time.
    Text(LitStr),
    /// Any other expression, evaluated at run time.
    Code(Expr),
}

/// One of the words that an option accepts.
pub(crate) struct Chosen<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OnContention {
    Error,
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OnLost {
    Cancel,
    Finish,
}

impl Args {
    pub(crate) fn parse(args: TokenStream) -> Result<Self> {
        // `syn` would only say that it expected an identifier.
        if let Some(TokenTree::Literal(key)) = args.clone().into_iter().next() {
            return Err(Error::new(key.span(), format!("options are named: write `key = {key}`")));
        }

        let (mut key, mut keys, mut manager, mut or_else, mut guard, mut label, mut krate) =
            Default::default();
        let (mut ttl, mut wait, mut max_hold, mut hold_at_least, mut once_per) = Default::default();
        let (mut auto_renew, mut reentrant, mut on_contention, mut on_lost) = Default::default();
        let mut errors = Errors::default();
        let read = syn::meta::parser(|option| {
            let name = option.path.get_ident().map(ToString::to_string).unwrap_or_default();
            match name.as_str() {
                "key" => once(&mut key, &option, text),
                "keys" => once(&mut keys, &option, texts),
                "ttl" => once(&mut ttl, &option, |input| setting(&name, input)),
                "wait" => once(&mut wait, &option, |input| setting(&name, input)),
                "manager" => once(&mut manager, &option, Expr::parse),
                "auto_renew" => once(&mut auto_renew, &option, |input| switch(&name, input)),
                "max_hold" => once(&mut max_hold, &option, |input| setting(&name, input)),
                "hold_at_least" => once(&mut hold_at_least, &option, |input| setting(&name, input)),
                "once_per" => once(&mut once_per, &option, |input| setting(&name, input)),
                "on_contention" => once(&mut on_contention, &option, |input| {
                    choice(&name, [("error", OnContention::Error), ("skip", OnContention::Skip)], input)
                }),
                "or_else" => once(&mut or_else, &option, function),
                "on_lost" => once(&mut on_lost, &option, |input| {
                    choice(&name, [("cancel", OnLost::Cancel), ("finish", OnLost::Finish)], input)
                }),
                "reentrant" => once(&mut reentrant, &option, |input| switch(&name, input)),
                "guard" => once(&mut guard, &option, variable),
                "label" => once(&mut label, &option, label_text),
                "crate" => once(&mut krate, &option, path),
                _ => {
                    errors.add(not_an_option(&option));
                    skip_value(&option)
                }
            }
        })
        .parse2(args);
        errors.out(read);
        errors.or(())?;

        let keys = match (key, keys) {
            (Some(key), None) => Keys::One(key),
            (None, Some(keys)) => Keys::Several(keys),
            (Some(key), Some(_)) => {
                return Err(Error::new(
                    key.span(),
                    "both `key` and `keys` are given: move this key into `keys`",
                ));
            }
            (None, None) => {
                return Err(Error::new(
                    Span::call_site(),
                    "the option `key` is missing: write for example `key = \"user:<id>\"`",
                ));
            }
        };
        Ok(Self {
            keys,
            ttl,
            wait,
            manager,
            auto_renew,
            max_hold,
            hold_at_least,
            once_per,
            on_contention,
            or_else,
            on_lost,
            reentrant,
            guard,
            label,
            krate,
        })
    }
}

/// Reads `= value` into `slot`; an error if the option was given before.
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

/// Skips the value of an unknown option, so that the options after it are read.
fn skip_value(option: &ParseNestedMeta<'_>) -> Result<()> {
    if option.input.peek(Token![=]) {
        option.value()?.parse::<Expr>()?;
    } else if !option.input.is_empty() && !option.input.peek(Token![,]) {
        option.input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn not_an_option(option: &ParseNestedMeta<'_>) -> Error {
    let path = &option.path;
    let written =
        path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::");
    if PLANNED.contains(&written.as_str()) {
        let message = format!(
            "the option `{written}` is not available yet: every lock is exclusive so far, leave it out"
        );
        return Error::new_spanned(path, message);
    }
    let mut hint = elsewhere(&written)
        .map_or_else(|| did_you_mean(&written, OPTIONS), |option| format!("; it is called `{option}` here"));
    if hint.is_empty() {
        hint = format!("; the options are {}", OPTIONS.map(|name| format!("`{name}`")).join(", "));
    }
    Error::new_spanned(path, format!("unknown option `{written}`{hint}"))
}

/// Returns our option for a name that other lock libraries use.
fn elsewhere(written: &str) -> Option<&'static str> {
    Some(match written {
        "name" => "key",
        "names" => "keys",
        "lease" | "lease_time" | "expire" | "expires" | "expiry" | "expiration" | "duration" => "ttl",
        "timeout" | "wait_time" | "acquire_timeout" | "blocking_timeout" => "wait",
        "lock_at_most_for" | "max_duration" => "max_hold",
        "lock_at_least_for" | "min_hold" => "hold_at_least",
        "every" | "interval" | "period" | "once" | "once_every" => "once_per",
        "locks" | "client" | "store" | "backend" => "manager",
        "renew" | "watchdog" | "auto_extend" => "auto_renew",
        "on_error" | "fallback" => "or_else",
        "owner" | "description" => "label",
        _ => return None,
    })
}

fn text(input: ParseStream<'_>) -> Result<LitStr> {
    match ungrouped(input.parse()?) {
        Expr::Array(several) => {
            Err(Error::new_spanned(several, "`key` is one name: write `keys = […]` for several"))
        }
        one => template(one),
    }
}

fn texts(input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    match ungrouped(input.parse()?) {
        Expr::Array(list) if list.elems.is_empty() => Err(Error::new_spanned(
            list,
            "`keys` is empty: write at least one, like `keys = [\"user:<id>\"]`",
        )),
        Expr::Array(list) => list.elems.into_iter().map(|one| template(ungrouped(one))).collect(),
        other => Err(Error::new_spanned(
            other,
            "`keys` is a list of literals, such as `keys = [\"account:<from>\", \"account:<to>\"]`; for keys whose number \
             is known only at run time, call `LockManager::all` in the body",
        )),
    }
}

pub(crate) fn template(written: Expr) -> Result<LitStr> {
    match written {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        other => Err(Error::new_spanned(
            other,
            "the key must be a string literal, such as \"user:<id>\": its placeholders insert values and encode them",
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
        code if name == "wait" && word(&code).is_some_and(|word| word == "forever") => {
            Err(Error::new_spanned(code, "written in quotes: `wait = \"forever\"`"))
        }
        code => Ok(Setting::Code(code)),
    }
}

fn switch(name: &str, input: ParseStream<'_>) -> Result<LitBool> {
    match ungrouped(input.parse()?) {
        Expr::Lit(ExprLit { lit: Lit::Bool(switch), .. }) => Ok(switch),
        other => Err(Error::new_spanned(other, format!("write `{name} = true` or `{name} = false`"))),
    }
}

fn choice<T: Copy>(name: &str, choices: [(&str, T); 2], input: ParseStream<'_>) -> Result<Chosen<T>> {
    let written = ungrouped(input.parse()?);
    let word = word(&written).map(ToString::to_string);
    if let Some((_, value)) = choices.iter().find(|(choice, _)| word.as_deref() == Some(choice)) {
        return Ok(Chosen { value: *value, span: written.span() });
    }
    let [(first, _), (second, _)] = choices;
    let quotes =
        if let Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) = &written { ", without quotes" } else { "" };
    Err(Error::new_spanned(written, format!("write `{name} = {first}` or `{name} = {second}`{quotes}")))
}

fn function(input: ParseStream<'_>) -> Result<Expr> {
    match ungrouped(input.parse()?) {
        Expr::Lit(literal) => Err(Error::new_spanned(
            literal,
            "`or_else` is a function from `LockError` to the value to return, written without quotes, such as \
             `or_else = busy` or `or_else = |error| …`",
        )),
        function => Ok(function),
    }
}

fn variable(input: ParseStream<'_>) -> Result<Ident> {
    let written = ungrouped(input.parse()?);
    match word(&written) {
        // No variable can have these names, raw or not.
        Some(name) if !["self", "Self", "super", "crate"].contains(&name.unraw().to_string().as_str()) => {
            Ok(name.clone())
        }
        _ => Err(Error::new_spanned(
            written,
            "`guard` is the name under which the body finds the hold, such as `guard = held`",
        )),
    }
}

/// Reads a label. [`MAX_LABEL_BYTES`] and the rule about control characters are those of lock-runtime, which checks a
/// label that is computed at run time.
fn label_text(input: ParseStream<'_>) -> Result<Expr> {
    let written = ungrouped(input.parse()?);
    let Expr::Lit(ExprLit { lit, .. }) = &written else { return Ok(written) };
    let Lit::Str(text) = lit else {
        return Err(Error::new_spanned(lit, "a label is text, such as `label = \"nightly report\"`"));
    };
    let value = text.value();
    let problem = if value.len() > MAX_LABEL_BYTES {
        format!("the label is longer than {MAX_LABEL_BYTES} bytes")
    } else if value.chars().any(char::is_control) {
        "the label contains a control character".into()
    } else if value.split_once('<').is_some_and(|(_, rest)| rest.contains('>')) {
        "a label has no placeholders: anyone who may read the store can read it. To compute a label, write an \
         expression, such as `label = format!(…)`"
            .into()
    } else {
        return Ok(written);
    };
    Err(Error::new(text.span(), problem))
}

/// Returns `written` if it is a single identifier.
fn word(written: &Expr) -> Option<&Ident> {
    match written {
        Expr::Path(path) if path.attrs.is_empty() && path.qself.is_none() => path.path.get_ident(),
        _ => None,
    }
}

pub(crate) fn path(input: ParseStream<'_>) -> Result<Path> {
    if input.peek(LitStr) {
        return Err(input.error("a path is written without quotes, such as `crate = my_crate::lock_runtime`"));
    }
    // Unlike `Path::parse`, this accepts `crate` and `self`.
    input.call(Path::parse_mod_style)
}

/// Strips the invisible delimiters that a `macro_rules!` macro puts around an expression.
pub(crate) fn ungrouped(mut expr: Expr) -> Expr {
    while let Expr::Group(group) = expr {
        expr = *group.expr;
    }
    expr
}

#[cfg(test)]
mod tests;
