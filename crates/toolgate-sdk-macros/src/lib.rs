//! The attribute `#[tool]` of `toolgate-sdk`. Its documentation is there: docs/sdk.md.
//!
//! It writes one function that calls the builder, and nothing that the builder cannot do. Invariant: what can be
//! known to be wrong while a program is compiled is an error of the compiler, at the place where it is written.

use proc_macro::TokenStream;

mod expand;
mod keys;

/// Makes a tool of a function: `create_card` stays as it is, and beside it stands `create_card_tool`, which
/// gives the tool.
///
/// The doc comment is the description. The function takes its parameters struct, before it a state where there
/// is one (cloned for every call, and the argument of `create_card_tool`), and after it a `Context` where it
/// wants one. It returns a `Result` of data, or of an `Answer` with hints. It may be `async`.
///
/// | Key | |
/// |---|---|
/// | `version = "1.0.0"` | needed |
/// | `category = query` | needed: `query`, `mutation`, `analysis` or `generation` |
/// | `response_time = fast` | needed: `fast`, `medium` or `slow` |
/// | `idempotent = true` | needed; true for a query |
/// | `cacheable = true, cache_ttl = "1h"` | needed; `cacheable = false` for a mutation |
/// | `permissions = ["cards:create"]` | needed, if only as `[]` |
/// | `tags = ["cards"]` | needed, at least one |
/// | `example(description = "…", params = { … }, result = { … })` | at least one; `result` may be left out |
/// | `name = "create-card"` | the name of the function, where it is left out |
/// | `timeout = "5s"`, `max_instances = 4` | |
/// | `rate_limit(max_calls = 60, window = "1m")` | |
/// | `follow_up(action = "review-card", priority = high, description = "…", after = ["…"])` | any number |
/// | `deprecated(since = "2.0.0", replacement = "make-card", removal_date = "2027-03-31")` | |
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = expand::expand(attribute.into(), item.clone().into());
    // The function stays, so that what is said is said once.
    expanded
        .map(TokenStream::from)
        .unwrap_or_else(|error| TokenStream::from_iter([item, error.to_compile_error().into()]))
}
