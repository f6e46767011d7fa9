//! The first page: figures, open questions, and servers that need attention.

use toolgate_console::frame::Section;
use toolgate_console::pages::OverviewPage;
use toolgate_console::rest::{Executions, Figures, Questions, Servers};

use super::super::visit::{Visit, target};
use crate::auth::HttpError;
use crate::response::Response;

const PERIODS: [(&str, &str); 3] = [("15 minutes", "15m"), ("6 hours", "6h"), ("7 days", "7d")];
/// Servers that are not well, and questions, on this page.
const MAX_ROWS: usize = 8;

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let since = visit.query_value("since").filter(|since| PERIODS.iter().any(|(_, known)| known == since));
    let since = since.unwrap_or_else(|| PERIODS[0].1.to_owned());
    let figures: Option<Figures> =
        visit.get_if("figures", &target("/v1/figures", [("since", since.as_str())])).await;
    let approvals: Option<Questions> = visit.get_if("listApprovals", "/v1/approvals").await;
    let inputs: Option<Questions> = visit.get_if("listHumanInput", "/v1/human-input").await;
    let mut questions: Vec<_> = approvals.into_iter().flat_map(|open| open.approvals).collect();
    questions.extend(inputs.into_iter().flat_map(|open| open.questions));
    questions.truncate(MAX_ROWS);
    let servers: Option<Servers> = visit.get_if("listServers", "/v1/servers").await;
    let all = servers.map(|listed| listed.servers);
    let healthy = all.iter().flatten().filter(|server| server.state == "ready").count();
    let is_ill = |server: &toolgate_console::rest::Server| server.state != "ready" || server.held_back > 0;
    // With none that needs attention, the healthy ones are counted; without any server, the page says how to add one.
    let servers = all.map(|mut all| {
        if all.len() > MAX_ROWS {
            all.retain(is_ill);
            all.truncate(MAX_ROWS);
        }
        all
    });
    let log = visit.get_if("log", "/v1/log").await;
    let configuration = visit.get_if("configuration", "/v1/configuration").await;
    let running: Option<Executions> =
        visit.get_if("listExecutions", "/v1/executions?state=running&bodies=false&limit=20").await;
    let calls: Option<Executions> = visit.get_if("listExecutions", "/v1/executions?limit=8").await;
    let commands = ["toolgate servers", "toolgate log -n 8", "toolgate doctor"].map(str::to_owned);
    let frame =
        visit.frame(Section::Overview, "Overview", &commands, "executions server question log policy").await;
    Ok(visit.render(&OverviewPage {
        frame,
        since,
        periods: PERIODS,
        figures,
        questions,
        servers,
        healthy,
        log,
        configuration,
        running: running.map(|running| running.executions).unwrap_or_default(),
        calls: calls.map(|calls| calls.executions),
    }))
}
