//! The macro `lock_key!`: a key from a template and the variables in scope.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    Error, Expr, Path, Result, Token,
    parse::{Parse, ParseStream},
    parse_quote,
};

use crate::{
    args::{path, template, ungrouped},
    check::{Key, Names, key},
    expand::lock::name,
};

pub(crate) fn lock_key(input: TokenStream) -> TokenStream {
    syn::parse2(input).map_or_else(Error::into_compile_error, expand)
}

struct Written {
    key: Key,
    krate: Path,
}

impl Parse for Written {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.is_empty() {
            let problem = "the template is missing: write `lock_key!(\"user:<id>\")`";
            return Err(Error::new(Span::call_site(), problem));
        }
        let key = key(&template(ungrouped(input.parse::<Expr>()?))?, Names::Variables)?;
        let mut krate = parse_quote!(::lock_runtime);
        if input.parse::<Option<Token![,]>>()?.is_some() && input.peek(Token![crate]) {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            krate = path(input)?;
            input.parse::<Option<Token![,]>>()?;
        }
        if !input.is_empty() {
            return Err(input.error(
                "nothing but `crate = …` may follow the template: name the values in it, like `<id>`",
            ));
        }
        Ok(Self { key, krate })
    }
}

fn expand(Written { key, krate }: Written) -> TokenStream {
    let runtime = quote!(#krate::__private);
    let name = name(&key, &runtime);
    quote!(#runtime::lock_key(#name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_put_together_in_place() {
        let expanded = lock_key(quote!("user:<user.id>", crate = crate::locks)).to_string();
        for part in ["crate :: locks :: __private :: lock_key", "\"user:\"", "& user . id", "\"user.id\""] {
            assert!(expanded.contains(part), "{part} in {expanded}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (input, problem) in [
            (quote!(), "the template is missing"),
            (quote!(id), "string literal"),
            (quote!("user:{id}"), "<id>"),
            (quote!("user:<id"), "<"),
            (quote!("user:<id + 1>"), "put its result into a variable"),
            (quote!("user:<id:u64>"), "the variable has its own"),
            (quote!("user:<id>", id), "nothing but `crate"),
            (quote!("user:<id>", ttl = "1s"), "nothing but `crate"),
            (quote!("user:<id>", crate = "x"), "without quotes"),
        ] {
            let expanded = lock_key(input.clone()).to_string();
            assert!(expanded.contains("compile_error") && expanded.contains(problem), "{input}: {expanded}");
        }
    }
}
