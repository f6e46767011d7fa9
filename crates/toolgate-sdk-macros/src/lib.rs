//! The attribute `#[tool]`, re-exported by `toolgate-sdk`. Guide: docs/sdk.md.
//!
//! It generates one function that calls the builder, and nothing that the builder cannot do. Invariant: every mistake
//! that can be detected at compile time is a compile error, at its place in the source.

use proc_macro::TokenStream;

mod expand;
mod keys;

/// Turns a function into a tool: keeps `create_card` as it is, and adds `create_card_tool`, which builds the tool.
///
/// The doc comment is the description. The function takes its parameters struct, optionally a state before it (cloned
/// for every call, and passed to `create_card_tool`) and a `Context` after it. It returns a `Result` of data, or of an
/// `Answer` with hints. It may be `async`.
///
/// | Key | |
/// |---|---|
/// | `version = "1.0.0"` | required |
/// | `category = query` | required: `query`, `mutation`, `analysis` or `generation` |
/// | `response_time = fast` | required: `fast`, `medium` or `slow` |
/// | `idempotent = true` | required; must be true for a query |
/// | `cacheable = true, cache_ttl = "1h"` | required; must be `cacheable = false` for a mutation |
/// | `permissions = ["cards:create"]` | required; `[]` if none are needed |
/// | `tags = ["cards"]` | required; at least one |
/// | `example(description = "…", params = { … }, result = { … })` | at least one; `result` is optional |
/// | `name = "create-card"` | default: the name of the function in kebab-case |
/// | `timeout = "5s"`, `max_instances = 4` | optional |
/// | `rate_limit(max_calls = 60, window = "1m")` | optional |
/// | `follow_up(action = "review-card", priority = high, description = "…", after = ["…"])` | any number |
/// | `deprecated(since = "2.0.0", replacement = "make-card", removal_date = "2027-03-31")` | optional |
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = expand::expand(attribute.into(), item.clone().into());
    // Keep the function on error too, so that the compiler does not report it as missing as well.
    expanded
        .map(TokenStream::from)
        .unwrap_or_else(|error| TokenStream::from_iter([item, error.to_compile_error().into()]))
}
