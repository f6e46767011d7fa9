//! Groups of callers, from the configuration and from tokens: in permissions, in rules, and in the execution log.

use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, project};
use crate::support::issuer::{AUDIENCE, Issuer, Signer};

/// Returns the begin record of the newest call of a caller.
fn newest_record(gateway: &Gateway, caller: &str) -> Json {
    let shown = gateway.program.run(&format!("log --json --caller {caller} --limit 1"));
    let line = shown.stdout.lines().last().expect("a call").to_owned();
    serde_json::from_str::<Json>(&line).expect("JSON")["begin"].clone()
}

#[test]
fn groups_decide_and_are_recorded() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let program = project(&json!({
        "groups": { "ops": {}, "readers": { "permissions": ["s:echo"] } },
        "callers": [
            { "id": "ann", "groups": "readers", "person": "ann@example.com", "api_key": "key-of-ann" }],
        "serve": { "jwt": [{ "issuer": issuer.url, "audience": [AUDIENCE], "caller_prefix": "id:",
            "groups_claim": "roles", "groups": { "platform": "ops" }, "person_claim": "email" }] },
    }));
    let rule = r#"@id("ops-may-fail") permit(principal in Group::"ops", action, resource == Tool::"fail");"#;
    program.write("policy.cedar", rule);
    let gateway = Gateway::serve(program);
    let call = |key: &str, tool: &str| gateway.call(key, tool, &json!({ "message": "x" })).status;
    assert_eq!((call("key-of-ann", "echo"), call("key-of-ann", "fail")), (200, 403));
    let token = |roles: Json| {
        let mut claims = issuer.claims("bob", "");
        claims["roles"] = roles;
        claims["email"] = json!("bob@example.com");
        signer.sign(&claims)
    };
    let ops = token(json!(["everyone", "platform"]));
    assert_eq!((call(&ops, "fail"), call(&ops, "echo")), (200, 404));
    // The name of a group is not a value of the claim, and the groups of one token are not those of the next.
    for other in [json!(["ops"]), json!("platform ops"), json!([]), Json::Null] {
        assert_eq!(call(&token(other.clone()), "fail"), 404, "{other}");
    }
    for bad in [json!(7), json!(["platform", 7]), json!({ "platform": true })] {
        assert_eq!(call(&token(bad.clone()), "fail"), 401, "{bad}");
    }
    assert_eq!(call(&ops, "fail"), 200);
    let begin = newest_record(&gateway, "id:bob");
    let recorded = ["person", "groups", "credential", "rules"].map(|member| begin[member].clone());
    let token_of = format!("token/{}", issuer.url);
    assert_eq!(
        recorded,
        [json!("bob@example.com"), json!(["ops"]), json!(token_of), json!(["ops-may-fail"])]
    );
    let begin = newest_record(&gateway, "ann");
    let recorded = ["person", "groups", "credential"].map(|member| begin[member].clone());
    assert_eq!(recorded, [json!("ann@example.com"), json!(["readers"]), json!("key/toolgate.yaml")]);
    assert_eq!(gateway.program.run("log verify").code, 0);
    let why = gateway.program.run("why ann echo").stdout;
    assert!(why.contains("requires s:echo: granted through group readers"), "{why}");
}
