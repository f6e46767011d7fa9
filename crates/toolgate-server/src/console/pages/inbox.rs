//! The inbox: calls that wait for an approval, questions of tools and agents, and their answers.

use toolgate_console::frame::Section;
use toolgate_console::pages::{InboxPage, QuestionPage};
use toolgate_console::rest::{Executions, Question, Questions};
use toolgate_console::text::url;

use super::super::visit::{Visit, target};
use crate::auth::HttpError;
use crate::response::Response;

pub(crate) async fn list(visit: Visit) -> Result<Response, HttpError> {
    let history = visit.query_value("state").as_deref() == Some("answered");
    let state = if history { "answered" } else { "" };
    let may_any = visit.may("listApprovals") || visit.may("listHumanInput");
    let (mut approvals, mut inputs) = (Questions::default(), Questions::default());
    if visit.may("listApprovals") || !may_any {
        approvals = visit.get(&target("/v1/approvals", [("state", state)])).await?;
    }
    if visit.may("listHumanInput") {
        inputs = visit.get(&target("/v1/human-input", [("state", state)])).await?;
    }
    let mut questions: Vec<Question> = approvals.approvals.into_iter().chain(inputs.questions).collect();
    questions.sort_by(|one, other| one.asked_at.cmp(&other.asked_at));
    if history {
        questions.sort_by(|one, other| other.answered_at.cmp(&one.answered_at));
    }
    let frame = visit.frame(Section::Inbox, "Inbox", &["toolgate approvals".to_owned()], "question").await;
    Ok(visit.render(&InboxPage { frame, history, questions }))
}

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let missing = || HttpError::not_found(format!("there is no question `{}`", visit.parameter()));
    let (kind, id) = visit.parameter().split_once('-').ok_or_else(missing)?;
    let place = match kind {
        "approval" => "approvals",
        "input" => "human-input",
        _ => return Err(missing()),
    };
    let question: Question = visit.get(&format!("/v1/{place}/{}", url(id))).await?;
    let filters = [("caller", question.caller.as_str()), ("tool", question.tool.as_str()), ("limit", "10")];
    let calls: Option<Executions> = visit.get_if("listExecutions", &target("/v1/executions", filters)).await;
    let frame = visit.frame(Section::Inbox, "Question", &["toolgate approvals".to_owned()], "question").await;
    Ok(visit.render(&QuestionPage { frame, question, calls: calls.map(|calls| calls.executions) }))
}
