//! Requests through the whole path, without a socket.

use http::Method;
use http::header::HeaderValue;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value as Json, json};
use toolgate_audit::ProjectLog;
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_runtime::{BuiltinTool, RawJson, Runtime};
use toolgate_types::{ByteSize, Caller, CallerId, KeyHash, ServeConfig};

use super::*;
use crate::listener::ConnectionEnds;
use crate::route::{Requirement, Route};
use crate::routes::EXPLICIT_PERMISSIONS;
use crate::{CallerDirectory, GatewayParts};

/// Callers, each with its id as its key.
pub(crate) const CALLERS: [(&str, &[&str]); 4] =
    [("all", &["*:*", "policy:write"]), ("any", &["*:*"]), ("none", &[]), ("echo", &["tools:echo"])];
const MAX_BODY: u64 = 4 << 10;

fn echo() -> BuiltinTool {
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    BuiltinTool::query("echo".parse().unwrap(), "Repeats its text.", RawJson::from_value(&schema), |call| {
        let text = call.arguments.as_str().to_owned();
        Box::pin(
            async move { Ok(RawJson::from_value(&json!({ "content": [{ "type": "text", "text": text }] }))) },
        )
    })
}

/// A handler for connections from this machine to an open gateway with one tool.
pub(crate) async fn handler() -> RequestHandler {
    let runtime = Runtime::new(RuntimeSetup { builtins: vec![echo()], ..RuntimeSetup::default() });
    runtime.discover(|_| {}).await.unwrap();
    let id = |id: &str| id.parse::<CallerId>().unwrap();
    let caller = |(name, permissions): &(&str, &[&str])| {
        Caller::new(id(name), permissions.iter().map(|text| text.parse().unwrap()).collect())
    };
    let callers = CallerDirectory {
        callers: CALLERS.iter().map(caller).collect(),
        keys: CALLERS.iter().map(|(name, _)| (id(name), KeyHash::of(name), "test".to_owned())).collect(),
        ..CallerDirectory::default()
    };
    let config = ServeConfig { max_body: ByteSize::from_bytes(MAX_BODY), ..ServeConfig::default() };
    let log = ProjectLog::new("/nonexistent");
    let gateway = Gateway::new(GatewayParts::new(Arc::new(runtime), config, callers, log)).unwrap();
    gateway.open();
    let local = [127, 0, 0, 1].into();
    let ends = ConnectionEnds { peer: local, client: local, local, secure: false };
    RequestHandler::new(gateway, ConnectionSource::Network(ends, None))
}

/// A request of a caller, with a JSON body.
pub(crate) fn request(method: Method, path: &str, key: Option<&str>, body: &Json) -> Request<Full<Bytes>> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let mut request = Request::new(Full::new(body));
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost:7332"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.extend(key.map(|key| (HeaderName::from_static("x-api-key"), key.parse().unwrap())));
    request
}

/// The header lines that the body of a response adds to its head.
pub(crate) fn head_lines(response: &Response) -> String {
    let mut lines = Vec::new();
    toolgate_http::server::ResponseBody::write_head_lines(response.body(), response.headers(), &mut lines);
    String::from_utf8(lines).unwrap()
}

async fn json_of(response: Response) -> Json {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    // Some responses of MCP have no body.
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Status, and message if it is an error.
pub(crate) async fn outcome(handler: &RequestHandler, request: Request<Full<Bytes>>) -> (u16, String) {
    let response = handler.handle(request).await;
    let status = response.status();
    if status.is_success() {
        return (status.as_u16(), String::new());
    }
    let document = json_of(response).await;
    (status.as_u16(), document["error"]["message"].as_str().unwrap_or_default().to_owned())
}

/// Path of a route with its own parameter name as the value.
pub(crate) fn path_of(route: &Route) -> String {
    route.path.replace(['{', '}'], "")
}

#[tokio::test]
async fn every_route_demands_its_permission() {
    let handler = handler().await;
    let status = async |route: &Route, key: Option<&str>| {
        outcome(&handler, request(route.method.clone(), &path_of(route), key, &json!({}))).await
    };
    for route in ROUTES.rows() {
        let name = format!("{} {}", route.method, route.path);
        let anonymous = status(route, None).await;
        if route.need.is_public() {
            // A login that was not begun by this browser fails.
            let refused: &[u16] = if route.path == "/oidc/callback" { &[401] } else { &[401, 403] };
            assert!(!refused.contains(&anonymous.0), "{name}: {anonymous:?}");
            continue;
        }
        if route.need == Requirement::Console {
            for key in [None, Some("all")] {
                assert_eq!(
                    status(route, key).await.0,
                    303,
                    "{name}: only the cookie of a session opens pages"
                );
            }
            continue;
        }
        assert_eq!(anonymous, (401, "authentication is required".to_owned()), "{name}");
        let without = status(route, Some("none")).await;
        match route.need {
            Requirement::Permission(_) | Requirement::Both(..) | Requirement::Details(..) => {
                let permission = route.need.permissions()[0];
                assert_eq!(without, (403, format!("the caller lacks `{permission}`")), "{name}");
                let with = status(route, Some("all")).await;
                assert!(![401, 403].contains(&with.0), "{name}: {with:?}");
                let any = status(route, Some("any")).await;
                assert_eq!(any.0 == 403, EXPLICIT_PERMISSIONS.contains(&permission), "{name}: {any:?}");
            }
            Requirement::Profile if route.parameter().is_some() => {
                assert_eq!(without.0, 404, "{name}: there is no such profile");
            }
            _ => assert!(![401, 403].contains(&without.0), "{name}: {without:?}"),
        }
    }
}

#[tokio::test]
async fn bodies_over_the_limit_are_rejected_after_the_permission() {
    let handler = handler().await;
    let large = json!({ "arguments": { "text": "x".repeat(MAX_BODY as usize) } });
    for route in ROUTES.rows() {
        let name = format!("{} {}", route.method, route.path);
        let send = async |key: Option<&str>| {
            outcome(&handler, request(route.method.clone(), &path_of(route), key, &large)).await.0
        };
        let reads = route.body_limit == BodyLimit::Configured;
        // Also for an unknown profile: the caller is known, and finds the reason by the id of its request.
        assert_eq!(send(Some("all")).await == 413, reads, "{name}");
        if reads {
            assert_eq!(send(None).await, 401, "{name}: the caller is found before the body is read");
        }
    }
}

#[tokio::test]
async fn hosts_and_origins_are_checked_before_the_route() {
    let handler = handler().await;
    let with = async |name: HeaderName, value: &str, path: &str| {
        let mut request = request(Method::GET, path, Some("all"), &Json::Null);
        request.headers_mut().insert(name, value.parse().unwrap());
        outcome(&handler, request).await
    };
    for path in ["/healthz", "/mcp", "/v1/foo"] {
        let unknown_host = (403, "unknown host `evil.example`".to_owned());
        assert_eq!(with(header::HOST, "evil.example", path).await, unknown_host, "{path}");
        let cross_origin = (403, "cross-origin requests are not allowed".to_owned());
        assert_eq!(with(header::ORIGIN, "https://evil.example", path).await, cross_origin, "{path}");
        assert_eq!(with(header::CONTENT_ENCODING, "gzip", path).await.0, 415, "{path}");
    }
    assert_eq!(with(header::ORIGIN, "http://localhost:7332", "/healthz").await.0, 200);
}

#[tokio::test]
async fn unknown_paths_and_methods_need_no_credential() {
    let handler = handler().await;
    let send = async |method: &str, path: &str| {
        let request = request(method.parse().unwrap(), path, None, &Json::Null);
        let response = handler.handle(request).await;
        let allow = response.headers().get(header::ALLOW).map(|allow| allow.to_str().unwrap().to_owned());
        assert!(head_lines(&response).contains("x-correlation-id: "), "{path}");
        let (status, document) = (response.status().as_u16(), json_of(response).await);
        (status, document["error"]["message"].as_str().unwrap().to_owned(), allow)
    };
    assert_eq!(send("GET", "/v1/foo").await, (404, "no such endpoint: GET /v1/foo".to_owned(), None));
    let message = "PATCH is not supported on /v1/tools (allowed: GET, HEAD, POST)".to_owned();
    assert_eq!(send("PATCH", "/v1/tools").await, (405, message, Some("GET, HEAD, POST".to_owned())));
    let message = "PUT is not supported on /mcp (allowed: GET, POST, DELETE)".to_owned();
    assert_eq!(send("PUT", "/mcp").await, (405, message, Some("GET, POST, DELETE".to_owned())));
}

#[tokio::test]
async fn path_parameters_are_decoded() {
    let handler = handler().await;
    let get =
        async |path: &str| outcome(&handler, request(Method::GET, path, Some("all"), &Json::Null)).await;
    assert_eq!(get("/v1/tools/ech%6F").await.0, 200);
    assert_eq!(get("/v1/tools/a%2Fb").await, (404, "there is no tool `a/b`".to_owned()));
    assert_eq!(get("/v1/tools/%FF").await, (400, "Invalid URL: Invalid UTF-8 in `name`".to_owned()));
    assert_eq!(get("/v1/tools?tagg=x").await.0, 400);
}

#[tokio::test]
async fn readiness_details_need_a_permission() {
    let handler = handler().await;
    let details = async |key: Option<&str>| {
        let response = handler.handle(request(Method::GET, "/readyz", key, &Json::Null)).await;
        assert_eq!(response.status(), StatusCode::OK);
        json_of(response).await.get("unavailable").is_some()
    };
    for (key, shown) in [(None, false), (Some("wrong"), false), (Some("none"), false), (Some("all"), true)] {
        assert_eq!(details(key).await, shown, "{key:?}");
    }
}

#[tokio::test]
async fn callers_learn_who_they_are() {
    let handler = handler().await;
    let me = async |key: &str| {
        json_of(handler.handle(request(Method::GET, "/v1/me", Some(key), &Json::Null)).await).await
    };
    let none = me("none").await;
    assert_eq!((&none["id"], &none["authenticatedBy"]), (&json!("none"), &json!("key")));
    assert_eq!((&none["management"], &none["expires"]), (&json!([]), &Json::Null));
    let management = async |key: &str| {
        let me = me(key).await;
        me["management"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (any, all) = (management("any").await, management("all").await);
    assert!(any.contains(&"servers:read".to_owned()) && !any.contains(&"policy:write".to_owned()));
    assert!(all.contains(&"policy:write".to_owned()) && !all.contains(&"servers:exec".to_owned()));
}

#[tokio::test]
async fn a_tool_is_shown_with_its_contract_and_callers() {
    let handler = handler().await;
    let get = async |path: &str| {
        json_of(handler.handle(request(Method::GET, path, Some("all"), &Json::Null)).await).await
    };
    let tool = get("/v1/tools/echo").await;
    assert_eq!((&tool["permissions"], &tool["state"]), (&json!(["tools:echo"]), &json!("ready")));
    assert_eq!(tool["source"], json!({ "kind": "builtin", "server": null, "editable": false }));
    assert!(tool["limits"]["timeoutMs"].as_u64().unwrap() > 0 && tool["entry"].is_null(), "{tool}");
    let callers = get("/v1/tools/echo/callers?limit=2&cursor=1").await;
    let decided = |callers: &Json| -> Vec<(String, String)> {
        let text = |one: &Json, key: &str| one[key].as_str().unwrap().to_owned();
        callers["callers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (text(one, "caller"), text(one, "decision")))
            .collect()
    };
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    assert_eq!(decided(&callers), [pair("any", "allow"), pair("echo", "allow")]);
    assert_eq!(callers["next"], "3");
    assert_eq!(
        decided(&get("/v1/tools/echo/callers?cursor=3").await),
        [pair("none", "deny"), pair("owner", "allow")]
    );
    let count =
        async |query: &str| get(&format!("/v1/tools?{query}")).await["tools"].as_array().unwrap().len();
    assert_eq!((count("state=ready&risk=low").await, count("state=quarantined").await), (1, 0));
    assert_eq!(get("/v1/tools?state=good").await["error"]["code"], "invalid_request");
}

#[tokio::test]
async fn a_tool_is_called_over_rest_and_mcp() {
    let handler = handler().await;
    let arguments = json!({ "text": "hello" });
    let rest = json!({ "arguments": arguments });
    let response = handler.handle(request(Method::POST, "/v1/tools/echo/call", Some("echo"), &rest)).await;
    let document = json_of(response).await;
    assert_eq!(document["status"], "success", "{document}");
    let denied = request(Method::POST, "/v1/tools/echo/call", Some("none"), &rest);
    assert_eq!(outcome(&handler, denied).await.0, 404, "a tool that a caller may not use is unknown to it");

    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let response = handler.handle(request(Method::POST, "/mcp", Some("echo"), &initialize)).await;
    let session = response.headers()["mcp-session-id"].clone();
    assert_eq!(json_of(response).await["result"]["serverInfo"]["name"], "toolgate");
    let send = async |key: &str, method: &str, params: Json| {
        let message = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params });
        let mut request = request(Method::POST, "/mcp", Some(key), &message);
        request.headers_mut().insert("mcp-session-id", session.clone());
        let response = handler.handle(request).await;
        (response.status().as_u16(), json_of(response).await)
    };
    let (status, listed) = send("echo", "tools/list", json!({})).await;
    assert_eq!((status, &listed["result"]["tools"][0]["name"]), (200, &json!("echo")), "{listed}");
    let (status, called) =
        send("echo", "tools/call", json!({ "name": "echo", "arguments": arguments })).await;
    assert_eq!((status, &called["result"]["content"][0]["text"]), (200, &json!("{\"text\":\"hello\"}")));
    assert_eq!(send("all", "tools/list", json!({})).await.0, 404, "a session of another caller");
}
