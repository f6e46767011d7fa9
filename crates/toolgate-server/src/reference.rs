//! Reference pages in Markdown, generated from the code: REST endpoints, permissions, metrics and error codes.
//!
//! Invariant: nothing is written here that the route table, the metrics or the error codes also say. Tests compare the
//! pages in `docs/reference` with this output.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toolgate_types::call::{ErrorClass, ErrorCode};

use crate::health::GAUGES;
use crate::response::status_of_code;
use crate::rest::openapi::reason;
use crate::route::{ApiOperation, Requirement, ResponseContent, Route};
use crate::routes::{POLICY_WRITE, ROUTES, SERVERS_EXEC};

/// Error codes of the HTTP front ends, besides those of calls.
const HTTP_CODES: [(&str, &str, &str); 12] = [
    ("already_exists", "409", "An entry with this name exists."),
    ("command_refused", "422", "`serve.allow_commands` does not list the program."),
    ("configuration_refused", "409", "The files of the project are invalid, and are not overwritten."),
    (
        "conflict",
        "409, 412",
        "The registry has another revision, or the run is in a state that does not allow the request.",
    ),
    ("invalid", "422", "The entry is invalid; `problems` lists all mistakes."),
    ("invalid_request", "400", "The request is not valid JSON, ambiguous, or has unknown members."),
    ("method_not_allowed", "405", "The endpoint does not support the method."),
    ("ssrf_blocked", "422", "The URL leads to a network that is not allowed."),
    ("too_large", "413", "The body is larger than `serve.max_body`."),
    ("unauthenticated", "401", "The credential is missing, wrong, revoked or expired."),
    ("unsupported_media_type", "415", "The body is not `application/json`, or it is compressed."),
    ("upgrade_required", "426", "The endpoint is a WebSocket, and the request is none."),
];

/// Returns the page of the REST API.
pub fn rest_page() -> String {
    let mut page = page("REST API", "rest", "the route table in crates/toolgate-server/src/routes.rs");
    page.push_str(
        "Requests send the API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`. The same as an OpenAPI 3.1\n\
         document is at `GET /v1/openapi.json`, with the schemas of all bodies. [The gateway](../serve.md#rest-api)\n\
         explains the endpoints by topic, [permissions](permissions.md) lists the permissions.\n",
    );
    let mut last = "";
    for route in ROUTES.rows() {
        let Some(operation) = &route.operation else { continue };
        let topic = topic(route);
        if topic != last {
            let _ = write!(
                page,
                "\n## {topic}\n\n| Request | Permission | Success | Errors | Purpose |\n| --- | --- | --- | --- | --- |\n"
            );
            last = topic;
        }
        write_route(route, operation, &mut page);
    }
    page
}

fn write_route(route: &Route, operation: &ApiOperation, page: &mut String) {
    let ApiOperation { summary, query, body, status, content, .. } = operation;
    let mut purpose = (*summary).to_owned();
    if let Some(body) = body {
        let _ = write!(purpose, " Body: `{}`.", body.name);
    }
    for (name, _, about) in *query {
        let _ = write!(purpose, "<br>`{name}`: {about}");
    }
    if operation.conditional {
        purpose.push_str("<br>With `If-Match`, only if the registry still has that revision.");
    }
    let content = match content {
        ResponseContent::Json(schema) => format!("`{schema}`"),
        ResponseContent::Text(kind) => format!("`{}`", kind.split(';').next().unwrap_or(kind)),
        ResponseContent::Events => "event stream".to_owned(),
        ResponseContent::Empty => "empty".to_owned(),
    };
    let errors: Vec<_> = route.error_statuses(operation).iter().map(u16::to_string).collect();
    let _ = writeln!(
        page,
        "| `{} {}` | {} | {status}: {content} | {} | {} |",
        route.method,
        route.path,
        requirement(route.need),
        errors.join(", "),
        purpose.replace('|', "\\|")
    );
}

/// Heading of a route: the second part of its path.
fn topic(route: &Route) -> &'static str {
    match route.path.strip_prefix("/v1/") {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => "gateway",
    }
}

fn requirement(need: Requirement) -> String {
    match need {
        Requirement::Public => "none, no key".to_owned(),
        Requirement::PublicOr(permission) => format!("none, no key; `{permission}` shows more"),
        Requirement::AnyCaller | Requirement::Profile => "any caller".to_owned(),
        Requirement::OwnOr(permission) => format!("own items; `{permission}` for those of others"),
        Requirement::Permission(permission) => format!("`{permission}`"),
        Requirement::Both(one, other) => format!("`{one}` and `{other}`"),
        Requirement::Details(needed, details) => format!("`{needed}`; `{details}` shows more"),
        Requirement::ToolPermissions => "those of the tool".to_owned(),
        Requirement::Console => "a login to the console".to_owned(),
    }
}

/// Returns the page of the permissions of the gateway.
pub fn permissions_page() -> String {
    let mut page =
        page("Permissions", "permissions", "the route table in crates/toolgate-server/src/routes.rs");
    page.push_str(
        "A permission is `resource:action`, and `*` stands for any resource or any action. Tools, resources and prompts\n\
         have permissions of their own ([policy](../policy.md#permissions)). This page lists those that the gateway itself\n\
         demands, with every endpoint that demands them.\n\n| Permission | Endpoints |\n| --- | --- |\n",
    );
    let mut endpoints: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for route in ROUTES.rows() {
        let demanded = match route.need {
            Requirement::Permission(permission) => vec![(permission, "")],
            Requirement::Both(one, other) => vec![(one, ""), (other, "")],
            Requirement::Details(needed, details) => vec![(needed, ""), (details, " (details)")],
            Requirement::PublicOr(permission) => vec![(permission, " (details)")],
            Requirement::OwnOr(permission) => vec![(permission, " (items of other callers)")],
            _ => Vec::new(),
        };
        for (permission, note) in demanded {
            endpoints.entry(permission).or_default().push(format!("`{} {}`{note}", route.method, route.path));
        }
    }
    for (permission, endpoints) in &endpoints {
        let _ = writeln!(page, "| `{permission}` | {} |", endpoints.join("<br>"));
    }
    let _ = write!(
        page,
        "| `{SERVERS_EXEC}` | in addition, for entries of servers and tools that choose a program |\n\n\
         `*:*` includes all of them except `{SERVERS_EXEC}` and `{POLICY_WRITE}`, which no wildcard includes: they must be \
         granted by name.\n"
    );
    page
}

/// Returns the page of the metrics.
pub fn metrics_page() -> String {
    let mut page = page("Metrics", "metrics", "the metrics themselves");
    page.push_str(
        "`GET /metrics` has the text format of Prometheus and needs a key with `metrics:read`.\n\
         [Telemetry](../telemetry.md#metrics) explains labels and alerts.\n\n\
         | Metric | Kind | Labels | Meaning |\n| --- | --- | --- | --- |\n",
    );
    let mut text = toolgate_audit::example_metrics();
    for (name, help) in GAUGES {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} 0");
    }
    let mut help = "";
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
            continue;
        }
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        // The first sample has all labels.
        let sample = lines.peek().copied().unwrap_or_default();
        let inside = sample.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |it| it.0);
        let labels: Vec<_> = inside
            .split(',')
            .filter_map(|label| label.split_once('='))
            .map(|(label, _)| format!("`{label}`"))
            .collect();
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    page
}

/// Returns the page of the error codes.
pub fn errors_page() -> String {
    let mut page = page("Error codes", "errors", "the codes themselves");
    page.push_str(
        "`error.code` of a response, of a record in the execution log and of a metric. Programs can rely on the codes; the\n\
         text of a message may change. [Errors](../serve.md#errors) explains the form of an error, and\n\
         [troubleshooting](../troubleshooting.md) explains single messages.\n\n\
         ## Codes of calls\n\n`class` says where the error has to be fixed: in the request (`validation`), in permissions,\n\
         limits or the rules of the tool (`business`), or in the gateway or a server (`system`).\n\n\
         | Code | Status over REST | Class | Meaning |\n| --- | --- | --- | --- |\n",
    );
    let mut codes = ErrorCode::ALL;
    codes.sort_by_key(|code| code.label());
    for code in codes {
        let class = match code.class() {
            ErrorClass::Validation => "validation",
            ErrorClass::Business => "business",
            ErrorClass::System => "system",
        };
        let status = status_of_code(code);
        let _ = writeln!(page, "| `{}` | {} | `{class}` | {} |", code.label(), status.as_u16(), code.about());
    }
    page.push_str(
        "\n## Codes of other requests\n\nRequests that are no calls use these codes too.\n\n\
         | Code | Status | Meaning |\n| --- | --- | --- |\n",
    );
    for (code, status, about) in HTTP_CODES {
        let _ = writeln!(page, "| `{code}` | {status} | {about} |");
    }
    page.push_str("\n## Status\n\n| Status | Meaning |\n| --- | --- |\n");
    let mut statuses: Vec<u16> = ROUTES
        .rows()
        .iter()
        .filter_map(|route| Some(route.error_statuses(route.operation.as_ref()?)))
        .flatten()
        .collect();
    statuses.sort_unstable();
    statuses.dedup();
    for status in statuses {
        let _ = writeln!(page, "| {status} | {} |", reason(status));
    }
    page
}

/// Returns the head of a page.
fn page(title: &str, name: &str, source: &str) -> String {
    format!("# {title}\n\n<!-- Generated by `toolgate schema --reference={name}` from {source}. -->\n\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The codes in the sources of this crate: the first string after `HttpError::new(`.
    fn codes_in(folder: &Path, codes: &mut BTreeSet<String>) {
        for entry in fs_err::read_dir(folder).expect("the sources are here").flatten() {
            let path = entry.path();
            if path.is_dir() {
                codes_in(&path, codes);
                continue;
            }
            let text = fs_err::read_to_string(&path).expect("a source file");
            // Formatting may put the arguments on lines of their own.
            for rest in text.split("HttpError::new(").skip(1) {
                let mut arguments = rest.split([',', ')']).map(str::trim);
                let code = arguments.nth(1).and_then(|code| code.strip_prefix('"')?.strip_suffix('"'));
                codes.extend(code.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_code_of_a_request_is_on_the_page() {
        let mut codes = BTreeSet::new();
        codes_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut codes);
        assert!(codes.len() > 8, "{codes:?}");
        let page = errors_page();
        let missing: Vec<_> = codes.iter().filter(|code| !page.contains(&format!("| `{code}` |"))).collect();
        assert!(missing.is_empty(), "HTTP_CODES lacks {missing:?}");
    }
}
