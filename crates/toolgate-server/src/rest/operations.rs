//! The table of REST operations. The router, the OpenAPI document and the documentation page are built from it.
//!
//! Invariant: every endpoint except those of MCP is listed here, with its permission, its parameters, and every status
//! it can respond with.

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use super::api_operation::{ApiOperation, Parameter, Requirement, ResponseContent};
use super::{
    APPROVALS_ANSWER, APPROVALS_READ, CALLERS_READ, CALLERS_WRITE, EXECUTIONS_READ, HUMAN_INPUT_ANSWER,
    HUMAN_INPUT_READ, METRICS_READ, POLICY_READ, RUNS_START, SERVERS_READ, SERVERS_WRITE, TOOLS_WRITE, call,
    callers, changes, docs_page, executions, openapi, questions, runs, servers, tools,
};
use crate::{Gateway, health};

const TOOL_FILTERS: &[Parameter] = &[
    ("server", "string", "Only tools of this MCP server."),
    ("category", "string", "Only tools of this category."),
    ("tag", "string", "Only tools with this tag."),
];
const SEARCH_PARAMETERS: &[Parameter] = &[
    (
        "q",
        "string",
        "Description of the task, in any words. Without it, the tool named `search` is returned.",
    ),
    ("limit", "integer", "Maximum number of tools (default 5, maximum 100)."),
];
/// Filters of executions. The last two select a page.
const EXECUTION_FILTERS: [Parameter; 8] = [
    ("tool", "string", "Only calls of this tool."),
    ("caller", "string", "Only calls of this caller."),
    ("status", "string", "Only calls with this status, such as `success` or `error`."),
    ("since", "string", "Only calls since then: a time, a date, `today`, `yesterday`, or an age (`2h`)."),
    ("until", "string", "Only calls until then, in the same format."),
    ("grep", "string", "Only calls that contain this text."),
    ("limit", "integer", "Maximum number of executions (default 50, maximum 1000)."),
    ("cursor", "string", "The `next` of the previous page."),
];
/// Filters of a stream, which has no pages.
const STREAM_FILTERS: &[Parameter] = EXECUTION_FILTERS.split_at(6).0;

const PUBLIC: Requirement = Requirement::Public;
const TOOL: ResponseContent = ResponseContent::Json("Tool");
const SERVER: ResponseContent = ResponseContent::Json("Server");
const CHANGE: ResponseContent = ResponseContent::Json("Changed");
const RESULT: ResponseContent = ResponseContent::Json("Result");
/// Error statuses of a call: errors of the tool, and of the services it needs.
const CALL_ERRORS: &[u16] = &[404, 422, 503, 504, 507];

/// An operation with its handler.
type Row = (ApiOperation, MethodRouter<Arc<Gateway>>);

fn rows() -> Vec<Row> {
    let mut rows = gateway_rows();
    rows.extend(tool_rows());
    rows.extend(server_rows());
    rows.extend(execution_rows());
    rows.extend(question_rows());
    rows.extend(caller_rows());
    rows.extend(run_rows());
    rows
}

fn gateway_rows() -> Vec<Row> {
    let new = ApiOperation::new;
    let text = |kind| ResponseContent::Text(kind);
    vec![
        (
            new("get", "/healthz", "alive", "Liveness check.")
                .needs(PUBLIC)
                .gives(200, ResponseContent::Json("Alive")),
            get(health::alive),
        ),
        (
            new(
                "get",
                "/readyz",
                "ready",
                "Readiness check, with the reason and the next retry if not ready.",
            )
            .needs(PUBLIC)
            .gives(200, ResponseContent::Json("Ready"))
            .or(&[503]),
            get(health::ready),
        ),
        (
            new("get", "/metrics", "metrics", "Metrics in the Prometheus format.")
                .needs(Requirement::Permission(METRICS_READ))
                .gives(200, text("text/plain; version=0.0.4; charset=utf-8")),
            get(health::metrics),
        ),
        (
            new("get", "/v1/openapi.json", "openapi", "OpenAPI document of this API.")
                .needs(PUBLIC)
                .gives(200, ResponseContent::Json("Document")),
            get(openapi::show),
        ),
        (
            new("get", "/v1/docs", "docs", "HTML documentation of this API.")
                .needs(PUBLIC)
                .gives(200, text("text/html; charset=utf-8")),
            get(docs_page::show),
        ),
    ]
}

fn tool_rows() -> Vec<Row> {
    let new = ApiOperation::new;
    let write = Requirement::Permission(TOOLS_WRITE);
    vec![
        (
            new("get", "/v1/tools", "listTools", "Lists the tools visible to the caller.")
                .query(TOOL_FILTERS)
                .gives(200, ResponseContent::Json("Tools")),
            get(tools::list),
        ),
        (
            new("post", "/v1/tools", "addTool", "Registers a tool.")
                .needs(write)
                .takes("ToolEntry")
                .gives(201, CHANGE)
                .conditional(),
            post(changes::add_tool),
        ),
        (
            new("post", "/v1/tools/execute", "execute", "Calls the tool named in the body.")
                .needs(Requirement::ToolPermissions)
                .takes("Execute")
                .gives(200, RESULT)
                .or(CALL_ERRORS),
            post(call::execute),
        ),
        (
            new("get", "/v1/tools/search", "searchTools", "Searches tools by `q`, and suggests one to use.")
                .query(SEARCH_PARAMETERS)
                .gives(200, ResponseContent::Json("Found"))
                .or(&[404]),
            get(tools::search),
        ),
        // A tool may be named `search` or `execute`. Without `q`, the tool `search` is shown.
        (
            new("put", "/v1/tools/search", "replaceToolSearch", "Replaces the tool named `search`.")
                .needs(write)
                .takes("ToolEntry")
                .gives(200, CHANGE)
                .or(&[404])
                .conditional(),
            put(changes::change_routed),
        ),
        (
            new("patch", "/v1/tools/search", "changeToolSearch", "Changes keys of the tool named `search`.")
                .needs(write)
                .takes("Patch")
                .gives(200, CHANGE)
                .or(&[404])
                .conditional(),
            patch(changes::change_routed),
        ),
        (
            new("delete", "/v1/tools/search", "removeToolSearch", "Removes the tool named `search`.")
                .needs(write)
                .gives(204, ResponseContent::Empty)
                .or(&[404])
                .conditional(),
            delete(changes::change_routed),
        ),
        (
            new("get", "/v1/tools/execute", "showToolExecute", "Returns the tool named `execute`.")
                .gives(200, TOOL)
                .or(&[404]),
            get(tools::show_execute),
        ),
        (
            new("put", "/v1/tools/execute", "replaceToolExecute", "Replaces the tool named `execute`.")
                .needs(write)
                .takes("ToolEntry")
                .gives(200, CHANGE)
                .or(&[404])
                .conditional(),
            put(changes::change_routed),
        ),
        (
            new(
                "patch",
                "/v1/tools/execute",
                "changeToolExecute",
                "Changes keys of the tool named `execute`.",
            )
            .needs(write)
            .takes("Patch")
            .gives(200, CHANGE)
            .or(&[404])
            .conditional(),
            patch(changes::change_routed),
        ),
        (
            new("delete", "/v1/tools/execute", "removeToolExecute", "Removes the tool named `execute`.")
                .needs(write)
                .gives(204, ResponseContent::Empty)
                .or(&[404])
                .conditional(),
            delete(changes::change_routed),
        ),
        (new("get", "/v1/tools/{name}", "showTool", "Returns a tool.").gives(200, TOOL), get(tools::show)),
        (
            new("put", "/v1/tools/{name}", "replaceTool", "Replaces a registered tool.")
                .needs(write)
                .takes("ToolEntry")
                .gives(200, CHANGE)
                .conditional(),
            put(changes::change_tool),
        ),
        (
            new("patch", "/v1/tools/{name}", "changeTool", "Changes some keys. `null` removes a key.")
                .needs(write)
                .takes("Patch")
                .gives(200, CHANGE)
                .conditional(),
            patch(changes::change_tool),
        ),
        (
            new("delete", "/v1/tools/{name}", "removeTool", "Removes a registered tool.")
                .needs(write)
                .gives(204, ResponseContent::Empty)
                .conditional(),
            delete(changes::change_tool),
        ),
        (
            new("post", "/v1/tools/{name}/call", "call", "Calls a tool.")
                .needs(Requirement::ToolPermissions)
                .takes("Call")
                .gives(200, RESULT)
                .or(CALL_ERRORS),
            post(call::call),
        ),
    ]
}

fn server_rows() -> Vec<Row> {
    let new = ApiOperation::new;
    let (read, write) = (Requirement::Permission(SERVERS_READ), Requirement::Permission(SERVERS_WRITE));
    vec![
        (
            new("get", "/v1/servers", "listServers", "Lists the MCP servers with their status.")
                .needs(read)
                .gives(200, ResponseContent::Json("Servers")),
            get(servers::list),
        ),
        (
            new(
                "post",
                "/v1/servers",
                "addServer",
                "Registers an MCP server. A local command also needs `servers:exec`.",
            )
            .needs(write)
            .takes("ServerEntry")
            .gives(201, CHANGE)
            .conditional(),
            post(changes::add_server),
        ),
        (
            new("get", "/v1/servers/{name}", "showServer", "Returns an MCP server with its status.")
                .needs(read)
                .gives(200, SERVER),
            get(servers::show),
        ),
        (
            new("put", "/v1/servers/{name}", "replaceServer", "Replaces an MCP server.")
                .needs(write)
                .takes("ServerEntry")
                .gives(200, CHANGE)
                .conditional(),
            put(changes::change_server),
        ),
        (
            new("patch", "/v1/servers/{name}", "changeServer", "Changes some keys. `null` removes a key.")
                .needs(write)
                .takes("Patch")
                .gives(200, CHANGE)
                .conditional(),
            patch(changes::change_server),
        ),
        (
            new("delete", "/v1/servers/{name}", "removeServer", "Removes an MCP server.")
                .needs(write)
                .gives(204, ResponseContent::Empty)
                .conditional(),
            delete(changes::change_server),
        ),
        (
            new("post", "/v1/servers/{name}/reconnect", "reconnect", "Reconnects to an MCP server.")
                .needs(write)
                .gives(200, SERVER)
                .or(&[503]),
            post(servers::reconnect),
        ),
        (
            new(
                "post",
                "/v1/servers/{name}/approve",
                "approve",
                "Approves quarantined tools of an MCP server.",
            )
            .needs(write)
            .takes("Approval")
            .gives(200, ResponseContent::Json("Approved"))
            .or(&[412, 503]),
            post(servers::approve),
        ),
    ]
}

fn execution_rows() -> Vec<Row> {
    let new = ApiOperation::new;
    let read = Requirement::Permission(EXECUTIONS_READ);
    vec![
        (
            new("get", "/v1/executions", "listExecutions", "Lists executions, newest first.")
                .needs(read)
                .query(&EXECUTION_FILTERS)
                .gives(200, ResponseContent::Json("Executions"))
                .or(&[503]),
            get(executions::list),
        ),
        (
            new(
                "get",
                "/v1/executions/stream",
                "streamExecutions",
                "Streams executions as they end, one event each.",
            )
            .needs(read)
            .query(STREAM_FILTERS)
            .gives(200, ResponseContent::Events)
            .or(&[503]),
            get(executions::stream),
        ),
        (
            new("get", "/v1/executions/{id}", "showExecution", "Returns an execution with all details.")
                .needs(read)
                .gives(200, ResponseContent::Json("Execution"))
                .or(&[503]),
            get(executions::show),
        ),
        (
            new("post", "/v1/policy/why", "why", "Explains how the policy would decide a call.")
                .needs(Requirement::Permission(POLICY_READ))
                .takes("Why")
                .gives(200, ResponseContent::Json("Decision"))
                .or(&[404]),
            post(call::explain_policy),
        ),
    ]
}

fn question_rows() -> Vec<Row> {
    let new = ApiOperation::new;
    let question = ResponseContent::Json("Question");
    vec![
        (
            new("get", "/v1/human-input", "listHumanInput", "Lists questions that wait for a person.")
                .needs(Requirement::Permission(HUMAN_INPUT_READ))
                .gives(200, ResponseContent::Json("Questions")),
            get(questions::inputs),
        ),
        (
            new("get", "/v1/human-input/{id}", "showHumanInput", "Returns a question.")
                .needs(Requirement::Permission(HUMAN_INPUT_READ))
                .gives(200, question),
            get(questions::input),
        ),
        (
            new(
                "post",
                "/v1/human-input/{id}",
                "answerHumanInput",
                "Answers a question. The caller that asked cannot answer it.",
            )
            .needs(Requirement::Permission(HUMAN_INPUT_ANSWER))
            .takes("Answer")
            .gives(200, ResponseContent::Json("Answered"))
            .or(&[422]),
            post(questions::answer_input),
        ),
        (
            new("get", "/v1/approvals", "listApprovals", "Lists calls that wait for approval.")
                .needs(Requirement::Permission(APPROVALS_READ))
                .gives(200, ResponseContent::Json("Approvals")),
            get(questions::approvals),
        ),
        (
            new("get", "/v1/approvals/{id}", "showApproval", "Returns a call that waits for approval.")
                .needs(Requirement::Permission(APPROVALS_READ))
                .gives(200, question),
            get(questions::approval),
        ),
        (
            new(
                "post",
                "/v1/approvals/{id}",
                "answerApproval",
                "Approves or rejects a call. The caller that made it cannot answer.",
            )
            .needs(Requirement::Permission(APPROVALS_ANSWER))
            .takes("Approve")
            .gives(200, ResponseContent::Json("Answered"))
            .or(&[422]),
            post(questions::answer_approval),
        ),
    ]
}

fn caller_rows() -> Vec<Row> {
    let new = ApiOperation::new;
    let (read, write) = (Requirement::Permission(CALLERS_READ), Requirement::Permission(CALLERS_WRITE));
    vec![
        (
            new("get", "/v1/callers", "listCallers", "Lists the callers.")
                .needs(read)
                .gives(200, ResponseContent::Json("Callers")),
            get(callers::list),
        ),
        (
            new(
                "post",
                "/v1/callers",
                "addCaller",
                "Creates a caller. Its key is shown only in this response.",
            )
            .needs(write)
            .takes("CallerEntry")
            .gives(201, ResponseContent::Json("CallerMade"))
            .or(&[409, 422, 503]),
            post(callers::add),
        ),
        (
            new("get", "/v1/callers/{id}", "showCaller", "Returns a caller.")
                .needs(read)
                .gives(200, ResponseContent::Json("Caller")),
            get(callers::show),
        ),
        (
            new("delete", "/v1/callers/{id}", "removeCaller", "Removes a caller and revokes its key.")
                .needs(write)
                .gives(204, ResponseContent::Empty)
                .or(&[409, 422, 503]),
            delete(callers::remove),
        ),
    ]
}

fn run_rows() -> Vec<Row> {
    let new = ApiOperation::new;
    vec![
        (
            new("post", "/v1/runs", "startRun", "Starts or resumes an agent run, and streams its events.")
                .needs(Requirement::Permission(RUNS_START))
                .takes("NewRun")
                .gives(200, ResponseContent::Events)
                .or(&[404, 409, 503]),
            post(runs::start),
        ),
        (
            new(
                "get",
                "/v1/runs",
                "listRuns",
                "Lists runs of the caller, newest first. With `runs:read`, runs of all callers.",
            )
            .gives(200, ResponseContent::Json("Runs"))
            .or(&[503]),
            get(runs::list),
        ),
        (
            new("get", "/v1/runs/{id}", "showRun", "Returns a run with its state and its entries.")
                .gives(200, ResponseContent::Json("RunEntries"))
                .or(&[503]),
            get(runs::show),
        ),
        (
            new(
                "delete",
                "/v1/runs/{id}",
                "stopRun",
                "Stops a run of the caller; with `runs:stop`, a run of any caller. It can be resumed.",
            )
            .gives(202, ResponseContent::Json("StoppedRun"))
            .or(&[409, 503]),
            delete(runs::stop),
        ),
        (
            new(
                "get",
                "/v1/runs/{id}/events",
                "watchRun",
                "Streams the events of a run, from the first one, or after `Last-Event-ID`.",
            )
            .gives(200, ResponseContent::Events)
            .or(&[503]),
            get(runs::events),
        ),
    ]
}

/// All operations, without handlers.
pub(super) fn all() -> Vec<ApiOperation> {
    rows().into_iter().map(|(operation, _)| operation).collect()
}

pub(super) fn router() -> Router<Arc<Gateway>> {
    let rows = rows().into_iter();
    rows.fold(Router::new(), |router, (operation, handler)| router.route(operation.path, handler))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Routes outside the table are MCP, which has its own specification.
    #[test]
    fn every_rest_route_is_in_the_table() {
        let source = include_str!("../rest.rs");
        // OAuth metadata has a specification of its own as well.
        let routes = source.split(".route(").skip(1).filter(|route| {
            let path = route.split(", get(").next().unwrap_or_default();
            !path.contains("protected_resource::METADATA_PATH")
        });
        let routes: Vec<_> = routes.map(|route| route.split('"').nth(1).unwrap()).collect();
        assert!(!routes.is_empty(), "the source has no routes this test can find");
        for route in routes {
            let mcp = ["/mcp", "/sse", "/messages", "/ws"].iter().any(|start| route.starts_with(start));
            assert!(mcp, "{route} is not in the table of operations");
        }
    }

    #[test]
    fn operation_ids_are_unique() {
        let all = all();
        let ids: HashSet<_> = all.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), all.len());
        for operation in &all {
            assert!(operation.summary.ends_with('.'), "{operation:?}");
        }
    }

    /// A method that differs from its handler would add a wrong route.
    #[test]
    fn methods_match_their_handlers() {
        for (operation, handler) in rows() {
            let shown = format!("{handler:?}");
            // The debug output of axum lists the methods of a router.
            let has = |method: &str| {
                shown.contains(&format!("{method}: Route"))
                    || shown.contains(&format!("{method}: BoxedHandler"))
            };
            let methods = ["get", "put", "patch", "post", "delete"];
            let answered: Vec<_> = methods.into_iter().filter(|method| has(method)).collect();
            assert_eq!(answered, [operation.method], "{operation:?} is answered by {shown}");
        }
    }
}
