//! What the door says of itself: the OpenAPI document, and the page for people.

use serde_json::json;

use crate::door::{Door, OWNER};

#[test]
fn the_document_and_the_page_need_no_key() {
    let door = Door::open(&json!({}));
    let document = door.request("GET /v1/openapi.json", &[], "");
    assert_eq!((document.status, document.header("content-type")), (200, Some("application/json")));
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    let list = &document["paths"]["/v1/servers"]["get"];
    assert_eq!(list["x-permission"], "servers:read");
    assert_eq!(list["security"], json!([{ "key": [] }, { "bearer": [] }]));
    let page = door.request("GET /v1/docs", &[], "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert!(page.body.contains("<code>GET /v1/servers</code>"), "{}", page.body);
    // Not for pages of others, like everything else.
    let foreign = door.request("GET /v1/openapi.json", &["Host: evil.example"], "");
    assert_eq!(foreign.status, 403);
    // What the document has is there, and what is there beside it is not found.
    let paths = document["paths"].as_object().expect("an object");
    for (path, methods) in paths.iter().filter(|(path, _)| !path.contains('{')) {
        let answer = door.get(path, OWNER);
        let told = &methods["get"]["responses"][answer.status.to_string()];
        assert!(told.is_object() || answer.status == 405, "{path}: {answer:?}");
    }
    assert_eq!(door.get("/v1/nothing", OWNER).status, 404);
}
