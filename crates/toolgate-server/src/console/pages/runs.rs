//! The agent runs: their list, and one run with its entries and its budgets.

use http::StatusCode;
use toolgate_console::frame::Section;
use toolgate_console::pages::{RunPage, RunsPage};
use toolgate_console::rest::{Run, Runs};
use toolgate_console::text::url;

use super::super::visit::{Visit, notice_of, target};
use crate::auth::HttpError;
use crate::response::Response;

pub(crate) async fn list(visit: Visit) -> Result<Response, HttpError> {
    let cursor = visit.query_value("cursor").unwrap_or_default();
    let listed: Result<Runs, _> = visit.get(&target("/v1/runs", [("cursor", cursor.as_str())])).await;
    let (found, failure) = match listed {
        Ok(found) => (found, None),
        // Without an agent there is nothing wrong: the page says how to get one.
        Err(error) if error.status == StatusCode::SERVICE_UNAVAILABLE => {
            (Runs::default(), Some(notice_of(&error)))
        }
        Err(error) => return Err(error),
    };
    let next = found.next.map(|cursor| target("/runs", [("cursor", cursor.as_str())]));
    let commands = ["toolgate runs".to_owned(), "toolgate run \"TASK\"".to_owned()];
    let frame = visit.frame(Section::Runs, "Runs", &commands, "run").await;
    Ok(visit.render(&RunsPage { frame, failure, runs: found.runs, next }))
}

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let id = visit.parameter().to_owned();
    let run: Run = visit.get(&format!("/v1/runs/{}", url(&id))).await?;
    let frame =
        visit.frame(Section::Runs, "Run", &[format!("toolgate runs show {id}")], "run executions").await;
    Ok(visit.render(&RunPage { frame, run }))
}

/// The stream of a run: the text as it is written, calls, and the end.
pub(crate) async fn events(visit: Visit) -> Result<Response, HttpError> {
    visit.events(&format!("/v1/runs/{}/events", url(visit.parameter()))).await
}
