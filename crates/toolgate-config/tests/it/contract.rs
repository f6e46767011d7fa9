//! Entries of `tools.json` in the format of service manifests and tool contracts.

use super::{config, errors, loaded, messages, outline};

/// Loads a project with one tool.
fn tool(entry: &str) -> toolgate_config::LoadOutcome {
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
fn service_manifest_tool() {
    insta::assert_snapshot!(outline(&tool(MANIFEST)));
}

#[test]
fn tool_contract() {
    insta::assert_snapshot!(outline(&tool(CONTRACT)));
}

/// Loads a valid tool with additional keys.
fn key(keys: &str) -> toolgate_config::LoadOutcome {
    tool(&format!(r#"{{"name": "get-card", "description": "d", "input_schema": {{}}, {keys}}}"#))
}

#[test]
fn maps_risk_and_side_effects_to_category() {
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

/// A mutation is never cached, in any vocabulary.
#[test]
fn applies_own_rules_to_translated_tools() {
    let messages = errors(&key(r#""risk": "admin", "cacheable": true, "cacheTTL": 60"#));
    assert!(messages[0].contains("a mutation cannot be cached in tool `get-card`"), "{messages:?}");
    let messages = errors(&key(r#""required_scopes": ["everything"]"#));
    assert!(messages[0].contains("`everything` is not a permission in tool `get-card`"), "{messages:?}");
    let messages = errors(&key(r#""constraints": {"max_runtime_ms": 0}"#));
    assert!(messages[0].contains("`0ms` is not a duration in tool `get-card`"), "{messages:?}");
    let messages = errors(&key(r#""risk": "read", "descriptoin": "d""#));
    assert!(messages[0].contains("unknown key `descriptoin` in tool `get-card`"), "{messages:?}");
}

#[test]
fn required_idempotency_key_means_not_idempotent() {
    let loaded = key(r#""idempotency": {"required": true}"#);
    assert_eq!(config(&loaded)["tools"][0]["idempotent"], false);
    assert_eq!(
        messages(&loaded),
        "note tools.json:1:89 `idempotency.required` in tool `get-card` is not used: without an idempotency key it must not be repeated"
    );
    assert_eq!(messages(&key(r#""idempotency": {"required": false}"#)), "");
}

#[test]
fn warns_about_dropped_protections() {
    let loaded =
        key(r#""scopeRequirement": {"match": "any", "requiredScopes": ["a:b"], "deniedScopes": ["c:d"]}"#);
    let tool = &config(&loaded)["tools"][0];
    assert_eq!(tool["permissions"], serde_json::json!(["a:b"]));
    assert_eq!(
        messages(&loaded),
        "note tools.json:1:94 `scopeRequirement.match` in tool `get-card` is not used: a caller needs every permission\n\
         warning tools.json:1:137 `scopeRequirement.deniedScopes` in tool `get-card` is not used: callers with these scopes are not denied"
    );
}

#[test]
fn own_keys_take_precedence() {
    let loaded = key(r#""timeout": "3s", "capabilities": {"timeoutMs": 9000}"#);
    assert_eq!(config(&loaded)["tools"][0]["timeout"], "3s");
    assert!(messages(&loaded).contains(
        "`capabilities.timeoutMs` in tool `get-card` is not used: Toolgate's own key takes precedence"
    ));
}

#[test]
fn deprecation_without_date_is_a_note() {
    let loaded = key(r#""deprecation": {"deprecated": true}"#);
    assert!(
        messages(&loaded).contains("is not used without `sunsetAt` and `replacementTool`"),
        "{}",
        messages(&loaded)
    );
    assert_eq!(messages(&key(r#""deprecation": {"deprecated": false, "sunsetAt": null}"#)), "");
}

/// The two forms of a rate limit do not interfere.
#[test]
fn own_rate_limit_next_to_foreign_keys() {
    let loaded = key(r#""risk": "read", "rateLimit": {"maxCalls": 5, "windowMs": 1000}"#);
    assert_eq!(config(&loaded)["tools"][0]["rate_limit"]["max_calls"], 5);
    assert_eq!(messages(&loaded), "");
}
