//! Entries of `tools.json` in the words of service manifests and of tool contracts.

use super::{config, errors, loaded, outline, told};

/// What comes of one tool.
fn tool(entry: &str) -> toolgate_config::Loaded {
    let text = format!(r#"{{"tools": [{entry}]}}"#);
    loaded(&[("tools.json", &text), ("get-card.py", ""), ("delete_file.py", "")], &[])
}

const MANIFEST: &str = r#"{
    "name": "get-card",
    "version": "2.1.0",
    "description": "Retrieves a card by ID.",
    "service": "content-service",
    "priority": "P1",
    "scopeRequirement": {
      "match": "all",
      "requiredScopes": ["cards:read", "decks:read"],
      "optionalScopes": ["users:read"],
      "deniedScopes": []
    },
    "capabilities": { "idempotent": true, "sideEffects": false, "timeoutMs": 2500, "costClass": "low" },
    "inputSchema": { "type": "object", "properties": { "cardId": { "type": "string" } } },
    "outputSchema": { "type": "object" },
    "rateLimit": { "requestsPerMinute": 120, "burst": 20, "concurrency": 4 },
    "deprecation": { "deprecated": true, "sunsetAt": "2027-06-30T00:00:00Z", "replacementTool": "get-card-v2" }
  }"#;

const CONTRACT: &str = r#"{
    "name": "delete_file",
    "description": "Deletes a file.",
    "version": "0.3.0",
    "risk": "write",
    "input_schema": { "type": "object" },
    "output_schema": { "type": "object" },
    "required_scopes": ["files:delete"],
    "idempotency": { "required": true, "key_field": "request_id" },
    "data_handling": { "pii": "none", "secrets": false },
    "constraints": { "requires_network": false, "requires_write": true, "max_runtime_ms": 5000 },
    "permissions": { "read_paths": [], "write_paths": ["data"] },
    "metadata": { "owner": "ops" }
  }"#;

#[test]
fn a_tool_of_a_service_manifest() {
    insta::assert_snapshot!(outline(&tool(MANIFEST)));
}

#[test]
fn a_tool_contract() {
    insta::assert_snapshot!(outline(&tool(CONTRACT)));
}

/// One key of a tool that is otherwise good.
fn key(keys: &str) -> toolgate_config::Loaded {
    tool(&format!(r#"{{"name": "get-card", "description": "d", "input_schema": {{}}, {keys}}}"#))
}

#[test]
fn risks_and_side_effects_are_categories() {
    let category = |keys: &str| config(&key(keys))["tools"][0]["category"].clone();
    assert_eq!(category(r#""risk": "read""#), "query");
    assert_eq!(category(r#""risk": "write""#), "mutation");
    assert_eq!(category(r#""risk": "admin""#), "mutation");
    assert_eq!(category(r#""capabilities": {"sideEffects": true}"#), "mutation");
    assert_eq!(category(r#""capabilities": {"sideEffects": ["email"]}"#), "mutation");
    assert_eq!(category(r#""capabilities": {"sideEffects": false}"#), serde_json::Value::Null);
    assert_eq!(
        errors(&key(r#""risk": "wild""#)),
        [
            "tools.json:1:73 `risk` in tool `get-card` is not used: it is neither `read` nor `write` nor `admin`"
        ]
    );
}

/// A mutation is never cached, in whatever words it is said to be one.
#[test]
fn our_rules_hold_for_them_too() {
    let told = errors(&key(r#""risk": "admin", "cacheable": true, "cacheTTL": 60"#));
    assert!(told[0].contains("a mutation cannot be cached in tool `get-card`"), "{told:?}");
    let told = errors(&key(r#""required_scopes": ["everything"]"#));
    assert!(told[0].contains("`everything` is not a permission in tool `get-card`"), "{told:?}");
    let told = errors(&key(r#""constraints": {"max_runtime_ms": 0}"#));
    assert!(told[0].contains("`0ms` is not a duration in tool `get-card`"), "{told:?}");
    let told = errors(&key(r#""risk": "read", "descriptoin": "d""#));
    assert!(told[0].contains("unknown key `descriptoin` in tool `get-card`"), "{told:?}");
}

#[test]
fn a_tool_that_needs_an_idempotency_key_is_not_idempotent() {
    let loaded = key(r#""idempotency": {"required": true}"#);
    assert_eq!(config(&loaded)["tools"][0]["idempotent"], false);
    assert_eq!(
        told(&loaded),
        "note tools.json:1:89 `idempotency.required` in tool `get-card` is not used: without a key it must not be called twice"
    );
    assert_eq!(told(&key(r#""idempotency": {"required": false}"#)), "");
}

#[test]
fn what_would_leave_a_tool_less_guarded_is_a_warning() {
    let loaded =
        key(r#""scopeRequirement": {"match": "any", "requiredScopes": ["a:b"], "deniedScopes": ["c:d"]}"#);
    let tool = &config(&loaded)["tools"][0];
    assert_eq!(tool["permissions"], serde_json::json!(["a:b"]));
    assert_eq!(
        told(&loaded),
        "note tools.json:1:94 `scopeRequirement.match` in tool `get-card` is not used: a caller needs every permission\n\
         warning tools.json:1:137 `scopeRequirement.deniedScopes` in tool `get-card` is not used: callers who have them are not kept away"
    );
}

#[test]
fn our_own_words_count_more() {
    let loaded = key(r#""timeout": "3s", "capabilities": {"timeoutMs": 9000}"#);
    assert_eq!(config(&loaded)["tools"][0]["timeout"], "3s");
    assert!(
        told(&loaded)
            .contains("`capabilities.timeoutMs` in tool `get-card` is not used: our own key counts more")
    );
}

#[test]
fn a_deprecation_without_a_day_is_a_note() {
    let loaded = key(r#""deprecation": {"deprecated": true}"#);
    assert!(
        told(&loaded).contains("is not used without `sunsetAt` and `replacementTool`"),
        "{}",
        told(&loaded)
    );
    assert_eq!(told(&key(r#""deprecation": {"deprecated": false, "sunsetAt": null}"#)), "");
}

/// The two forms of a rate limit do not get into each other's way.
#[test]
fn our_own_rate_limit_beside_foreign_keys() {
    let loaded = key(r#""risk": "read", "rateLimit": {"maxCalls": 5, "windowMs": 1000}"#);
    assert_eq!(config(&loaded)["tools"][0]["rate_limit"]["max_calls"], 5);
    assert_eq!(told(&loaded), "");
}
