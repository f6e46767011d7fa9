//! A function and its keys become a call of the builder.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprArray, ExprLit, FnArg, Ident, ItemFn, Lit, Meta, PatType, Result, Type};

use crate::keys::{Entries, literal};

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
    let mut keys = Entries::read(attribute)?;
    keys.know(&KEYS)?;
    let name = function.sig.ident.clone();
    let signature = Signature::read(&function)?;
    let about = about(&mut keys, &function)?;
    let contract = contract(&mut keys, name.span())?;
    let lists = lists(&mut keys, name.span())?;
    let (visibility, maker) = (&function.vis, format_ident!("{name}_tool"));
    let (state, run) = (signature.state.iter(), signature.run(&name, function.sig.asyncness.is_some()));
    let doc = format!(
        "The tool that [`{name}`] is.\n\n# Errors\nEvery rule of the full contract that it does not keep."
    );
    Ok(quote! {
        #function

        #[doc = #doc]
        #visibility fn #maker(#(state: #state)*) -> ::core::result::Result<::toolgate_sdk::Tool, ::toolgate_sdk::Unmet> {
            #about
                #contract
                #lists
                .build(#run)
        }
    })
}

/// What a function takes: `(state, params, context)`, of which only the second is needed.
struct Signature {
    state: Option<Type>,
    params: Type,
    context: bool,
}

impl Signature {
    fn read(function: &ItemFn) -> Result<Self> {
        let signature = &function.sig;
        if !signature.generics.params.is_empty() {
            return Err(Error::new(signature.generics.span(), "a tool has no type parameters"));
        }
        let mut types = Vec::new();
        for argument in &signature.inputs {
            match argument {
                FnArg::Typed(PatType { ty, .. }) => types.push((**ty).clone()),
                FnArg::Receiver(receiver) => {
                    let message = "a tool is a function of its own: take the state as the first argument";
                    return Err(Error::new(receiver.span(), message));
                }
            }
        }
        let context = types.len() > 1 && types.last().is_some_and(is_context);
        if context {
            types.pop();
        }
        if let Some(reference) = types.iter().find(|ty| matches!(ty, Type::Reference(_))) {
            let message = "a tool owns what it takes: write `Arc<…>`, or the type itself";
            return Err(Error::new(reference.span(), message));
        }
        let (params, state) = (types.pop(), types.pop());
        match (params, types.is_empty()) {
            (Some(params), true) => Ok(Self { state, params, context }),
            _ => {
                let message =
                    "a tool takes `(params)`, with a state before it and a `Context` after it if it likes";
                Err(Error::new(signature.ident.span(), message))
            }
        }
    }

    /// The closure for the builder.
    fn run(&self, name: &Ident, is_async: bool) -> TokenStream {
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

/// Name, description and version, which are looked at while the program is compiled.
fn about(keys: &mut Entries, function: &ItemFn) -> Result<TokenStream> {
    let ident = &function.sig.ident;
    let name = keys.take("name")?.unwrap_or_else(|| {
        let text = ident.to_string().replace('_', "-");
        quote_spanned!(ident.span() => #text)
    });
    let description = match keys.take("description")? {
        Some(description) => description,
        None => {
            let text = doc(function);
            quote_spanned!(ident.span() => #text)
        }
    };
    let version = keys.need("version", ("#[tool]", ident.span()))?;
    let name_rule = "the name of a tool is a verb and a noun in kebab-case, such as `create-card`";
    let length_rule =
        "the doc comment of a tool has at least 50 characters: what it does, when to use it, what it returns";
    let version_rule = "the version of a tool is three numbers, such as `1.2.3`";
    let rules = [
        rule(&name, "is_verb_noun", name_rule),
        rule(&description, "is_description", length_rule),
        rule(&version, "is_semantic", version_rule),
    ];
    Ok(quote! {
        #(#rules)*
        ::toolgate_sdk::Tool::builder(#name)
            .description(#description)
            .version(#version)
    })
}

/// A rule that the compiler holds.
fn rule(value: &TokenStream, function: &str, message: &str) -> TokenStream {
    let function = format_ident!("{function}");
    quote_spanned!(value.span() => const _: () = assert!(::toolgate_sdk::contract::#function(#value), #message);)
}

fn doc(function: &ItemFn) -> String {
    let line = |meta: &Meta| match meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    let lines: Vec<_> = function.attrs.iter().filter_map(|attribute| line(&attribute.meta)).collect();
    // A line end in a comment is no line end in a text; an empty line is.
    let paragraphs = lines.split(String::is_empty).filter(|paragraph| !paragraph.is_empty());
    paragraphs.map(|paragraph| paragraph.join(" ")).collect::<Vec<_>>().join("\n\n")
}

/// The keys with one value each.
fn contract(keys: &mut Entries, span: Span) -> Result<TokenStream> {
    let within = ("#[tool]", span);
    let needed = ["category", "response_time", "idempotent", "cacheable", "permissions", "tags"];
    let missing: Vec<_> =
        needed.iter().filter(|key| !keys.0.iter().any(|entry| entry.name == **key)).copied().collect();
    if !missing.is_empty() {
        let message = format!("the full contract needs `{}`", missing.join("`, `"));
        return Err(Error::new(span, message));
    }
    let category = keys.need("category", within)?;
    let (category_name, category) =
        variant(&category, "Category", &["query", "mutation", "analysis", "generation"])?;
    let (_, response_time) =
        variant(&keys.need("response_time", within)?, "ResponseTime", &["fast", "medium", "slow"])?;
    let (idempotent, cacheable) = (keys.need("idempotent", within)?, keys.need("cacheable", within)?);
    if category_name == "query" && literal(&idempotent) == Some(false) {
        return Err(Error::new(idempotent.span(), "a query is idempotent: it changes nothing"));
    }
    if category_name == "mutation" && literal(&cacheable) == Some(true) {
        return Err(Error::new(cacheable.span(), "a mutation is not cacheable: it has to happen"));
    }
    let ttl = keys.take("cache_ttl")?;
    if literal(&cacheable) == Some(true) && ttl.is_none() {
        return Err(Error::new(cacheable.span(), "what is cacheable needs `cache_ttl`, such as `\"1h\"`"));
    }
    let ttl = ttl.map(|ttl| quote!(.cache_ttl(#ttl)));
    let (permissions, tags) = (keys.need("permissions", within)?, keys.need("tags", within)?);
    let array: ExprArray = syn::parse2(permissions.clone())?;
    let rules = array.elems.iter().map(|permission| {
        let message = "a permission is `resource:action`, such as `cards:create`";
        rule(&quote!(#permission), "is_permission", message)
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

/// The keys with keys of their own.
fn lists(keys: &mut Entries, span: Span) -> Result<TokenStream> {
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
        example.know(&["description", "params", "result"])?;
        let (description, params) = (example.need("description", within)?, example.need("params", within)?);
        calls.push(match example.take("result")? {
            Some(result) => {
                quote!(.example(#description, ::toolgate_sdk::json!(#params), ::toolgate_sdk::json!(#result)))
            }
            None => quote!(.example_call(#description, ::toolgate_sdk::json!(#params))),
        });
    }
    for (span, mut step) in keys.take_lists("follow_up")? {
        let within = ("follow_up", span);
        step.know(&["action", "priority", "description", "after"])?;
        let (action, description) = (step.need("action", within)?, step.need("description", within)?);
        let (_, priority) = variant(
            &step.need("priority", within)?,
            "hints::Severity",
            &["critical", "high", "medium", "low"],
        )?;
        let after = step.take("after")?.unwrap_or_else(|| quote!([]));
        calls.push(quote!(.follow_up_after(#action, #priority, #description, #after)));
    }
    for (span, mut limit) in keys.take_lists("rate_limit")? {
        let within = ("rate_limit", span);
        limit.know(&["max_calls", "window"])?;
        let (most, window) = (limit.need("max_calls", within)?, limit.need("window", within)?);
        calls.push(quote!(.rate_limit(#most, #window)));
    }
    for (span, mut gone) in keys.take_lists("deprecated")? {
        let within = ("deprecated", span);
        gone.know(&["since", "replacement", "removal_date"])?;
        let (since, replacement) = (gone.need("since", within)?, gone.need("replacement", within)?);
        let date = gone.need("removal_date", within)?;
        calls.push(quote!(.deprecated(#since, #replacement, #date)));
    }
    Ok(quote!(#(#calls)*))
}

/// A word as the variant of an enum that has it.
fn variant(tokens: &TokenStream, of: &str, words: &[&str]) -> Result<(String, TokenStream)> {
    let word = syn::parse2::<Ident>(tokens.clone()).map(|word| word.to_string()).unwrap_or_default();
    if !words.contains(&word.as_str()) {
        return Err(Error::new(tokens.span(), format!("it is one of `{}`", words.join("`, `"))));
    }
    let (first, rest) = word.split_at(1);
    let variant = format_ident!("{}{rest}", first.to_ascii_uppercase(), span = tokens.span());
    let path: syn::Path = syn::parse_str(&format!("::toolgate_sdk::{of}"))?;
    Ok((word, quote!(#path::#variant)))
}

#[cfg(test)]
mod tests;
