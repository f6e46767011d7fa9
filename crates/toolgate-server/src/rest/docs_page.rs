//! Renders the route table as an HTML page, without scripts or external resources.

use std::fmt::Write as _;
use std::sync::OnceLock;

use http::header::{self, HeaderValue};

use super::openapi::reason;
use crate::auth::HttpError;
use crate::response::{Response, ResponseBody};
use crate::route::{AdmittedRequest, ApiOperation, Requirement, ResponseContent, Route};
use crate::routes::ROUTES;

/// Content security policy: allows the inline style only.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}\
    code{font-family:ui-monospace,monospace}summary{cursor:pointer;padding:.4rem 0}summary code{font-weight:600}\
    details{border-top:1px solid #8884}table{border-collapse:collapse;margin:.5rem 0}td{padding:.15rem 1rem .15rem 0;\
    vertical-align:top}.need{opacity:.7}@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#8cf}}";

pub(crate) async fn show(_: AdmittedRequest) -> Result<Response, HttpError> {
    static PAGE: OnceLock<String> = OnceLock::new();
    let mut response = Response::new(ResponseBody::from(PAGE.get_or_init(page).as_str()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    Ok(response)
}

fn page() -> String {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Toolgate</title><style>{STYLE}</style><h1>Toolgate {}</h1>\
         <p>Send the API key in <code>X-API-Key</code> or <code>Authorization: Bearer</code>. OpenAPI document: \
         <a href=\"openapi.json\">openapi.json</a>. MCP endpoint: <code>/mcp</code>.</p>",
        env!("CARGO_PKG_VERSION")
    );
    for route in ROUTES.rows() {
        if let Some(operation) = &route.operation {
            write_operation(route, operation, &mut page);
        }
    }
    page.push_str("</html>\n");
    page
}

fn write_operation(route: &Route, operation: &ApiOperation, page: &mut String) {
    let ApiOperation { summary, query, body, status, content, .. } = operation;
    let need = match route.need {
        Requirement::Public | Requirement::PublicOr(_) => "no key".to_owned(),
        Requirement::AnyCaller | Requirement::OwnOr(_) | Requirement::Profile | Requirement::Console => {
            "any caller".to_owned()
        }
        Requirement::Permission(_) | Requirement::Both(..) | Requirement::Details(..) => {
            let code = |permission: &str| format!("<code>{permission}</code>");
            route.need.permissions().into_iter().map(code).collect::<Vec<_>>().join(" and ")
        }
        Requirement::ToolPermissions => "the tool's permissions".to_owned(),
    };
    let mut rows = String::new();
    let mut row = |name: &str, text: &str| {
        let _ = write!(rows, "<tr><td><code>{name}</code><td>{}", html_of(text));
    };
    for (name, kind, about) in *query {
        row(&format!("?{name}="), &format!("{about} ({kind})"));
    }
    if let Some(schema) = body {
        row("body", &format!("JSON, `{}` in openapi.json", schema.name));
    }
    row(
        &status.to_string(),
        &match content {
            ResponseContent::Json(schema) => format!("JSON, `{schema}`"),
            ResponseContent::Text(kind) => format!("`{kind}`"),
            ResponseContent::Events => "`text/event-stream`".to_owned(),
            ResponseContent::Empty => "Empty.".to_owned(),
        },
    );
    for status in route.error_statuses(operation) {
        row(&status.to_string(), reason(status));
    }
    let _ = write!(
        page,
        "<details id={}><summary><code>{} {}</code> {} <span class=need>({need})</span></summary>\
         <table>{rows}</table></details>",
        operation.id,
        route.method,
        route.path,
        html_of(summary),
    );
}

/// Escapes text, and turns backticks into code.
pub(crate) fn html_of(text: &str) -> String {
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
    fn page_lists_every_operation_and_loads_nothing() {
        let page = page();
        for route in ROUTES.rows().iter().filter(|route| route.operation.is_some()) {
            let title = format!("<code>{} {}</code>", route.method, route.path);
            assert!(page.contains(&title), "{title}");
        }
        for part in ["<script", "http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(part), "{part}");
        }
    }
}
