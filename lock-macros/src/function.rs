//! The annotated function: its signature parsed, its body left as it is.
//!
//! The body stays raw tokens, so that a half-typed one still expands (an editor completes inside it) and syntax that
//! `syn` does not know passes through. The signature goes back token by token as the user wrote it.

use proc_macro2::{Delimiter, Group, Punct, Span, TokenStream, TokenTree};
use quote::TokenStreamExt;
use syn::{
    Attribute, Error, FnArg, Ident, ReceiverKind, Result, Signature, Token, Visibility,
    parse::{ParseStream, Parser},
};

use crate::{
    parameters::{Parameter, Parameters, Shape, allows_unused, bound_by},
    tokens::group,
};

/// A function with a body.
pub(crate) struct Function {
    /// Everything before the body.
    head: TokenStream,
    /// `#[…]` before the signature.
    outer: Vec<Attribute>,
    pub(crate) sig: Signature,
    /// `#![…]` at the beginning of the body.
    inner: Vec<Attribute>,
    pub(crate) body: Body,
    /// The user's braces. With new ones the function would count as macro-generated code, in which lints are silent.
    braces: Span,
}

/// The code that runs under the lock, by the place where it stands.
pub(crate) enum Body {
    /// In the braces of an `async fn`.
    Async(TokenStream),
    /// In the `async` block that the function returns, as `#[async_trait]` writes it.
    Block(AsyncBlock),
}

/// `async move { … }` or `Box::pin(async move { … })`, and nothing else.
pub(crate) struct AsyncBlock {
    /// `async move`.
    start: Vec<TokenTree>,
    content: TokenStream,
    braces: Span,
    call: Option<Call>,
}

/// The call whose argument is an `async` block.
struct Call {
    /// `Box::pin`.
    start: Vec<TokenTree>,
    comma: Option<Punct>,
    parentheses: Span,
}

impl Function {
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let mut head: Vec<TokenTree> = item.clone().into_iter().collect();
        if !head.iter().any(|tree| is(tree, "fn")) {
            return Err(Error::new_spanned(
                after_attributes(&head),
                "`#[distributed_lock]` is written on an `async fn`; in an `impl` block on each method that needs it",
            ));
        }
        let block = head.pop().as_ref().and_then(braced);
        let head: TokenStream = if block.is_some() { head.into_iter().collect() } else { item };
        // Either rustc has reported the error, or it knows a syntax that `syn` does not. The list of tokens that `syn`
        // expected helps in neither case.
        let (outer, sig) = signature.parse2(head.clone()).map_err(|error| {
            Error::new(error.span(), "`#[distributed_lock]` does not understand this signature")
        })?;
        let Some(block) = block else {
            return Err(Error::new_spanned(
                &sig,
                "`#[distributed_lock]` needs a function body: write it on the method of the `impl`, not in the trait",
            ));
        };

        let (inner, tokens) = content.parse2(block.stream())?;
        let body = if sig.asyncness.is_some() {
            Body::Async(tokens)
        } else {
            Body::Block(AsyncBlock::parse(tokens, &sig)?)
        };
        Ok(Self { head, outer, sig, inner, body, braces: block.span() })
    }

    pub(crate) fn parameters(&self) -> Parameters {
        let mut all = Parameters {
            receiver: None,
            receiver_is_owned: false,
            named: Vec::new(),
            has_hidden_patterns: false,
        };
        let all_may_be_unused = self.outer.iter().chain(&self.inner).any(allows_unused);
        for input in &self.sig.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    all.receiver = Some(Ident::new("self", receiver.self_token.span));
                    all.receiver_is_owned = !matches!(receiver.kind, ReceiverKind::Reference(..));
                }
                FnArg::Typed(typed) => {
                    let cfg: Vec<_> = typed.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
                    let may_be_unused = all_may_be_unused || typed.attrs.iter().any(allows_unused);
                    let shape = Shape::of(typed, &self.sig.generics);
                    for ident in bound_by(&typed.pat) {
                        if matches!(self.body, Body::Block(_)) && ident.to_string().starts_with("__arg") {
                            all.has_hidden_patterns = true;
                        } else {
                            let cfg = cfg.iter().copied().cloned().collect();
                            all.named.push(Parameter { ident, cfg, may_be_unused, shape });
                        }
                    }
                }
            }
        }
        all
    }

    /// Replaces the code under the lock.
    ///
    /// `wrap` gets the content of the block and the span of its braces, and returns the new content.
    pub(crate) fn map(self, wrap: impl FnOnce(TokenStream, Span) -> TokenStream) -> TokenStream {
        let mut content = TokenStream::new();
        content.append_all(self.inner);
        match self.body {
            Body::Async(tokens) => content.extend(wrap(tokens, self.braces)),
            Body::Block(block) => content.append_all(block.map(wrap)),
        }
        let mut item = self.head;
        item.append(group(Delimiter::Brace, content, self.braces));
        item
    }
}

impl AsyncBlock {
    fn parse(body: TokenStream, sig: &Signature) -> Result<Self> {
        let is_entry_point = body.to_string().contains("block_on");
        let trees: Vec<TokenTree> = body.into_iter().collect();
        let Some((before, block)) = Self::split(&trees) else {
            let remedy = if is_entry_point {
                ": write it above `#[tokio::main]`, `#[tokio::test]` and the like, which make the function blocking"
            } else {
                ", or a body that is a single `async` block, like `Box::pin(async move { … })`"
            };
            let message = format!("`#[distributed_lock]` needs an `async fn`{remedy}");
            return Err(Error::new_spanned(sig.fn_token, message));
        };
        match before.first() {
            None => Ok(block),
            Some(code) => Err(Error::new_spanned(
                code,
                "code before the `async` block would run without the lock: move it into the block, or write an \
                 `async fn`",
            )),
        }
    }

    /// Splits `trees` into the block at its end and the tokens before it.
    fn split(trees: &[TokenTree]) -> Option<(&[TokenTree], Self)> {
        let (TokenTree::Group(last), start) = trees.split_last()? else { return None };
        match last.delimiter() {
            Delimiter::Brace => {
                let before = match start {
                    [before @ .., first, second] if is(first, "async") && is(second, "move") => before,
                    [before @ .., first] if is(first, "async") => before,
                    _ => return None,
                };
                let start = start[before.len()..].to_vec();
                Some((before, Self { start, content: last.stream(), braces: last.span(), call: None }))
            }
            Delimiter::Parenthesis => {
                let path = start.iter().rev().take_while(|tree| is_in_path(tree)).count();
                let (before, path) = start.split_at(start.len() - path);
                let [.., name, _, _, function] = path else { return None };
                if !is(name, "Box") || !is(function, "pin") {
                    return None;
                }
                let arguments: Vec<TokenTree> = last.stream().into_iter().collect();
                let (argument, comma) = match arguments.as_slice() {
                    [argument @ .., TokenTree::Punct(comma)] => (argument, Some(comma.clone())),
                    argument => (argument, None),
                };
                let (attributes, block) = Self::split(argument).filter(|(_, block)| block.call.is_none())?;
                let start = attributes.iter().cloned().chain(block.start).collect();
                let call = Call { start: path.to_vec(), comma, parentheses: last.span() };
                Some((before, Self { start, call: Some(call), ..block }))
            }
            _ => None,
        }
    }

    fn map(self, wrap: impl FnOnce(TokenStream, Span) -> TokenStream) -> TokenStream {
        let mut block: TokenStream = self.start.into_iter().collect();
        block.append(group(Delimiter::Brace, wrap(self.content, self.braces), self.braces));
        let Some(call) = self.call else { return block };
        block.append_all(call.comma);
        let mut tokens: TokenStream = call.start.into_iter().collect();
        tokens.append(group(Delimiter::Parenthesis, block, call.parentheses));
        tokens
    }
}

/// Parses a signature with its attributes and visibility, and the semicolon after a declaration.
fn signature(input: ParseStream<'_>) -> Result<(Vec<Attribute>, Signature)> {
    let outer = input.call(Attribute::parse_outer)?;
    input.parse::<Visibility>()?;
    let sig = input.parse()?;
    input.parse::<Option<Token![;]>>()?;
    Ok((outer, sig))
}

/// Parses a body into its inner attributes and the rest.
fn content(input: ParseStream<'_>) -> Result<(Vec<Attribute>, TokenStream)> {
    Ok((input.call(Attribute::parse_inner)?, input.parse()?))
}

/// Returns the first token of an item after its attributes.
fn after_attributes(item: &[TokenTree]) -> Option<&TokenTree> {
    let mut rest = item;
    while let [TokenTree::Punct(pound), TokenTree::Group(_), after @ ..] = rest
        && pound.as_char() == '#'
    {
        rest = after;
    }
    rest.first()
}

/// Returns `tree` if it is a block, also inside the invisible delimiters of a `macro_rules!` macro.
fn braced(tree: &TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = tree else { return None };
    match group.delimiter() {
        Delimiter::Brace => Some(group.clone()),
        Delimiter::None => {
            let mut inside = group.stream().into_iter();
            let only = inside.next().as_ref().and_then(braced);
            only.filter(|_| inside.next().is_none())
        }
        _ => None,
    }
}

fn is(tree: &TokenTree, name: &str) -> bool {
    matches!(tree, TokenTree::Ident(ident) if ident == name)
}

fn is_in_path(tree: &TokenTree) -> bool {
    match tree {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(punct) => punct.as_char() == ':',
        _ => false,
    }
}

#[cfg(test)]
mod tests;
