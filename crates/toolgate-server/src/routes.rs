//! The route table: every endpoint of the gateway, with its permission, its body limit and its handler.
//!
//! [`crate::handler`] finds the route of a request here; the OpenAPI document and the documentation page are built from
//! it. Invariant: this is the only place that states which permission an endpoint demands. Two demands depend on the body
//! and stay with their handlers: `servers:exec` for programs ([`crate::rest::guard`]), and granting or changing only
//! permissions that the caller has.

use std::sync::LazyLock;

use http::{Method, StatusCode, Uri};

use crate::auth::{HttpError, protected_resource};
use crate::console;
use crate::health;
use crate::login;
use crate::mcp::{sse, stdio, ws};
use crate::response::ErrorDetails;
use crate::rest::{
    call, callers, changes, cluster, credentials, docs_page, events, executions, figures, items, me, openapi,
    policy, profiles, questions, runs, server_test, servers, tools,
};
use crate::route::{AdmittedRequest, Handler, Parameter, Requirement, ResponseContent, Route, RouteFuture};

// Permissions for management. `*:*` includes all of them, except those of [`EXPLICIT_PERMISSIONS`].
pub(crate) const CALLERS_READ: &str = "callers:read";
const CALLERS_WRITE: &str = "callers:write";
pub(crate) const EXECUTIONS_READ: &str = "executions:read";
/// Cancel running calls of other callers.
const EXECUTIONS_CANCEL: &str = "executions:cancel";
const METRICS_READ: &str = "metrics:read";
pub(crate) const HUMAN_INPUT_READ: &str = "human_input:read";
const HUMAN_INPUT_ANSWER: &str = "human_input:answer";
pub(crate) const APPROVALS_READ: &str = "approvals:read";
const APPROVALS_ANSWER: &str = "approvals:answer";
pub(crate) const POLICY_READ: &str = "policy:read";
/// Replace the policy. Its holder can permit itself every tool, and remove the approvals that its own calls need.
pub(crate) const POLICY_WRITE: &str = "policy:write";
/// Start agent runs; read and stop runs of other callers.
const RUNS_START: &str = "runs:start";
pub(crate) const RUNS_READ: &str = "runs:read";
const RUNS_STOP: &str = "runs:stop";
pub(crate) const SERVERS_READ: &str = "servers:read";
const SERVERS_WRITE: &str = "servers:write";
/// Read the stderr output of the processes of servers.
pub(crate) const SERVERS_LOGS: &str = "servers:logs";
const TOOLS_WRITE: &str = "tools:write";
/// Choose programs that run on this machine. No route demands it: it depends on the content of the body.
pub(crate) const SERVERS_EXEC: &str = "servers:exec";

/// Permissions that no wildcard includes: with each of them, a caller can go beyond all its other ones.
pub(crate) const EXPLICIT_PERMISSIONS: [&str; 2] = [POLICY_WRITE, SERVERS_EXEC];

/// All permissions for management.
pub(crate) const MANAGEMENT_PERMISSIONS: [&str; 19] = [
    APPROVALS_ANSWER,
    APPROVALS_READ,
    CALLERS_READ,
    CALLERS_WRITE,
    EXECUTIONS_CANCEL,
    EXECUTIONS_READ,
    HUMAN_INPUT_ANSWER,
    HUMAN_INPUT_READ,
    METRICS_READ,
    POLICY_READ,
    POLICY_WRITE,
    RUNS_READ,
    RUNS_START,
    RUNS_STOP,
    SERVERS_EXEC,
    SERVERS_LOGS,
    SERVERS_READ,
    SERVERS_WRITE,
    TOOLS_WRITE,
];

/// Characters of a path shown in an error message.
const MAX_SHOWN_PATH: usize = 200;

/// All routes.
pub(crate) static ROUTES: LazyLock<RouteTable> = LazyLock::new(|| RouteTable::new(rows()));

/// The routes, and a matcher for their paths.
pub(crate) struct RouteTable {
    rows: Vec<Route>,
    /// Indexes of the rows with a path.
    paths: matchit::Router<Vec<usize>>,
}

impl RouteTable {
    fn new(rows: Vec<Route>) -> Self {
        let mut by_path: Vec<(&'static str, Vec<usize>)> = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            match by_path.iter_mut().find(|(path, _)| *path == row.path) {
                Some((_, indexes)) => indexes.push(index),
                None => by_path.push((row.path, vec![index])),
            }
        }
        let mut paths = matchit::Router::new();
        for (path, indexes) in by_path {
            paths.insert(path, indexes).expect("no two paths of the table conflict");
        }
        Self { rows, paths }
    }

    pub(crate) fn rows(&self) -> &[Route] {
        &self.rows
    }

    /// Finds the route of an operation by its name.
    pub(crate) fn operation(&self, id: &str) -> Option<&Route> {
        self.rows.iter().find(|row| row.operation.as_ref().is_some_and(|operation| operation.id == id))
    }

    /// Finds the route of a request, and the value of its path parameter.
    pub(crate) fn find<'p>(
        &self,
        method: &Method,
        uri: &'p Uri,
    ) -> Result<(&Route, Option<&'p str>), HttpError> {
        let Ok(found) = self.paths.at(uri.path()) else { return Err(no_endpoint(method, uri)) };
        let rows = || found.value.iter().map(|index| &self.rows[*index]);
        match rows().find(|row| answers(row, method)) {
            Some(row) => Ok((row, found.params.iter().next().map(|(_, value)| value))),
            None => Err(method_not_allowed(method, uri, rows())),
        }
    }
}

/// Returns true if a route answers a method. GET routes also answer HEAD: the connection leaves the body out.
fn answers(row: &Route, method: &Method) -> bool {
    row.method == *method || *method == Method::HEAD && row.method == Method::GET && has_head(row)
}

/// Streamable HTTP has no HEAD.
fn has_head(row: &Route) -> bool {
    !matches!(row.handler, Handler::Mcp)
}

/// 404: no endpoint has this path, or the caller may not know of it.
pub(crate) fn no_endpoint(method: &Method, uri: &Uri) -> HttpError {
    HttpError::not_found(format!("no such endpoint: {method} {}", shown_path(uri))).hint("see `GET /v1/docs`")
}

/// 405, with the allowed methods in the message and in the header.
fn method_not_allowed<'a>(method: &Method, uri: &Uri, rows: impl Iterator<Item = &'a Route>) -> HttpError {
    let mut allowed = Vec::new();
    for row in rows {
        allowed.push(row.method.as_str());
        if row.method == Method::GET && has_head(row) {
            allowed.push("HEAD");
        }
    }
    let allowed = allowed.join(", ");
    let message = format!("{method} is not supported on {} (allowed: {allowed})", shown_path(uri));
    let details = Some(Box::new(ErrorDetails { allowed_methods: Some(allowed), ..ErrorDetails::default() }));
    let error = HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    HttpError { details, ..error }
}

/// The path of a request, truncated for use in a message.
fn shown_path(uri: &Uri) -> String {
    let mut path: String = uri.path().chars().take(MAX_SHOWN_PATH).collect();
    if path.len() < uri.path().len() {
        path.push('…');
    }
    path
}

const TOOL_FILTERS: &[Parameter] = &[
    ("server", "string", "Only tools of this MCP server."),
    ("category", "string", "Only tools of this category."),
    ("tag", "string", "Only tools with this tag."),
    ("state", "string", "Only tools in this state: `ready`, `quarantined` or `removed`."),
    ("risk", "string", "Only tools of this risk: `low`, `medium` or `high`."),
    ("limit", "integer", "Maximum number of tools (default and maximum 1000)."),
    CURSOR,
];
/// Selects the next page of a list.
const CURSOR: Parameter = ("cursor", "string", "The `next` of the previous page.");
const CALLER_PAGE: &[Parameter] = &[("limit", "integer", "Maximum number of callers."), CURSOR];
const MATRIX_FILTERS: &[Parameter] = &[
    ("tool", "string", "Only this tool."),
    ("server", "string", "Only tools of this MCP server."),
    ("caller", "string", "Only this caller or group."),
    ("limit", "integer", "Maximum number of callers and groups (default 50, maximum 200)."),
    CURSOR,
    ("tools", "integer", "Maximum number of tools (default 100, maximum 250)."),
    ("toolsCursor", "string", "The `toolsNext` of the previous page."),
];
const RUN_FILTERS: &[Parameter] = &[
    ("state", "string", "Only runs in this state, such as `running` or `done`."),
    ("limit", "integer", "Maximum number of runs (default 100, maximum 1000)."),
    CURSOR,
];
const QUESTION_FILTERS: &[Parameter] = &[
    ("state", "string", "`open` (default), `ended`, or `all`: open ones, then the last that ended."),
    ("limit", "integer", "Maximum number of ended questions (default 100, maximum 1000)."),
];
const SEARCH_PARAMETERS: &[Parameter] = &[
    (
        "q",
        "string",
        "Description of the task, in any words. Without it, the tool named `search` is returned.",
    ),
    ("limit", "integer", "Maximum number of tools (default 5, maximum 100)."),
];
/// Filters of executions. The last three do not apply to a stream.
const EXECUTION_FILTERS: [Parameter; 19] = [
    ("tool", "string", "Only calls of this tool; `github.*` selects all names with that prefix."),
    (
        "kind",
        "string",
        "Only operations of this kind, such as `tool`, `resource` or `prompt`. Without it, all but `list`.",
    ),
    ("caller", "string", "Only calls of this caller."),
    (
        "status",
        "string",
        "Only calls with this status (`success`, `error`, `abandoned`, `open`) or error code.",
    ),
    ("since", "string", "Only calls since then: a time, a date, `today`, `yesterday`, or an age (`2h`)."),
    ("until", "string", "Only calls until then, in the same format."),
    ("grep", "string", "Only calls that contain this text."),
    ("server", "string", "Only calls of tools of this MCP server."),
    ("code", "string", "Only calls that failed with this error code."),
    ("decision", "string", "Only calls with this decision: `allow`, `deny` or `undecided`."),
    ("rule", "string", "Only calls that this policy rule decided."),
    ("session", "string", "Only calls of this session."),
    ("trace", "string", "Only calls of this trace."),
    ("correlation", "string", "Only calls with this correlation id."),
    ("slower", "string", "Only calls that took at least this long, such as `500ms`."),
    ("bodies", "boolean", "False leaves arguments and output out (default true)."),
    ("state", "string", "`running`: only calls that run on this gateway now. They have no pages."),
    ("limit", "integer", "Maximum number of executions (default 50, maximum 1000)."),
    ("cursor", "string", "The `next` of the previous page."),
];
/// Filters of a stream, which has no pages.
const STREAM_FILTERS: &[Parameter] = EXECUTION_FILTERS.split_at(16).0;
const FIGURE_FILTERS: &[Parameter] = &[
    ("tool", "string", "Only calls of this tool; `github.*` selects all names with that prefix."),
    ("server", "string", "Only calls of tools of this MCP server."),
    ("caller", "string", "Only calls of this caller. Those of others need `executions:read`."),
    ("since", "string", "Age of the oldest calls, at most `7d` (default `15m`), or a time."),
    ("step", "string", "Length of a step; rounded up to a multiple of 5 s, 1 min or 30 min, by the age."),
    ("by", "string", "Also sums by `tool`, `server` or `caller`."),
];
const CALL_PARAMETERS: &[Parameter] = &[("trace", "boolean", "True adds `steps`: the stages of the call.")];

const PUBLIC: Requirement = Requirement::Public;
const ANY: Requirement = Requirement::AnyCaller;
const TOOL: ResponseContent = ResponseContent::Json("Tool");
const SERVER: ResponseContent = ResponseContent::Json("Server");
const CHANGE: ResponseContent = ResponseContent::Json("Changed");
const RESULT: ResponseContent = ResponseContent::Json("Result");
/// Error statuses of a call: errors of the tool, and of the services it needs.
const CALL_ERRORS: &[u16] = &[404, 422, 503, 504, 507];

fn get<F: RouteFuture>(path: &'static str, need: Requirement, handle: fn(AdmittedRequest) -> F) -> Route {
    Route::new(Method::GET, path, need, handle)
}

fn post<F: RouteFuture>(path: &'static str, need: Requirement, handle: fn(AdmittedRequest) -> F) -> Route {
    Route::new(Method::POST, path, need, handle)
}

fn put<F: RouteFuture>(path: &'static str, need: Requirement, handle: fn(AdmittedRequest) -> F) -> Route {
    Route::new(Method::PUT, path, need, handle)
}

fn patch<F: RouteFuture>(path: &'static str, need: Requirement, handle: fn(AdmittedRequest) -> F) -> Route {
    Route::new(Method::PATCH, path, need, handle)
}

fn delete<F: RouteFuture>(path: &'static str, need: Requirement, handle: fn(AdmittedRequest) -> F) -> Route {
    Route::new(Method::DELETE, path, need, handle)
}

fn rows() -> Vec<Route> {
    let mut rows = protocol_rows();
    rows.extend(gateway_rows());
    rows.extend(tool_rows());
    rows.extend(item_rows());
    rows.extend(server_rows());
    rows.extend(execution_rows());
    rows.extend(policy_rows());
    rows.extend(question_rows());
    rows.extend(caller_rows());
    rows.extend(credential_rows());
    rows.extend(run_rows());
    rows.extend(console::rows());
    rows
}

fn gateway_rows() -> Vec<Route> {
    let text = |kind| ResponseContent::Text(kind);
    vec![
        get("/healthz", PUBLIC, health::alive)
            .describe("alive", "Liveness check.")
            .gives(200, ResponseContent::Json("Alive")),
        get("/readyz", Requirement::PublicOr(SERVERS_READ), health::ready)
            .describe("ready", "Readiness check, with the reason and the next retry if not ready.")
            .gives(200, ResponseContent::Json("Ready"))
            .or(&[503]),
        get("/metrics", Requirement::Permission(METRICS_READ), health::metrics)
            .describe("metrics", "Metrics in the Prometheus format.")
            .gives(200, text("text/plain; version=0.0.4; charset=utf-8")),
        get("/v1/configuration", Requirement::Permission(POLICY_READ), health::configuration)
            .describe(
                "configuration",
                "State of the configuration: rejected edits, and sections that wait for a restart.",
            )
            .gives(200, ResponseContent::Json("Configuration")),
        get("/v1/cluster", Requirement::Permission(SERVERS_READ), cluster::show)
            .describe("cluster", "Returns the replicas of the cluster, and whether they agree.")
            .gives(200, ResponseContent::Json("Cluster"))
            .or(&[404]),
        get("/v1/me", ANY, me::show)
            .describe("me", "Returns the caller of the request, with its permissions.")
            .gives(200, ResponseContent::Json("Me")),
        get("/v1/profiles", Requirement::OwnOr(POLICY_READ), profiles::list)
            .describe("listProfiles", "Lists the profiles that the caller may use; with `policy:read`, all.")
            .gives(200, ResponseContent::Json("Profiles")),
        get("/v1/openapi.json", PUBLIC, openapi::show)
            .describe("openapi", "OpenAPI document of this API.")
            .gives(200, ResponseContent::Json("Document")),
        get("/v1/docs", PUBLIC, docs_page::show)
            .describe("docs", "HTML documentation of this API.")
            .gives(200, text("text/html; charset=utf-8")),
    ]
}

fn tool_rows() -> Vec<Route> {
    let write = Requirement::Permission(TOOLS_WRITE);
    // With the permission, the entry as it is written.
    let show = Requirement::OwnOr(TOOLS_WRITE);
    vec![
        get("/v1/tools", ANY, tools::list)
            .describe("listTools", "Lists the tools visible to the caller.")
            .query(TOOL_FILTERS)
            .gives(200, ResponseContent::Json("Tools")),
        post("/v1/tools", write, changes::add_tool)
            .describe("addTool", "Registers a tool. Choosing its program also needs `servers:exec`.")
            .takes("ToolEntry")
            .gives(201, CHANGE)
            .conditional(),
        post("/v1/tools/execute", Requirement::ToolPermissions, call::execute)
            .describe("execute", "Calls the tool named in the body.")
            .query(CALL_PARAMETERS)
            .takes_schema("Execute", Some(call::execute_schema))
            .gives(200, RESULT)
            .or(CALL_ERRORS),
        get("/v1/tools/search", show, tools::search)
            .describe("searchTools", "Searches tools by `q`, and suggests one to use.")
            .query(SEARCH_PARAMETERS)
            .gives(200, ResponseContent::Json("Found"))
            .or(&[404]),
        // A tool may be named `search` or `execute`. Without `q`, the tool `search` is shown.
        put("/v1/tools/search", write, changes::change_routed)
            .describe("replaceToolSearch", "Replaces the tool named `search`.")
            .takes("ToolEntry")
            .gives(200, CHANGE)
            .or(&[404])
            .conditional(),
        patch("/v1/tools/search", write, changes::change_routed)
            .describe("changeToolSearch", "Changes keys of the tool named `search`.")
            .takes("Patch")
            .gives(200, CHANGE)
            .or(&[404])
            .conditional(),
        delete("/v1/tools/search", write, changes::change_routed)
            .describe("removeToolSearch", "Removes the tool named `search`.")
            .gives(204, ResponseContent::Empty)
            .or(&[404])
            .conditional(),
        get("/v1/tools/execute", show, tools::show_execute)
            .describe("showToolExecute", "Returns the tool named `execute`.")
            .gives(200, TOOL)
            .or(&[404]),
        put("/v1/tools/execute", write, changes::change_routed)
            .describe("replaceToolExecute", "Replaces the tool named `execute`.")
            .takes("ToolEntry")
            .gives(200, CHANGE)
            .or(&[404])
            .conditional(),
        patch("/v1/tools/execute", write, changes::change_routed)
            .describe("changeToolExecute", "Changes keys of the tool named `execute`.")
            .takes("Patch")
            .gives(200, CHANGE)
            .or(&[404])
            .conditional(),
        delete("/v1/tools/execute", write, changes::change_routed)
            .describe("removeToolExecute", "Removes the tool named `execute`.")
            .gives(204, ResponseContent::Empty)
            .or(&[404])
            .conditional(),
        get("/v1/tools/{name}", show, tools::show)
            .describe("showTool", "Returns a tool with its whole contract. `PUT` takes its `entry`.")
            .gives(200, TOOL),
        get("/v1/tools/{name}/callers", Requirement::Permission(POLICY_READ), tools::callers)
            .describe("listToolCallers", "Explains for each caller if it may call a tool.")
            .query(CALLER_PAGE)
            .gives(200, ResponseContent::Json("ToolCallers")),
        put("/v1/tools/{name}", write, changes::change_tool)
            .describe("replaceTool", "Replaces a registered tool.")
            .takes("ToolEntry")
            .gives(200, CHANGE)
            .conditional(),
        patch("/v1/tools/{name}", write, changes::change_tool)
            .describe("changeTool", "Changes some keys. `null` removes a key.")
            .takes("Patch")
            .gives(200, CHANGE)
            .conditional(),
        delete("/v1/tools/{name}", write, changes::change_tool)
            .describe("removeTool", "Removes a registered tool.")
            .gives(204, ResponseContent::Empty)
            .conditional(),
        post("/v1/tools/{name}/call", Requirement::ToolPermissions, call::call)
            .describe("call", "Calls a tool.")
            .query(CALL_PARAMETERS)
            .takes_schema("Call", Some(call::call_schema))
            .gives(200, RESULT)
            .or(CALL_ERRORS),
    ]
}

fn item_rows() -> Vec<Route> {
    let of_server: &[Parameter] = &[("server", "string", "Only those of this MCP server.")];
    let resource: &[Parameter] = &[
        ("uri", "string", "URI of the resource."),
        ("server", "string", "MCP server that has it. Without it, the servers that may have it are tried."),
    ];
    vec![
        get("/v1/resources", ANY, items::list_resources)
            .describe("listResources", "Lists the resources and templates that the caller may read.")
            .query(of_server)
            .gives(200, ResponseContent::Json("Resources")),
        get("/v1/resources/read", Requirement::ToolPermissions, items::read_resource)
            .describe("readResource", "Reads a resource. Needs `{server}:resources`.")
            .query(resource)
            .gives(200, RESULT)
            .or(CALL_ERRORS),
        get("/v1/prompts", ANY, items::list_prompts)
            .describe("listPrompts", "Lists the prompts that the caller may get.")
            .query(of_server)
            .gives(200, ResponseContent::Json("Prompts")),
        post("/v1/prompts/get", Requirement::ToolPermissions, items::get_prompt)
            .describe("getPrompt", "Gets a prompt. Needs `{server}:prompts`.")
            .takes_type::<items::PromptBody>("GetPrompt")
            .gives(200, RESULT)
            .or(CALL_ERRORS),
        get("/v1/results/{id}", Requirement::ToolPermissions, items::read_result)
            .describe("readResult", "Reads a stored result of the caller, by the last part of its URI.")
            .gives(200, RESULT)
            .or(CALL_ERRORS),
    ]
}

fn server_rows() -> Vec<Route> {
    let (read, write) = (Requirement::Permission(SERVERS_READ), Requirement::Permission(SERVERS_WRITE));
    vec![
        get("/v1/servers", read, servers::list)
            .describe("listServers", "Lists the MCP servers with their status.")
            .gives(200, ResponseContent::Json("Servers")),
        post("/v1/servers", write, changes::add_server)
            .describe("addServer", "Registers an MCP server. A local command also needs `servers:exec`.")
            .takes("ServerEntry")
            .gives(201, CHANGE)
            .conditional(),
        post("/v1/servers/test", write, server_test::test)
            .describe("testServer", "Connects to a server without registering it, and shows its offer.")
            .takes("ServerEntry")
            .gives(200, ResponseContent::Json("ServerTest"))
            .or(&[409, 422, 503]),
        post("/v1/servers/import", write, server_test::import)
            .describe("importServers", "Shows or registers the servers of a pasted configuration.")
            .takes_type::<server_test::ImportBody>("ServerImport")
            .gives(200, ResponseContent::Json("ServersImported"))
            .or(&[409, 422, 503]),
        // With the second permission, the entry as it is written.
        get("/v1/servers/{name}", Requirement::Details(SERVERS_READ, SERVERS_WRITE), servers::show)
            .describe("showServer", "Returns an MCP server with its status. `PUT` takes its `entry`.")
            .gives(200, SERVER),
        put("/v1/servers/{name}", write, changes::change_server)
            .describe("replaceServer", "Replaces an MCP server.")
            .takes("ServerEntry")
            .gives(200, CHANGE)
            .conditional(),
        patch("/v1/servers/{name}", write, changes::change_server)
            .describe("changeServer", "Changes some keys. `null` removes a key.")
            .takes("Patch")
            .gives(200, CHANGE)
            .conditional(),
        delete("/v1/servers/{name}", write, changes::change_server)
            .describe("removeServer", "Removes an MCP server.")
            .gives(204, ResponseContent::Empty)
            .conditional(),
        post("/v1/servers/{name}/reconnect", write, servers::reconnect)
            .describe("reconnect", "Reconnects to an MCP server.")
            .gives(200, SERVER)
            .or(&[503]),
        get("/v1/servers/{name}/stderr", Requirement::Permission(SERVERS_LOGS), servers::stderr)
            .describe("serverStderr", "Returns the last lines that the process of a server wrote to stderr.")
            .query(&[("lines", "integer", "Maximum number of lines (default 100, maximum 1000).")])
            .gives(200, ResponseContent::Json("ServerStderr")),
        // With the second permission, recorded calls that do not fit.
        get(
            "/v1/servers/{name}/waiting",
            Requirement::Details(SERVERS_READ, EXECUTIONS_READ),
            servers::waiting,
        )
        .describe("listWaiting", "Lists definitions that wait for approval, and rejected ones.")
        .gives(200, ResponseContent::Json("WaitingDefinitions"))
        .or(&[503]),
        post("/v1/servers/{name}/reject", write, servers::reject)
            .describe("reject", "Rejects definitions of an MCP server until it changes them again.")
            .takes_type::<servers::ApprovalBody>("Approval")
            .gives(200, ResponseContent::Json("RejectedDefinitions"))
            .or(&[412, 503]),
        // Callers log in for themselves; with the permission, for the gateway.
        post("/v1/servers/{name}/login", Requirement::OwnOr(SERVERS_WRITE), servers::login)
            .describe("startLogin", "Starts a login to an MCP server, and returns the URL for a browser.")
            .gives(200, ResponseContent::Json("StartedLogin"))
            .or(&[409]),
        post("/v1/servers/{name}/approve", write, servers::approve)
            .describe("approve", "Approves quarantined tools of an MCP server.")
            .takes_type::<servers::ApprovalBody>("Approval")
            .gives(200, ResponseContent::Json("Approved"))
            .or(&[412, 503]),
    ]
}

fn execution_rows() -> Vec<Route> {
    let read = Requirement::Permission(EXECUTIONS_READ);
    vec![
        get("/v1/executions", read, executions::list)
            .describe("listExecutions", "Lists executions, newest first.")
            .query(&EXECUTION_FILTERS)
            .gives(200, ResponseContent::Json("Executions"))
            .or(&[503]),
        get("/v1/executions/stream", read, executions::stream)
            .describe("streamExecutions", "Streams executions as they end, one event each.")
            .query(STREAM_FILTERS)
            .gives(200, ResponseContent::Events)
            .or(&[503]),
        get("/v1/executions/{id}", read, executions::show)
            .describe("showExecution", "Returns an execution with all details.")
            .gives(200, ResponseContent::Json("Execution"))
            .or(&[503]),
        delete("/v1/executions/{id}", Requirement::OwnOr(EXECUTIONS_CANCEL), executions::cancel)
            .describe(
                "cancelExecution",
                "Cancels a running call of the caller, or of others with `executions:cancel`.",
            )
            .gives(202, ResponseContent::Json("Cancelled"))
            .or(&[404, 409, 503]),
        get("/v1/figures", Requirement::OwnOr(EXECUTIONS_READ), figures::show)
            .describe("figures", "Returns numbers and durations of calls over time.")
            .query(FIGURE_FILTERS)
            .gives(200, ResponseContent::Json("Figures")),
        get("/v1/log", read, figures::log)
            .describe("log", "Returns the state of the execution log.")
            .gives(200, ResponseContent::Json("Log"))
            .or(&[503]),
        post("/v1/log/verify", read, figures::verify_log)
            .describe("verifyLog", "Starts a verification of the whole log in the background.")
            .gives(202, ResponseContent::Json("Log"))
            .or(&[503]),
        get("/v1/events", ANY, events::stream)
            .describe("events", "Streams changes that the caller may see. `Last-Event-ID` resumes a stream.")
            .query(&[("kinds", "string", "Kinds of events, separated by commas. Without it, all.")])
            .gives(200, ResponseContent::Events),
        post("/v1/policy/why", Requirement::Permission(POLICY_READ), call::explain_policy)
            .describe("why", "Explains how the policy would decide a call.")
            .takes_schema("Why", Some(call::explain_schema))
            .gives(200, ResponseContent::Json("Decision"))
            .or(&[404]),
    ]
}

fn policy_rows() -> Vec<Route> {
    let read = Requirement::Permission(POLICY_READ);
    vec![
        get("/v1/policy", read, policy::show)
            .describe("showPolicy", "Returns the text of the policy, with its hash as the `ETag`.")
            .gives(200, ResponseContent::Json("Policy"))
            .or(&[503]),
        put("/v1/policy", Requirement::Permission(POLICY_WRITE), policy::replace)
            .describe(
                "replacePolicy",
                "Replaces the policy. `If-Match` takes the hash of the one it was made from.",
            )
            .takes_type::<policy::PolicyBody>("PolicyText")
            .gives(200, ResponseContent::Json("Policy"))
            .or(&[409, 412, 422, 503]),
        post("/v1/policy/check", read, policy::check)
            .describe("checkPolicy", "Checks a policy with the rest of the project, and changes nothing.")
            .takes_type::<policy::PolicyBody>("PolicyText")
            .gives(200, ResponseContent::Json("PolicyCheck"))
            .or(&[503]),
        post("/v1/policy/replay", Requirement::Both(POLICY_READ, EXECUTIONS_READ), policy::replay)
            .describe(
                "replayPolicy",
                "Decides recorded calls again with another policy, and changes nothing.",
            )
            .takes_type::<policy::ReplayBody>("PolicyReplay")
            .gives(200, ResponseContent::Json("Replayed"))
            .or(&[503]),
        get("/v1/policy/matrix", read, policy::matrix)
            .describe("policyMatrix", "Returns the decisions for callers and tools, without arguments.")
            .query(MATRIX_FILTERS)
            .gives(200, ResponseContent::Json("PolicyMatrix"))
            .or(&[503]),
        get("/v1/policy/versions", read, policy::versions)
            .describe("listPolicyVersions", "Lists policies that were replaced over HTTP, newest first.")
            .gives(200, ResponseContent::Json("PolicyVersions"))
            .or(&[503]),
        get("/v1/policy/versions/{hash}", read, policy::version)
            .describe("showPolicyVersion", "Returns a policy that was replaced.")
            .gives(200, ResponseContent::Json("PolicyVersion"))
            .or(&[503]),
    ]
}

fn question_rows() -> Vec<Route> {
    let question = ResponseContent::Json("Question");
    vec![
        get("/v1/human-input", Requirement::Permission(HUMAN_INPUT_READ), questions::inputs)
            .describe("listHumanInput", "Lists questions to a person.")
            .query(QUESTION_FILTERS)
            .gives(200, ResponseContent::Json("Questions")),
        get("/v1/human-input/{id}", Requirement::Permission(HUMAN_INPUT_READ), questions::input)
            .describe("showHumanInput", "Returns a question.")
            .gives(200, question),
        post("/v1/human-input/{id}", Requirement::Permission(HUMAN_INPUT_ANSWER), questions::answer_input)
            .describe("answerHumanInput", "Answers a question. The caller that asked cannot answer it.")
            .takes_type::<questions::AnswerBody>("Answer")
            .gives(200, ResponseContent::Json("Answered"))
            .or(&[422]),
        get("/v1/approvals", Requirement::Permission(APPROVALS_READ), questions::approvals)
            .describe("listApprovals", "Lists calls that need approval.")
            .query(QUESTION_FILTERS)
            .gives(200, ResponseContent::Json("Approvals")),
        get("/v1/approvals/{id}", Requirement::Permission(APPROVALS_READ), questions::approval)
            .describe("showApproval", "Returns a call that needs approval, as it was sent.")
            .gives(200, question),
        post("/v1/approvals/{id}", Requirement::Permission(APPROVALS_ANSWER), questions::answer_approval)
            .describe("answerApproval", "Approves or rejects a call. The caller that made it cannot answer.")
            .takes_type::<questions::ApprovalAnswer>("Approve")
            .gives(200, ResponseContent::Json("Answered"))
            .or(&[422]),
    ]
}

fn caller_rows() -> Vec<Route> {
    let (read, write) = (Requirement::Permission(CALLERS_READ), Requirement::Permission(CALLERS_WRITE));
    vec![
        get("/v1/callers", read, callers::list)
            .describe("listCallers", "Lists the callers.")
            .query(CALLER_PAGE)
            .gives(200, ResponseContent::Json("Callers")),
        post("/v1/callers", write, callers::add)
            .describe("addCaller", "Creates a caller. Its key is shown only in this response.")
            .takes_type::<callers::CallerBody>("CallerEntry")
            .gives(201, ResponseContent::Json("CallerMade"))
            .or(&[409, 422, 503]),
        get("/v1/callers/{id}", read, callers::show)
            .describe("showCaller", "Returns a caller.")
            .gives(200, ResponseContent::Json("Caller")),
        patch("/v1/callers/{id}", write, callers::change)
            .describe("changeCaller", "Changes a caller that was created at runtime.")
            .takes_type::<callers::CallerPatch>("CallerPatch")
            .gives(200, ResponseContent::Json("Caller"))
            .or(&[409, 422, 503]),
        delete("/v1/callers/{id}", write, callers::remove)
            .describe("removeCaller", "Removes a caller and revokes its keys.")
            .gives(204, ResponseContent::Empty)
            .or(&[409, 422, 503]),
        get("/v1/callers/{id}/keys", read, callers::keys)
            .describe("listKeys", "Lists the stored keys of a caller: names, expiry and last use.")
            .gives(200, ResponseContent::Json("Keys")),
        post("/v1/callers/{id}/keys", write, callers::add_key)
            .describe("addKey", "Adds a key of a caller. It is shown only in this response.")
            .takes_type::<callers::KeyBody>("KeyEntry")
            .gives(201, ResponseContent::Json("KeyMade"))
            .or(&[404, 409, 422, 503]),
        post("/v1/callers/{id}/keys/rotate", write, callers::rotate_key)
            .describe("rotateKey", "Replaces a key. The old one stays valid for the overlap.")
            .takes_type::<callers::RotateBody>("KeyRotation")
            .gives(201, ResponseContent::Json("KeyMade"))
            .or(&[404, 422, 503]),
        post("/v1/callers/{id}/keys/revoke", write, callers::revoke_key)
            .describe("revokeKey", "Revokes a key. Its streams end at once.")
            .takes_type::<callers::RevokeBody>("KeyRevocation")
            .gives(204, ResponseContent::Empty)
            .or(&[404, 422, 503]),
    ]
}

fn credential_rows() -> Vec<Route> {
    vec![
        get("/v1/credentials", ANY, credentials::list)
            .describe("listCredentials", "Lists the stored credentials of the caller, without their secrets.")
            .gives(200, ResponseContent::Json("Credentials"))
            .or(&[503]),
        put("/v1/credentials/{server}", ANY, credentials::set)
            .describe("setCredential", "Stores a credential of the caller for a server with `auth: caller`.")
            .takes_type::<credentials::NewCredential>("NewCredential")
            .gives(204, ResponseContent::Empty)
            .or(&[404, 422, 503]),
        delete("/v1/credentials/{server}", ANY, credentials::remove)
            .describe("removeCredential", "Removes a credential of the caller, and revokes its login.")
            .gives(204, ResponseContent::Empty)
            .or(&[404, 503]),
        // Pages for browsers; the ticket in the path, and the cookie, are the credentials.
        get("/login/callback", PUBLIC, login::finish),
        get("/login/{ticket}", PUBLIC, login::show),
        post("/login/{ticket}", PUBLIC, login::start),
    ]
}

fn run_rows() -> Vec<Route> {
    vec![
        post("/v1/runs", Requirement::Permission(RUNS_START), runs::start)
            .describe("startRun", "Starts or resumes an agent run, and streams its events.")
            .takes_type::<runs::RunBody>("NewRun")
            .gives(200, ResponseContent::Events)
            .or(&[404, 409, 503]),
        get("/v1/runs", Requirement::OwnOr(RUNS_READ), runs::list)
            .describe(
                "listRuns",
                "Lists runs of the caller, newest first. With `runs:read`, runs of all callers.",
            )
            .query(RUN_FILTERS)
            .gives(200, ResponseContent::Json("Runs"))
            .or(&[503]),
        get("/v1/runs/{id}", Requirement::OwnOr(RUNS_READ), runs::show)
            .describe("showRun", "Returns a run with its state and its entries.")
            .gives(200, ResponseContent::Json("RunEntries"))
            .or(&[503]),
        delete("/v1/runs/{id}", Requirement::OwnOr(RUNS_STOP), runs::stop)
            .describe(
                "stopRun",
                "Stops a run of the caller; with `runs:stop`, a run of any caller. It can be resumed.",
            )
            .gives(202, ResponseContent::Json("StoppedRun"))
            .or(&[409, 503]),
        get("/v1/runs/{id}/events", Requirement::OwnOr(RUNS_READ), runs::events)
            .describe(
                "watchRun",
                "Streams the events of a run, from the first one, or after `Last-Event-ID`.",
            )
            .gives(200, ResponseContent::Events)
            .or(&[503]),
    ]
}

/// MCP and OAuth metadata, which are not part of the REST API.
fn protocol_rows() -> Vec<Route> {
    let metadata = |path| get(path, PUBLIC, protected_resource::metadata);
    vec![
        Route::mcp(Method::GET, "/mcp"),
        Route::mcp(Method::POST, "/mcp"),
        Route::mcp(Method::DELETE, "/mcp"),
        Route::mcp(Method::GET, "/mcp/{profile}"),
        Route::mcp(Method::POST, "/mcp/{profile}"),
        Route::mcp(Method::DELETE, "/mcp/{profile}"),
        get("/sse", Requirement::Profile, sse::open),
        get("/sse/{profile}", Requirement::Profile, sse::open),
        // Counts only from the caller that opened the stream.
        post("/sse/messages", ANY, sse::message).reads_body(),
        get("/ws", Requirement::Profile, ws::open),
        get("/ws/{profile}", Requirement::Profile, ws::open),
        get("/stdio", ANY, stdio::open),
        metadata("/.well-known/oauth-protected-resource"),
        metadata("/.well-known/oauth-protected-resource/mcp"),
        metadata("/.well-known/oauth-protected-resource/mcp/{profile}"),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn operation_ids_are_unique() {
        let all: Vec<_> = ROUTES.rows().iter().filter_map(|row| row.operation.as_ref()).collect();
        let ids: HashSet<_> = all.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), all.len());
        for operation in &all {
            assert!(operation.summary.ends_with('.'), "{operation:?}");
        }
    }

    /// Every row is found by its own method and path, and no two rows have both in common.
    #[test]
    fn every_row_can_be_reached() {
        for row in ROUTES.rows() {
            let path = row.path.replace(['{', '}'], "");
            let uri: Uri = path.parse().unwrap();
            let (found, parameter) = ROUTES.find(&row.method, &uri).unwrap();
            assert!(std::ptr::eq(found, row), "{row:?}");
            assert_eq!(parameter, row.parameter(), "the test path has the name as the value");
        }
    }

    #[test]
    fn all_permissions_for_management_are_listed() {
        for row in ROUTES.rows() {
            let more = match row.need {
                Requirement::PublicOr(one) | Requirement::OwnOr(one) | Requirement::Details(_, one) => {
                    Some(one)
                }
                _ => None,
            };
            for permission in row.need.permissions().into_iter().chain(more) {
                assert!(MANAGEMENT_PERMISSIONS.contains(&permission), "{permission}");
            }
        }
        assert!(MANAGEMENT_PERMISSIONS.is_sorted());
        assert!(EXPLICIT_PERMISSIONS.iter().all(|it| MANAGEMENT_PERMISSIONS.contains(it)));
    }

    #[test]
    fn protocol_routes_name_the_metadata_path() {
        for row in ROUTES.rows().iter().filter(|row| row.path.starts_with("/.well-known")) {
            assert!(row.path.starts_with(protected_resource::METADATA_PATH));
        }
    }

    #[test]
    fn unknown_paths_and_methods_are_explained() {
        let message = |method: &str, path: &str| {
            let (method, uri) = (method.parse().unwrap(), path.parse::<Uri>().unwrap());
            let error = ROUTES.find(&method, &uri).map(|_| ()).unwrap_err();
            let allowed = error.details.and_then(|details| details.allowed_methods);
            (error.status.as_u16(), error.message, allowed)
        };
        let missing = |method: &str, path: &str| (404, format!("no such endpoint: {method} {path}"), None);
        for path in ["/v1/foo", "/v1/tools/", "/mcp/", "/mcp/a/b", "/none"] {
            assert_eq!(message("GET", path), missing("GET", path));
        }
        let not_allowed = |method: &str, path: &str, allowed: &str| {
            (
                405,
                format!("{method} is not supported on {path} (allowed: {allowed})"),
                Some(allowed.to_owned()),
            )
        };
        for (method, path, allowed) in [
            ("PATCH", "/v1/tools", "GET, HEAD, POST"),
            ("HEAD", "/mcp", "GET, POST, DELETE"),
            ("PUT", "/mcp/coding", "GET, POST, DELETE"),
            ("GET", "/sse/messages", "POST"),
            ("POST", "/v1/executions", "GET, HEAD"),
        ] {
            assert_eq!(message(method, path), not_allowed(method, path, allowed));
        }
        let long = format!("/{}", "x".repeat(300));
        assert!(message("GET", &long).1.ends_with("x…"));
        let head: Uri = "/healthz".parse().unwrap();
        assert!(ROUTES.find(&Method::HEAD, &head).is_ok());
    }
}
