//! What can be asked for over REST, in one table: the router is made of it, and so are the OpenAPI document and the
//! page for people.
//!
//! Invariant: a request that is answered by anything but MCP stands here, with its permission, its parameters, and
//! every status that it can be answered with.

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use super::operation::{Content, Need, Operation, Parameter};
use super::{
    APPROVALS_ANSWER, APPROVALS_READ, CALLERS_READ, CALLERS_WRITE, EXECUTIONS_READ, HUMAN_INPUT_ANSWER,
    HUMAN_INPUT_READ, METRICS_READ, POLICY_READ, RUNS_START, SERVERS_READ, SERVERS_WRITE, TOOLS_WRITE, call,
    callers, changes, desk, document, executions, page, runs, servers, tools,
};
use crate::{Door, health};

const TOOLS: &[Parameter] = &[
    ("server", "string", "Only those of this MCP server."),
    ("category", "string", "Only those of this category."),
    ("tag", "string", "Only those with this tag."),
];
const SEARCH: &[Parameter] = &[
    ("q", "string", "What is wanted, in any words. Without it, the tool that is called `search` is shown."),
    ("limit", "integer", "So many at most: 5 where nothing is said, 100 in any case."),
];
/// What calls are chosen by; the last two say which of them are on a page.
const CALLS: [Parameter; 8] = [
    ("tool", "string", "Calls of this tool."),
    ("caller", "string", "Calls of this caller."),
    ("status", "string", "How they ended, such as `success` or `error`."),
    ("since", "string", "From then on: a time, a date, `today`, `yesterday`, or how long ago (`2h`)."),
    ("until", "string", "Up to then."),
    ("grep", "string", "With this text in them."),
    ("limit", "integer", "So many at most: 50 where nothing is said, 1000 in any case."),
    ("cursor", "string", "The `next` of the page before."),
];
/// What a stream is chosen by: it has no pages.
const STREAM: &[Parameter] = CALLS.split_at(6).0;

const NO_KEY: Need = Need::Nothing;
const TOOL: Content = Content::Json("Tool");
const SERVER: Content = Content::Json("Server");
const CHANGED: Content = Content::Json("Changed");
const RESULT: Content = Content::Json("Result");
/// How a call can end beside well: its tool's own errors, and those of what it runs on.
const CALL_ERRORS: &[u16] = &[404, 422, 503, 504, 507];

/// An operation with what answers it.
type Row = (Operation, MethodRouter<Arc<Door>>);

/// The table.
fn rows() -> Vec<Row> {
    let mut rows = about_us();
    rows.extend(about_tools());
    rows.extend(about_servers());
    rows.extend(about_calls());
    rows.extend(about_questions());
    rows.extend(about_callers());
    rows.extend(about_runs());
    rows
}

fn about_us() -> Vec<Row> {
    let new = Operation::new;
    let text = |kind| Content::Text(kind);
    vec![
        (
            new("get", "/healthz", "alive", "Says that it lives.")
                .needs(NO_KEY)
                .gives(200, Content::Json("Alive")),
            get(health::alive),
        ),
        (
            new("get", "/readyz", "ready", "Whether it can serve, why not, and when the next try is.")
                .needs(NO_KEY)
                .gives(200, Content::Json("Ready"))
                .or(&[503]),
            get(health::ready),
        ),
        (
            new("get", "/metrics", "metrics", "Numbers for Prometheus.")
                .needs(Need::Permission(METRICS_READ))
                .gives(200, text("text/plain; version=0.0.4; charset=utf-8")),
            get(health::metrics),
        ),
        (
            new("get", "/v1/openapi.json", "openapi", "This description, as an OpenAPI document.")
                .needs(NO_KEY)
                .gives(200, Content::Json("Document")),
            get(document::show),
        ),
        (
            new("get", "/v1/docs", "docs", "This description, as a page for people.")
                .needs(NO_KEY)
                .gives(200, text("text/html; charset=utf-8")),
            get(page::show),
        ),
    ]
}

fn about_tools() -> Vec<Row> {
    let new = Operation::new;
    let write = Need::Permission(TOOLS_WRITE);
    vec![
        (
            new("get", "/v1/tools", "listTools", "The tools that the caller may see.")
                .query(TOOLS)
                .gives(200, Content::Json("Tools")),
            get(tools::list),
        ),
        (
            new("post", "/v1/tools", "addTool", "Registers a tool of one's own.")
                .needs(write)
                .takes("ToolEntry")
                .gives(201, CHANGED)
                .conditional(),
            post(changes::add_tool),
        ),
        (
            new("post", "/v1/tools/execute", "execute", "Calls the tool that the body names.")
                .needs(Need::OfTool)
                .takes("Execute")
                .gives(200, RESULT)
                .or(CALL_ERRORS),
            post(call::execute),
        ),
        (
            new(
                "get",
                "/v1/tools/search",
                "searchTools",
                "The tools that fit the words of `q`, and whether to use one.",
            )
            .query(SEARCH)
            .gives(200, Content::Json("Found"))
            .or(&[404]),
            get(tools::search),
        ),
        // A tool may be called `search` or `execute`, too. Without `q` the first is shown.
        (
            new(
                "put",
                "/v1/tools/search",
                "replaceToolSearch",
                "Writes the tool that is called `search` anew.",
            )
            .needs(write)
            .takes("ToolEntry")
            .gives(200, CHANGED)
            .or(&[404])
            .conditional(),
            put(changes::change_routed),
        ),
        (
            new("patch", "/v1/tools/search", "changeToolSearch", "Changes some of its keys.")
                .needs(write)
                .takes("Patch")
                .gives(200, CHANGED)
                .or(&[404])
                .conditional(),
            patch(changes::change_routed),
        ),
        (
            new("delete", "/v1/tools/search", "removeToolSearch", "Takes it away.")
                .needs(write)
                .gives(204, Content::Empty)
                .or(&[404])
                .conditional(),
            delete(changes::change_routed),
        ),
        (
            new("get", "/v1/tools/execute", "showToolExecute", "The tool that is called `execute`.")
                .gives(200, TOOL)
                .or(&[404]),
            get(tools::show_execute),
        ),
        (
            new("put", "/v1/tools/execute", "replaceToolExecute", "Writes it anew.")
                .needs(write)
                .takes("ToolEntry")
                .gives(200, CHANGED)
                .or(&[404])
                .conditional(),
            put(changes::change_routed),
        ),
        (
            new("patch", "/v1/tools/execute", "changeToolExecute", "Changes some of its keys.")
                .needs(write)
                .takes("Patch")
                .gives(200, CHANGED)
                .or(&[404])
                .conditional(),
            patch(changes::change_routed),
        ),
        (
            new("delete", "/v1/tools/execute", "removeToolExecute", "Takes it away.")
                .needs(write)
                .gives(204, Content::Empty)
                .or(&[404])
                .conditional(),
            delete(changes::change_routed),
        ),
        (new("get", "/v1/tools/{name}", "showTool", "One tool.").gives(200, TOOL), get(tools::show)),
        (
            new("put", "/v1/tools/{name}", "replaceTool", "Writes a tool of one's own anew.")
                .needs(write)
                .takes("ToolEntry")
                .gives(200, CHANGED)
                .conditional(),
            put(changes::change_tool),
        ),
        (
            new(
                "patch",
                "/v1/tools/{name}",
                "changeTool",
                "Changes some of its keys; `null` takes one away.",
            )
            .needs(write)
            .takes("Patch")
            .gives(200, CHANGED)
            .conditional(),
            patch(changes::change_tool),
        ),
        (
            new("delete", "/v1/tools/{name}", "removeTool", "Takes a tool of one's own away.")
                .needs(write)
                .gives(204, Content::Empty)
                .conditional(),
            delete(changes::change_tool),
        ),
        (
            new("post", "/v1/tools/{name}/call", "call", "Calls a tool.")
                .needs(Need::OfTool)
                .takes("Call")
                .gives(200, RESULT)
                .or(CALL_ERRORS),
            post(call::call),
        ),
    ]
}

fn about_servers() -> Vec<Row> {
    let new = Operation::new;
    let (read, write) = (Need::Permission(SERVERS_READ), Need::Permission(SERVERS_WRITE));
    vec![
        (
            new("get", "/v1/servers", "listServers", "The MCP servers, and what each is doing.")
                .needs(read)
                .gives(200, Content::Json("Servers")),
            get(servers::list),
        ),
        (
            new(
                "post",
                "/v1/servers",
                "addServer",
                "Registers an MCP server; `servers:exec` too where it runs here.",
            )
            .needs(write)
            .takes("ServerEntry")
            .gives(201, CHANGED)
            .conditional(),
            post(changes::add_server),
        ),
        (
            new("get", "/v1/servers/{name}", "showServer", "One MCP server.").needs(read).gives(200, SERVER),
            get(servers::show),
        ),
        (
            new("put", "/v1/servers/{name}", "replaceServer", "Writes an MCP server anew.")
                .needs(write)
                .takes("ServerEntry")
                .gives(200, CHANGED)
                .conditional(),
            put(changes::change_server),
        ),
        (
            new(
                "patch",
                "/v1/servers/{name}",
                "changeServer",
                "Changes some of its keys; `null` takes one away.",
            )
            .needs(write)
            .takes("Patch")
            .gives(200, CHANGED)
            .conditional(),
            patch(changes::change_server),
        ),
        (
            new("delete", "/v1/servers/{name}", "removeServer", "Takes an MCP server away.")
                .needs(write)
                .gives(204, Content::Empty)
                .conditional(),
            delete(changes::change_server),
        ),
        (
            new(
                "post",
                "/v1/servers/{name}/reconnect",
                "reconnect",
                "Ends the connection and begins a new one.",
            )
            .needs(write)
            .gives(200, SERVER)
            .or(&[503]),
            post(servers::reconnect),
        ),
        (
            new("post", "/v1/servers/{name}/approve", "approve", "Lets through what waits for approval.")
                .needs(write)
                .takes("Approval")
                .gives(200, Content::Json("Approved"))
                .or(&[412, 503]),
            post(servers::approve),
        ),
    ]
}

fn about_calls() -> Vec<Row> {
    let new = Operation::new;
    let read = Need::Permission(EXECUTIONS_READ);
    vec![
        (
            new("get", "/v1/executions", "listExecutions", "What was called, the newest first.")
                .needs(read)
                .query(&CALLS)
                .gives(200, Content::Json("Executions"))
                .or(&[503]),
            get(executions::list),
        ),
        (
            new("get", "/v1/executions/stream", "streamExecutions", "Calls as they end, one event each.")
                .needs(read)
                .query(STREAM)
                .gives(200, Content::Events)
                .or(&[503]),
            get(executions::stream),
        ),
        (
            new("get", "/v1/executions/{id}", "showExecution", "One call, whole.")
                .needs(read)
                .gives(200, Content::Json("Execution"))
                .or(&[503]),
            get(executions::show),
        ),
        (
            new("post", "/v1/policy/why", "why", "How a call would be decided, and why.")
                .needs(Need::Permission(POLICY_READ))
                .takes("Why")
                .gives(200, Content::Json("Decision"))
                .or(&[404]),
            post(call::why),
        ),
    ]
}

fn about_questions() -> Vec<Row> {
    let new = Operation::new;
    let question = Content::Json("Question");
    vec![
        (
            new("get", "/v1/human-input", "listHumanInput", "What waits for a person's answer.")
                .needs(Need::Permission(HUMAN_INPUT_READ))
                .gives(200, Content::Json("Questions")),
            get(desk::inputs),
        ),
        (
            new("get", "/v1/human-input/{id}", "showHumanInput", "One question.")
                .needs(Need::Permission(HUMAN_INPUT_READ))
                .gives(200, question),
            get(desk::input),
        ),
        (
            new("post", "/v1/human-input/{id}", "answerHumanInput", "Answers it; not for who asks.")
                .needs(Need::Permission(HUMAN_INPUT_ANSWER))
                .takes("Answer")
                .gives(200, Content::Json("Answered"))
                .or(&[422]),
            post(desk::answer_input),
        ),
        (
            new("get", "/v1/approvals", "listApprovals", "Calls that wait for a yes.")
                .needs(Need::Permission(APPROVALS_READ))
                .gives(200, Content::Json("Approvals")),
            get(desk::approvals),
        ),
        (
            new("get", "/v1/approvals/{id}", "showApproval", "One call that waits.")
                .needs(Need::Permission(APPROVALS_READ))
                .gives(200, question),
            get(desk::approval),
        ),
        (
            new("post", "/v1/approvals/{id}", "answerApproval", "Says yes or no; not for who would call.")
                .needs(Need::Permission(APPROVALS_ANSWER))
                .takes("Approve")
                .gives(200, Content::Json("Answered"))
                .or(&[422]),
            post(desk::answer_approval),
        ),
    ]
}

fn about_callers() -> Vec<Row> {
    let new = Operation::new;
    let (read, write) = (Need::Permission(CALLERS_READ), Need::Permission(CALLERS_WRITE));
    vec![
        (
            new("get", "/v1/callers", "listCallers", "Who there is.")
                .needs(read)
                .gives(200, Content::Json("Callers")),
            get(callers::list),
        ),
        (
            new("post", "/v1/callers", "addCaller", "Makes a caller; its key is shown this once.")
                .needs(write)
                .takes("CallerEntry")
                .gives(201, Content::Json("CallerMade"))
                .or(&[409, 422, 503]),
            post(callers::add),
        ),
        (
            new("get", "/v1/callers/{id}", "showCaller", "One caller.")
                .needs(read)
                .gives(200, Content::Json("Caller")),
            get(callers::show),
        ),
        (
            new("delete", "/v1/callers/{id}", "removeCaller", "Takes a caller away: its key counts no more.")
                .needs(write)
                .gives(204, Content::Empty)
                .or(&[409, 422, 503]),
            delete(callers::remove),
        ),
    ]
}

fn about_runs() -> Vec<Row> {
    let new = Operation::new;
    vec![
        (
            new(
                "post",
                "/v1/runs",
                "startRun",
                "Gives the agent a task, or goes on with a run; events as they happen.",
            )
            .needs(Need::Permission(RUNS_START))
            .takes("NewRun")
            .gives(200, Content::Events)
            .or(&[404, 409, 503]),
            post(runs::start),
        ),
        (
            new(
                "get",
                "/v1/runs",
                "listRuns",
                "The caller's runs, the newest first; with `runs:read` those of all.",
            )
            .gives(200, Content::Json("Runs"))
            .or(&[503]),
            get(runs::list),
        ),
        (
            new(
                "get",
                "/v1/runs/{id}",
                "showRun",
                "How a run stands, and what was asked, said and called in it.",
            )
            .gives(200, Content::Json("RunEntries"))
            .or(&[503]),
            get(runs::show),
        ),
        (
            new(
                "delete",
                "/v1/runs/{id}",
                "stopRun",
                "Stops a run of the caller; with `runs:stop` one of anybody. It can go on.",
            )
            .gives(202, Content::Json("StoppedRun"))
            .or(&[409, 503]),
            delete(runs::stop),
        ),
        (
            new(
                "get",
                "/v1/runs/{id}/events",
                "watchRun",
                "What happens in a run, from its beginning, or after the event in `Last-Event-ID`.",
            )
            .gives(200, Content::Events)
            .or(&[503]),
            get(runs::events),
        ),
    ]
}

/// What there is to tell of.
pub(super) fn all() -> Vec<Operation> {
    rows().into_iter().map(|(operation, _)| operation).collect()
}

/// The router of the table.
pub(super) fn router() -> Router<Arc<Door>> {
    let rows = rows().into_iter();
    rows.fold(Router::new(), |router, (operation, handler)| router.route(operation.path, handler))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What goes into the router beside the table speaks MCP, which has documents of its own.
    #[test]
    fn nothing_is_beside_the_table() {
        let source = include_str!("../rest.rs");
        // Where to log in is said as a standard of its own has it.
        let routes = source.split(".route(").skip(1).filter(|route| {
            let path = route.split(", get(").next().unwrap_or_default();
            !path.contains("resource::PLACE")
        });
        let routes: Vec<_> = routes.map(|route| route.split('"').nth(1).unwrap()).collect();
        assert!(!routes.is_empty(), "the text is not what this test reads");
        for route in routes {
            let mcp = ["/mcp", "/sse", "/messages", "/ws"].iter().any(|start| route.starts_with(start));
            assert!(mcp, "{route} is not in the table of operations");
        }
    }

    #[test]
    fn every_operation_is_told_of_once() {
        let all = all();
        let ids: HashSet<_> = all.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), all.len());
        for operation in &all {
            assert!(operation.summary.ends_with('.'), "{operation:?}");
        }
    }

    /// A method that does not fit its handler would be one route more.
    #[test]
    fn the_methods_are_those_of_the_handlers() {
        for (operation, handler) in rows() {
            let shown = format!("{handler:?}");
            // axum tells which methods a router has.
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
