//! Expands a function and its keys to a call of the builder.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprArray, ExprLit, FnArg, Ident, ItemFn, Lit, Meta, PatType, Result, Type};

use crate::keys::{KeyEntries, literal_bool};

const KEYS: [&str; 16] = [
    "name",
    "version",
    "category",
    "response_time",
    "idempotent",
    "cacheable",
    "cache_ttl",
    "permissions",
    "tags",
    "example",
    "timeout",
    "max_instances",
    "rate_limit",
    "follow_up",
    "deprecated",
    "description",
];

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let mut keys = KeyEntries::parse_tokens(attribute)?;
    keys.reject_unknown(&KEYS)?;
    let name = function.sig.ident.clone();
    let signature = ToolSignature::parse(&function)?;
    let identity = expand_identity(&mut keys, &function)?;
    let contract = expand_contract(&mut keys, name.span())?;
    let lists = expand_lists(&mut keys, name.span())?;
    let (visibility, maker) = (&function.vis, format_ident!("{name}_tool"));
    let (state, run) = (signature.state.iter(), signature.closure(&name, function.sig.asyncness.is_some()));
    let doc = format!(
        "Builds the tool of [`{name}`].\n\n# Errors\nIf the definition breaks rules of the full contract; the error lists all of them."
    );
    Ok(quote! {
        #function

        #[doc = #doc]
        #visibility fn #maker(#(state: #state)*) -> ::core::result::Result<::toolgate_sdk::Tool, ::toolgate_sdk::ContractError> {
            #identity
                #contract
                #lists
                .build(#run)
        }
    })
}

/// Arguments of the function: `(state, params, context)`. Only `params` is required.
struct ToolSignature {
    state: Option<Type>,
    params: Type,
    context: bool,
}

impl ToolSignature {
    fn parse(function: &ItemFn) -> Result<Self> {
        let signature = &function.sig;
        if !signature.generics.params.is_empty() {
            return Err(Error::new(signature.generics.span(), "a tool has no type parameters"));
        }
        let mut types = Vec::new();
        for argument in &signature.inputs {
            match argument {
                FnArg::Typed(PatType { ty, .. }) => types.push((**ty).clone()),
                FnArg::Receiver(receiver) => {
                    let message = "a tool must be a free function: take the state as the first argument";
                    return Err(Error::new(receiver.span(), message));
                }
            }
        }
        let context = types.len() > 1 && types.last().is_some_and(is_context);
        if context {
            types.pop();
        }
        if let Some(reference) = types.iter().find(|ty| matches!(ty, Type::Reference(_))) {
            let message = "a tool takes its arguments by value: use `Arc<…>` or the type itself";
            return Err(Error::new(reference.span(), message));
        }
        let (params, state) = (types.pop(), types.pop());
        match (params, types.is_empty()) {
            (Some(params), true) => Ok(Self { state, params, context }),
            _ => {
                let message =
                    "a tool takes `(params)`, optionally with a state before and a `Context` after it";
                Err(Error::new(signature.ident.span(), message))
            }
        }
    }

    /// Returns the closure for the builder.
    fn closure(&self, name: &Ident, is_async: bool) -> TokenStream {
        let Self { state, params, context } = self;
        let cloned = state.as_ref().map(|_| quote!(let state = ::core::clone::Clone::clone(&state);));
        let state = state.as_ref().map(|_| quote!(state,));
        let (pattern, context) =
            if *context { (quote!(context), quote!(context)) } else { (quote!(_), quote!()) };
        let awaited = is_async.then(|| quote!(.await));
        quote! {
            move |params: #params, #pattern: ::toolgate_sdk::Context| {
                #cloned
                async move { #name(#state params, #context) #awaited }
            }
        }
    }
}

fn is_context(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Context" || last.ident == "ToolContext"))
}

/// Expands name, description and version, which are checked at compile time.
fn expand_identity(keys: &mut KeyEntries, function: &ItemFn) -> Result<TokenStream> {
    let ident = &function.sig.ident;
    let name = keys.take("name")?.unwrap_or_else(|| {
        let text = ident.to_string().replace('_', "-");
        quote_spanned!(ident.span() => #text)
    });
    let description = match keys.take("description")? {
        Some(description) => description,
        None => {
            let text = doc_comment(function);
            quote_spanned!(ident.span() => #text)
        }
    };
    let version = keys.take_required("version", ("#[tool]", ident.span()))?;
    let name_rule = "the name of a tool is a verb and a noun in kebab-case, such as `create-card`";
    let length_rule =
        "the doc comment of a tool has at least 50 characters: what it does, when to use it, what it returns";
    let version_rule = "the version of a tool is three numbers, such as `1.2.3`";
    let rules = [
        const_assertion(&name, "is_verb_noun", name_rule),
        const_assertion(&description, "is_sufficient_description", length_rule),
        const_assertion(&version, "is_semantic_version", version_rule),
    ];
    Ok(quote! {
        #(#rules)*
        ::toolgate_sdk::Tool::builder(#name)
            .description(#description)
            .version(#version)
    })
}

/// Returns a check of one contract rule at compile time.
fn const_assertion(value: &TokenStream, function: &str, message: &str) -> TokenStream {
    let function = format_ident!("{function}");
    quote_spanned!(value.span() => const _: () = assert!(::toolgate_sdk::contract::#function(#value), #message);)
}

fn doc_comment(function: &ItemFn) -> String {
    let line = |meta: &Meta| match meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    let lines: Vec<_> = function.attrs.iter().filter_map(|attribute| line(&attribute.meta)).collect();
    // A line break in a doc comment is a space; an empty line separates paragraphs.
    let paragraphs = lines.split(String::is_empty).filter(|paragraph| !paragraph.is_empty());
    paragraphs.map(|paragraph| paragraph.join(" ")).collect::<Vec<_>>().join("\n\n")
}

/// Expands the keys with a single value.
fn expand_contract(keys: &mut KeyEntries, span: Span) -> Result<TokenStream> {
    let within = ("#[tool]", span);
    let needed = ["category", "response_time", "idempotent", "cacheable", "permissions", "tags"];
    let missing: Vec<_> =
        needed.iter().filter(|key| !keys.0.iter().any(|entry| entry.name == **key)).copied().collect();
    if !missing.is_empty() {
        let message = format!("the full contract needs `{}`", missing.join("`, `"));
        return Err(Error::new(span, message));
    }
    let category = keys.take_required("category", within)?;
    let (category_name, category) =
        parse_variant(&category, "Category", &["query", "mutation", "analysis", "generation"])?;
    let (_, response_time) = parse_variant(
        &keys.take_required("response_time", within)?,
        "ResponseTime",
        &["fast", "medium", "slow"],
    )?;
    let (idempotent, cacheable) =
        (keys.take_required("idempotent", within)?, keys.take_required("cacheable", within)?);
    if category_name == "query" && literal_bool(&idempotent) == Some(false) {
        return Err(Error::new(idempotent.span(), "a query is idempotent: it changes nothing"));
    }
    if category_name == "mutation" && literal_bool(&cacheable) == Some(true) {
        return Err(Error::new(cacheable.span(), "a mutation is not cacheable: it has to happen"));
    }
    let ttl = keys.take("cache_ttl")?;
    if literal_bool(&cacheable) == Some(true) && ttl.is_none() {
        return Err(Error::new(cacheable.span(), "a cacheable tool needs `cache_ttl`, such as `\"1h\"`"));
    }
    let ttl = ttl.map(|ttl| quote!(.cache_ttl(#ttl)));
    let (permissions, tags) =
        (keys.take_required("permissions", within)?, keys.take_required("tags", within)?);
    let array: ExprArray = syn::parse2(permissions.clone())?;
    let rules = array.elems.iter().map(|permission| {
        let message = "a permission is `resource:action`, such as `cards:create`";
        const_assertion(&quote!(#permission), "is_permission", message)
    });
    if syn::parse2::<ExprArray>(tags.clone())?.elems.is_empty() {
        return Err(Error::new(tags.span(), "a tool has at least one tag"));
    }
    let timeout = keys.take("timeout")?.map(|timeout| quote!(.timeout(#timeout)));
    let most = keys.take("max_instances")?.map(|most| {
        quote!(.max_instances(const { ::core::num::NonZeroU32::new(#most).expect("at least one call may run") }))
    });
    Ok(quote! {
        .category(#category)
        .response_time(#response_time)
        .idempotent(#idempotent)
        .cacheable(#cacheable)
        #ttl
        .permissions({ #(#rules)* #permissions })
        .tags(#tags)
        #timeout
        #most
    })
}

/// Expands the keys with nested keys.
fn expand_lists(keys: &mut KeyEntries, span: Span) -> Result<TokenStream> {
    let mut calls = Vec::new();
    let examples = keys.take_lists("example")?;
    if examples.is_empty() {
        return Err(Error::new(
            span,
            "a tool has at least one `example(description = …, params = …, result = …)`",
        ));
    }
    for (span, mut example) in examples {
        let within = ("example", span);
        example.reject_unknown(&["description", "params", "result"])?;
        let (description, params) =
            (example.take_required("description", within)?, example.take_required("params", within)?);
        calls.push(match example.take("result")? {
            Some(result) => {
                quote!(.example(#description, ::toolgate_sdk::json!(#params), ::toolgate_sdk::json!(#result)))
            }
            None => quote!(.example_call(#description, ::toolgate_sdk::json!(#params))),
        });
    }
    for (span, mut step) in keys.take_lists("follow_up")? {
        let within = ("follow_up", span);
        step.reject_unknown(&["action", "priority", "description", "after"])?;
        let (action, description) =
            (step.take_required("action", within)?, step.take_required("description", within)?);
        let (_, priority) = parse_variant(
            &step.take_required("priority", within)?,
            "hints::Severity",
            &["critical", "high", "medium", "low"],
        )?;
        let after = step.take("after")?.unwrap_or_else(|| quote!([]));
        calls.push(quote!(.follow_up_after(#action, #priority, #description, #after)));
    }
    for (span, mut limit) in keys.take_lists("rate_limit")? {
        let within = ("rate_limit", span);
        limit.reject_unknown(&["max_calls", "window"])?;
        let (most, window) =
            (limit.take_required("max_calls", within)?, limit.take_required("window", within)?);
        calls.push(quote!(.rate_limit(#most, #window)));
    }
    for (span, mut deprecation) in keys.take_lists("deprecated")? {
        let within = ("deprecated", span);
        deprecation.reject_unknown(&["since", "replacement", "removal_date"])?;
        let (since, replacement) =
            (deprecation.take_required("since", within)?, deprecation.take_required("replacement", within)?);
        let date = deprecation.take_required("removal_date", within)?;
        calls.push(quote!(.deprecated(#since, #replacement, #date)));
    }
    Ok(quote!(#(#calls)*))
}

/// Converts a word to the enum variant of that name.
fn parse_variant(tokens: &TokenStream, of: &str, words: &[&str]) -> Result<(String, TokenStream)> {
    let word = syn::parse2::<Ident>(tokens.clone()).map(|word| word.to_string()).unwrap_or_default();
    if !words.contains(&word.as_str()) {
        return Err(Error::new(tokens.span(), format!("expected one of `{}`", words.join("`, `"))));
    }
    let (first, rest) = word.split_at(1);
    let variant = format_ident!("{}{rest}", first.to_ascii_uppercase(), span = tokens.span());
    let path: syn::Path = syn::parse_str(&format!("::toolgate_sdk::{of}"))?;
    Ok((word, quote!(#path::#variant)))
}

#[cfg(test)]
mod tests;
