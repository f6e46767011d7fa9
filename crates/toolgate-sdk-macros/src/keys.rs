//! What stands in the brackets of `#[tool(…)]`: keys with values, and keys with keys of their own.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Ident, LitBool, Result, Token, parenthesized};

/// A key with its value, or with keys of its own.
pub(crate) struct Entry {
    pub(crate) name: Ident,
    pub(crate) value: Value,
}

pub(crate) enum Value {
    /// All up to the next comma.
    Tokens(TokenStream),
    /// `name(key = value, …)`.
    Entries(Entries),
}

/// Keys, in their order.
pub(crate) struct Entries(pub(crate) Vec<Entry>);

impl Parse for Entries {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut entries = Vec::new();
        while !input.is_empty() {
            entries.push(input.parse()?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self(entries))
    }
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.call(Ident::parse_any)?;
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            return Ok(Self { name, value: Value::Entries(content.parse()?) });
        }
        input.parse::<Token![=]>()?;
        let mut tokens = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            tokens.extend([input.parse::<TokenTree>()?]);
        }
        if tokens.is_empty() {
            return Err(Error::new(name.span(), format!("`{name}` has no value")));
        }
        Ok(Self { name, value: Value::Tokens(tokens) })
    }
}

impl Entries {
    pub(crate) fn read(tokens: TokenStream) -> Result<Self> {
        Parser::parse2(Self::parse, tokens)
    }

    /// Takes the value of a key that may be there once.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<TokenStream>> {
        let mut found = None;
        for entry in self.take_all(name) {
            let Value::Tokens(tokens) = entry.value else {
                return Err(Error::new(entry.name.span(), format!("write `{name} = …`")));
            };
            if found.replace(tokens).is_some() {
                return Err(Error::new(entry.name.span(), format!("`{name}` is there twice")));
            }
        }
        Ok(found)
    }

    /// Takes every key of a name with the keys it has.
    pub(crate) fn take_lists(&mut self, name: &str) -> Result<Vec<(Span, Self)>> {
        let list = |entry: Entry| match entry.value {
            Value::Entries(entries) => Ok((entry.name.span(), entries)),
            Value::Tokens(_) => Err(Error::new(entry.name.span(), format!("write `{name}(…)`"))),
        };
        self.take_all(name).into_iter().map(list).collect()
    }

    fn take_all(&mut self, name: &str) -> Vec<Entry> {
        let (taken, rest) = std::mem::take(&mut self.0).into_iter().partition(|entry| entry.name == name);
        self.0 = rest;
        taken
    }

    /// Takes the value of a key that must be there.
    pub(crate) fn need(&mut self, name: &str, within: (&str, Span)) -> Result<TokenStream> {
        let missing = || Error::new(within.1, format!("`{}` needs `{name} = …`", within.0));
        self.take(name)?.ok_or_else(missing)
    }

    /// Refuses a key that is none: it is said before what is missing, of which it is mostly the reason.
    pub(crate) fn know(&self, known: &[&str]) -> Result<()> {
        match self.0.iter().find(|entry| !known.iter().any(|known| entry.name == known)) {
            None => Ok(()),
            Some(Entry { name, .. }) => {
                let message = format!("unknown key `{name}`; there are `{}`", known.join("`, `"));
                Err(Error::new(name.span(), message))
            }
        }
    }
}

/// Whether a value is `true` or `false` as written; `None` where it is worked out.
pub(crate) fn literal(tokens: &TokenStream) -> Option<bool> {
    syn::parse2::<LitBool>(tokens.clone()).ok().map(|value| value.value)
}
