//! Search over everything: pages, tools, servers, callers, runs, and a call by its id.

use toolgate_console::frame::Section;
use toolgate_console::pages::{SearchHit, SearchPage};
use toolgate_console::rest::{Callers, Execution, Found, Runs, Servers};
use toolgate_console::text::{brief, url};

use super::super::visit::{Visit, target};
use crate::auth::HttpError;
use crate::response::Response;

/// Hits per kind.
const MAX_HITS: usize = 10;
/// Pages that are not about one thing: name, words, path, and an operation that the caller needs for it.
const PAGES: [(&str, &str, &str, Option<&str>); 13] = [
    ("Overview", "figures errors latency log chain verify", "/", None),
    ("Servers", "mcp health", "/servers", Some("listServers")),
    ("Add a server", "new test import paste connect", "/servers/new", Some("addServer")),
    ("Tools", "search", "/tools", None),
    ("Register a script", "new tool add python", "/tools/new", Some("addTool")),
    ("Executions", "calls log tail history", "/executions", Some("listExecutions")),
    ("Failed calls", "executions errors", "/executions?status=error", Some("listExecutions")),
    ("Inbox", "questions approvals approve", "/inbox", Some("listApprovals")),
    ("Runs", "agent start", "/runs", None),
    ("Policy", "why rules matrix cedar", "/policy", Some("why")),
    ("Callers", "keys create revoke rotate", "/callers", Some("listCallers")),
    ("Connect", "client claude cursor code profile", "/connect", None),
    ("REST reference", "api openapi documentation", "/v1/docs", None),
];

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let q = visit.query_value("q").unwrap_or_default();
    let words = q.trim();
    let mut groups: Vec<(&'static str, Vec<SearchHit>)> = Vec::new();
    let matches = |name: &str| name.to_lowercase().contains(&words.to_lowercase());
    if !words.is_empty() {
        let offered = PAGES.iter().filter(|(_, _, _, needs)| needs.is_none_or(|needs| visit.may(needs)));
        let pages = offered.filter(|(name, about, _, _)| matches(name) || matches_word(about, words));
        let page = |(name, _, path, _): &(&str, &str, &str, Option<&str>)| SearchHit {
            path: (*path).to_owned(),
            about: "page".to_owned(),
            name: (*name).to_owned(),
        };
        groups.push(("Pages", pages.map(page).collect()));
        let found: Option<Found> =
            visit.get_if("searchTools", &target("/v1/tools/search", [("q", words), ("limit", "10")])).await;
        let tools = found.into_iter().flat_map(|found| found.tools);
        let tool = |hit: toolgate_console::rest::Hit| SearchHit {
            path: format!("/tools/{}", url(&hit.name)),
            about: format!("score {:.2}", hit.score),
            name: hit.name,
        };
        groups.push(("Tools", tools.map(tool).collect()));
        let servers: Option<Servers> = visit.get_if("listServers", "/v1/servers").await;
        let servers =
            servers.into_iter().flat_map(|listed| listed.servers).filter(|server| matches(&server.name));
        let server = |server: toolgate_console::rest::Server| SearchHit {
            path: format!("/servers/{}", url(&server.name)),
            about: server.state,
            name: server.name,
        };
        groups.push(("Servers", servers.map(server).take(MAX_HITS).collect()));
        let callers: Option<Callers> = visit.get_if("listCallers", "/v1/callers").await;
        let callers = callers.into_iter().flat_map(|listed| listed.callers).filter(|one| matches(&one.id));
        let caller = |one: toolgate_console::rest::Caller| SearchHit {
            path: format!("/callers/{}", url(&one.id)),
            about: brief(one.description.as_deref().unwrap_or_default(), 80),
            name: one.id,
        };
        groups.push(("Callers", callers.map(caller).take(MAX_HITS).collect()));
        let runs: Option<Runs> = visit.get_if("listRuns", "/v1/runs").await;
        let runs = runs.into_iter().flat_map(|listed| listed.runs);
        let runs = runs.filter(|run| matches(&run.task) || run.run == words);
        let run = |run: toolgate_console::rest::Run| SearchHit {
            path: format!("/runs/{}", url(&run.run)),
            about: run.state,
            name: brief(&run.task, 80),
        };
        groups.push(("Runs", runs.map(run).take(MAX_HITS).collect()));
        if words.len() >= 16 && !words.contains(char::is_whitespace) {
            let call: Option<Execution> =
                visit.get_if("showExecution", &format!("/v1/executions/{}", url(words))).await;
            let call = call.map(|call| SearchHit {
                path: format!("/executions/{}", url(&call.id)),
                about: format!("{} of {}", call.shown_status(), call.caller),
                name: call.tool,
            });
            groups.push(("Calls", call.into_iter().collect()));
        }
        groups.retain(|(_, hits)| !hits.is_empty());
    }
    let frame = visit.frame(Section::Other, "Search", &[], "").await;
    Ok(visit.render(&SearchPage { frame, q, groups }))
}

/// Returns true if one of the words begins with the text.
fn matches_word(words: &str, text: &str) -> bool {
    text.len() > 1 && words.split(' ').any(|word| word.starts_with(&text.to_lowercase()))
}

#[test]
fn pages_are_found_by_the_start_of_a_word() {
    assert!(matches_word("why rules matrix", "Rul") && matches_word("why rules", "why"));
    assert!(!matches_word("why rules", "ules") && !matches_word("why rules", "w"));
}
