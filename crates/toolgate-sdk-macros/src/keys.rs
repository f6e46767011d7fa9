//! Parses the keys in `#[tool(…)]`: each has a value, or nested keys.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Ident, LitBool, Result, Token, parenthesized};

/// Key with its value or nested keys.
pub(crate) struct KeyEntry {
    pub(crate) name: Ident,
    pub(crate) value: KeyValue,
}

pub(crate) enum KeyValue {
    /// Everything up to the next comma.
    Tokens(TokenStream),
    /// `name(key = value, …)`.
    Entries(KeyEntries),
}

/// Keys in the order of the source.
pub(crate) struct KeyEntries(pub(crate) Vec<KeyEntry>);

impl Parse for KeyEntries {
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

impl Parse for KeyEntry {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.call(Ident::parse_any)?;
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            return Ok(Self { name, value: KeyValue::Entries(content.parse()?) });
        }
        input.parse::<Token![=]>()?;
        let mut tokens = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            tokens.extend([input.parse::<TokenTree>()?]);
        }
        if tokens.is_empty() {
            return Err(Error::new(name.span(), format!("`{name}` has no value")));
        }
        Ok(Self { name, value: KeyValue::Tokens(tokens) })
    }
}

impl KeyEntries {
    pub(crate) fn parse_tokens(tokens: TokenStream) -> Result<Self> {
        Parser::parse2(Self::parse, tokens)
    }

    /// Removes and returns the value of a key that may occur once.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<TokenStream>> {
        let mut found = None;
        for entry in self.take_all(name) {
            let KeyValue::Tokens(tokens) = entry.value else {
                return Err(Error::new(entry.name.span(), format!("write `{name} = …`")));
            };
            if found.replace(tokens).is_some() {
                return Err(Error::new(entry.name.span(), format!("duplicate key `{name}`")));
            }
        }
        Ok(found)
    }

    /// Removes and returns every key of a name, with its nested keys.
    pub(crate) fn take_lists(&mut self, name: &str) -> Result<Vec<(Span, Self)>> {
        let list = |entry: KeyEntry| match entry.value {
            KeyValue::Entries(entries) => Ok((entry.name.span(), entries)),
            KeyValue::Tokens(_) => Err(Error::new(entry.name.span(), format!("write `{name}(…)`"))),
        };
        self.take_all(name).into_iter().map(list).collect()
    }

    fn take_all(&mut self, name: &str) -> Vec<KeyEntry> {
        let (taken, rest) = std::mem::take(&mut self.0).into_iter().partition(|entry| entry.name == name);
        self.0 = rest;
        taken
    }

    /// Removes and returns the value of a required key.
    pub(crate) fn take_required(&mut self, name: &str, within: (&str, Span)) -> Result<TokenStream> {
        let missing = || Error::new(within.1, format!("`{}` needs `{name} = …`", within.0));
        self.take(name)?.ok_or_else(missing)
    }

    /// Rejects unknown keys. Called before missing keys are reported, since a misspelled key is often the cause.
    pub(crate) fn reject_unknown(&self, known: &[&str]) -> Result<()> {
        match self.0.iter().find(|entry| !known.iter().any(|known| entry.name == known)) {
            None => Ok(()),
            Some(KeyEntry { name, .. }) => {
                let message = format!("unknown key `{name}`; known keys: `{}`", known.join("`, `"));
                Err(Error::new(name.span(), message))
            }
        }
    }
}

/// Returns the value if it is a literal `true` or `false`; `None` if it is an expression.
pub(crate) fn literal_bool(tokens: &TokenStream) -> Option<bool> {
    syn::parse2::<LitBool>(tokens.clone()).ok().map(|value| value.value)
}
