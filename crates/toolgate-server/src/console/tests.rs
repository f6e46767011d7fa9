//! Login, sessions, forms and the offered operations, through the whole path of a request, without a socket.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

use super::*;
use crate::handler::RequestHandler;
use crate::handler::tests::{CALLERS, handler, head_lines, outcome, path_of, request};
use crate::response::Response;
use crate::routes::ROUTES;

const OURS: &str = "http://localhost:7332";

/// Sends a request of a browser: a form if there is a body.
async fn send(handler: &RequestHandler, path: &str, cookie: &str, form: Option<&str>) -> Response {
    let method = if form.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::new(Full::new(Bytes::from(form.unwrap_or_default().to_owned())));
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost:7332"));
    if form.is_some() {
        headers.insert(header::ORIGIN, HeaderValue::from_static(OURS));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    }
    if !cookie.is_empty() {
        headers.insert(header::COOKIE, cookie.parse().unwrap());
    }
    handler.handle(request).await
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Logs in with a key; returns the cookie.
async fn log_in(handler: &RequestHandler, key: &str) -> String {
    let response = send(handler, "/login", "", Some(&format!("key={key}&next=%2Ftools"))).await;
    assert_eq!(
        (response.status(), &response.headers()[header::LOCATION]),
        (StatusCode::SEE_OTHER, &"/tools".parse::<HeaderValue>().unwrap())
    );
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Max-Age=43200"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

/// The token of the forms of a page.
fn token(page: &str) -> String {
    page.split("name=\"$csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned()
}

#[tokio::test]
async fn a_session_opens_the_console_and_nothing_else() {
    let handler = handler().await;
    let cookie = log_in(&handler, "all").await;
    let page = send(&handler, "/", &cookie, None).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(head_lines(&page).contains("cache-control: no-store\r\n"));
    assert_eq!(page.headers()[header::CONTENT_SECURITY_POLICY], PAGE_POLICY);
    for path in ["/v1/tools", "/metrics", "/v1/me", "/mcp"] {
        let status = send(&handler, path, &cookie, None).await.status();
        assert!([401, 404].contains(&status.as_u16()), "{path}: {status}");
    }
    let changed = format!("{}x", &cookie[..cookie.len() - 2]);
    for cookie in ["", "toolgate_session=AAAA", &changed, &cookie.replace("toolgate_", "__Host-toolgate_")] {
        let refused = send(&handler, "/tools?q=a", cookie, None).await;
        assert_eq!(refused.headers()[header::LOCATION], "/login?next=%2Ftools%3Fq%3Da", "{cookie}");
    }
}

#[tokio::test]
async fn wrong_keys_are_refused_and_limited() {
    let handler = handler().await;
    for _ in 0..5 {
        let refused = send(&handler, "/login", "", Some("key=wrong")).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert!(!refused.headers().contains_key(header::SET_COOKIE));
        assert!(text(refused).await.contains("the API key is unknown"));
    }
    let limited = send(&handler, "/login", "", Some("key=wrong")).await;
    assert_eq!(limited.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(limited.headers().contains_key(header::RETRY_AFTER));
    log_in(&handler, "all").await;
    let long = send(&handler, "/login", "", Some(&format!("key={}", "x".repeat(9_000)))).await;
    assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn forms_need_their_token_and_origin() {
    let handler = handler().await;
    let cookie = log_in(&handler, "all").await;
    let page = text(send(&handler, "/tools", &cookie, None).await).await;
    let form = format!("%24csrf={}&%24back=%2Ftools&theme=dark", token(&page));
    let done = send(&handler, "/theme", &cookie, Some(&form)).await;
    assert_eq!(
        (done.status(), done.headers()[header::LOCATION].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/tools")
    );
    for form in ["theme=dark", "%24csrf=&theme=dark", "%24csrf=AAAA&theme=dark"] {
        assert_eq!(
            send(&handler, "/theme", &cookie, Some(form)).await.status(),
            StatusCode::FORBIDDEN,
            "{form}"
        );
    }
    let other = log_in(&handler, "all").await;
    assert_eq!(
        send(&handler, "/theme", &other, Some(&form)).await.status(),
        StatusCode::FORBIDDEN,
        "of another session"
    );
    for origin in [None, Some("null"), Some("https://evil.example")] {
        let mut request = Request::new(Full::new(Bytes::from(form.clone())));
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, "/theme".parse().unwrap());
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("localhost:7332"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
        assert_eq!(handler.handle(request).await.status(), StatusCode::FORBIDDEN, "{origin:?}");
    }
    let form = format!("%24csrf={}", token(&page));
    assert_eq!(send(&handler, "/logout", &cookie, Some(&form)).await.headers()[header::LOCATION], "/login");
    assert_eq!(
        send(&handler, "/tools", &cookie, None).await.status(),
        StatusCode::SEE_OTHER,
        "after the logout"
    );
}

/// For every operation and caller: the console offers it exactly if REST does not refuse it.
#[tokio::test]
async fn the_console_offers_what_rest_allows() {
    let handler = handler().await;
    for (caller, _) in CALLERS {
        let cookie = log_in(&handler, caller).await;
        let headers = [(header::COOKIE, cookie.parse().unwrap())].into_iter().collect();
        let session = handler.gateway.console.session(&handler.gateway, &handler.source, &headers);
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.headers = headers;
        let trace = toolgate_mcp::TraceContext::generate();
        let auth = crate::auth::Authenticated::find(
            &handler.gateway,
            Requirement::Console,
            &parts,
            &handler.source,
            &trace,
        );
        let auth = auth.await.unwrap();
        assert!(session.is_some() && auth.caller.id.as_str() == caller);
        let visit = Visit::new(AdmittedRequest {
            gateway: handler.gateway.clone(),
            auth,
            access: crate::route::Access::Limited,
            source: handler.source.clone(),
            parts,
            parameter: None,
            body: Bytes::new(),
        });
        let visit = visit.unwrap();
        for route in ROUTES.rows() {
            let Some(operation) = &route.operation else { continue };
            let sent = request(route.method.clone(), &path_of(route), Some(caller), &json!({}));
            let (status, message) = outcome(&handler, sent).await;
            let refused = status == 403 && message.starts_with("the caller lacks");
            assert_eq!(visit.may(operation.id), !refused, "{caller}: {}: {status} {message}", operation.id);
        }
    }
}

/// Operations that templates and pages name exist. A misspelt name would hide its button from everybody.
#[test]
fn named_operations_exist() {
    let sources = [
        include_str!("pages/overview.rs"),
        include_str!("pages/servers.rs"),
        include_str!("pages/tools.rs"),
        include_str!("pages/executions.rs"),
        include_str!("pages/inbox.rs"),
        include_str!("pages/policy.rs"),
        include_str!("pages/callers.rs"),
        include_str!("pages/connect.rs"),
        include_str!("pages/search.rs"),
    ];
    let templates = toolgate_console::pages::TEMPLATES.iter();
    let marks = ["may(\"", "get_if(\"", "data-operation=\"", "(frame, \""];
    let mut missing = std::collections::BTreeSet::new();
    for source in sources.iter().chain(templates) {
        for rest in marks.iter().flat_map(|mark| source.split(mark).skip(1)) {
            let name = rest.split('"').next().unwrap();
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !name.is_empty();
            if is_name && ROUTES.operation(name).is_none() {
                missing.insert(name);
            }
        }
    }
    assert_eq!(missing.into_iter().collect::<Vec<_>>(), Vec::<&str>::new());
}

#[tokio::test]
async fn files_are_kept_and_compressed() {
    let handler = handler().await;
    for asset in ASSETS.all() {
        let response = send(&handler, &asset.path, "", None).await;
        assert_eq!(response.headers()[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
        assert_eq!(text(response).await, asset.content);
    }
    assert_eq!(
        send(&handler, "/assets/console-000000000000.css", "", None).await.status(),
        StatusCode::NOT_FOUND
    );
}
