//! Search over everything: tools, servers, callers, and a call by its id.

use toolgate_console::frame::Section;
use toolgate_console::pages::{SearchHit, SearchPage};
use toolgate_console::rest::{Callers, Execution, Found, Servers};
use toolgate_console::text::{brief, url};

use super::super::visit::{Visit, target};
use crate::auth::HttpError;
use crate::response::Response;

/// Hits per kind.
const MAX_HITS: usize = 10;

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let q = visit.query_value("q").unwrap_or_default();
    let words = q.trim();
    let mut groups: Vec<(&'static str, Vec<SearchHit>)> = Vec::new();
    if !words.is_empty() {
        let found: Option<Found> =
            visit.get_if("searchTools", &target("/v1/tools/search", [("q", words), ("limit", "10")])).await;
        let tools = found.into_iter().flat_map(|found| found.tools);
        let tool = |hit: toolgate_console::rest::Hit| SearchHit {
            path: format!("/tools/{}", url(&hit.name)),
            about: format!("score {:.2}", hit.score),
            name: hit.name,
        };
        groups.push(("Tools", tools.map(tool).collect()));
        let matches = |name: &str| name.to_lowercase().contains(&words.to_lowercase());
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
