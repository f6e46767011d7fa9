//! The table of operations as a page for people: one document, without scripts, that loads nothing.

use std::fmt::Write as _;
use std::sync::OnceLock;

use axum::body::Body;
use axum::response::Response;
use hyper::header::{self, HeaderValue};

use super::document::reason;
use super::operation::{Content, Need, Operation};
use super::operations;

/// What the page may do: show its own style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}\
    code{font-family:ui-monospace,monospace}summary{cursor:pointer;padding:.4rem 0}summary code{font-weight:600}\
    details{border-top:1px solid #8884}table{border-collapse:collapse;margin:.5rem 0}td{padding:.15rem 1rem .15rem 0;\
    vertical-align:top}.need{opacity:.7}@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#8cf}}";

pub(super) async fn show() -> Response {
    static PAGE: OnceLock<String> = OnceLock::new();
    let mut response = Response::new(Body::from(PAGE.get_or_init(page).as_str()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn page() -> String {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Toolgate</title><style>{STYLE}</style><h1>Toolgate {}</h1>\
         <p>A key goes into <code>X-API-Key</code>, or <code>Authorization: Bearer</code>. The same for programs: \
         <a href=\"openapi.json\">openapi.json</a>. MCP is spoken at <code>/mcp</code>.</p>",
        env!("CARGO_PKG_VERSION")
    );
    for operation in operations::all() {
        one(&operation, &mut page);
    }
    page.push_str("</html>\n");
    page
}

fn one(operation: &Operation, page: &mut String) {
    let Operation { method, path, summary, need, query, body, status, content, .. } = operation;
    let need = match need {
        Need::Nothing => "no key".to_owned(),
        Need::Key => "any key".to_owned(),
        Need::Permission(permission) => format!("<code>{permission}</code>"),
        Need::OfTool => "the tool's permissions".to_owned(),
    };
    let mut rows = String::new();
    let mut row = |name: &str, text: &str| {
        let _ = write!(rows, "<tr><td><code>{name}</code><td>{}", text_of(text));
    };
    for (name, kind, about) in *query {
        row(&format!("?{name}="), &format!("{about} ({kind})"));
    }
    if let Some(schema) = body {
        row("body", &format!("JSON, `{schema}` in openapi.json"));
    }
    row(
        &status.to_string(),
        &match content {
            Content::Json(schema) => format!("JSON, `{schema}`"),
            Content::Text(kind) => format!("`{kind}`"),
            Content::Events => "`text/event-stream`".to_owned(),
            Content::Empty => "Nothing more.".to_owned(),
        },
    );
    for status in operation.refusals() {
        row(&status.to_string(), reason(status));
    }
    let _ = write!(
        page,
        "<details id={}><summary><code>{} {path}</code> {} <span class=need>({need})</span></summary>\
         <table>{rows}</table></details>",
        operation.id,
        method.to_uppercase(),
        text_of(summary),
    );
}

/// Text of ours, in which backticks say what is code.
fn text_of(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_whole_and_loads_nothing() {
        let page = page();
        for operation in operations::all() {
            let title = format!("<code>{} {}</code>", operation.method.to_uppercase(), operation.path);
            assert!(page.contains(&title), "{title}");
        }
        for part in ["<script", "http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(part), "{part}");
        }
    }
}
