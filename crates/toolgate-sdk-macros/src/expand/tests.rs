//! Compile errors of incomplete tools.

use super::*;

const GOOD: &str = r#"version = "1.0.0", category = query, response_time = fast, idempotent = true,
    cacheable = false, permissions = [], tags = ["a"], example(description = "One", params = {})"#;

fn expansion_error(attribute: &str, function: &str) -> String {
    let (attribute, function) = (attribute.parse().unwrap(), function.parse().unwrap());
    expand(attribute, function).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn rejects_broken_rules() {
    let check = |from: &str, to: &str, expected: &str| {
        assert!(GOOD.contains(from), "{from}");
        assert_eq!(
            expansion_error(&GOOD.replace(from, to), "fn get_card(params: P) -> R {}"),
            expected,
            "{to}"
        );
    };
    check("", "", "");
    check(r#"version = "1.0.0","#, "", "`#[tool]` needs `version = …`");
    check(
        "category = query, response_time = fast,",
        "",
        "the full contract needs `category`, `response_time`",
    );
    check("query", "reading", "expected one of `query`, `mutation`, `analysis`, `generation`");
    check("idempotent = true", "idempotent = false", "a query is idempotent: it changes nothing");
    check("cacheable = false", "cacheable = true", "a cacheable tool needs `cache_ttl`, such as `\"1h\"`");
    check(
        "category = query, response_time = fast, idempotent = true,\n    cacheable = false",
        "category = mutation, response_time = fast, idempotent = true, cacheable = true",
        "a mutation is not cacheable: it has to happen",
    );
    check("tags = [\"a\"]", "tags = []", "a tool has at least one tag");
    check(
        r#", example(description = "One", params = {})"#,
        "",
        "a tool has at least one `example(description = …, params = …, result = …)`",
    );
    check("params = {}", "parms = {}", "unknown key `parms`; known keys: `description`, `params`, `result`");
    check("fast,", "fast, response_time = slow,", "duplicate key `response_time`");
    check("fast,", "fast, example = 1,", "write `example(…)`");
    check("response_time = fast", "response_time()", "write `response_time = …`");
    assert!(
        expansion_error(&format!("{GOOD}, colour = 1"), "fn a(p: P) -> R {}")
            .starts_with("unknown key `colour`; known keys:")
    );
}

#[test]
fn checks_arguments_of_function() {
    for (function, expected) in [
        ("fn get_card(params: P, context: Context) -> R {}", ""),
        ("async fn get_card(state: S, params: P, context: toolgate_sdk::Context) -> R {}", ""),
        ("fn get_card(state: S, params: P) -> R {}", ""),
        (
            "fn get_card() -> R {}",
            "a tool takes `(params)`, optionally with a state before and a `Context` after it",
        ),
        (
            "fn get_card(a: A, b: B, c: C) -> R {}",
            "a tool takes `(params)`, optionally with a state before and a `Context` after it",
        ),
        (
            "fn get_card(&self, params: P) -> R {}",
            "a tool must be a free function: take the state as the first argument",
        ),
        (
            "fn get_card(state: &S, params: P) -> R {}",
            "a tool takes its arguments by value: use `Arc<…>` or the type itself",
        ),
        ("fn get_card<T>(params: T) -> R {}", "a tool has no type parameters"),
    ] {
        assert_eq!(expansion_error(GOOD, function), expected, "{function}");
    }
}
