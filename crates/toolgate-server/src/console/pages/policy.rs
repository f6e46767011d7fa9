//! The policy: why a call is decided as it is, the rules with the calls that a change would flip, and the matrix.

use http::{Method, header};
use serde_json::{Value as Json, json};
use toolgate_console::frame::{Notice, Section};
use toolgate_console::pages::{PolicyPage, PolicyQuery};
use toolgate_console::rest::{Policy, PolicyCheck, PolicyReplay, PolicyVersion, PolicyVersions, Why};
use toolgate_console::text::url;

use super::super::form;
use super::super::visit::{Visit, notice_of, problems_of, target};
use crate::auth::HttpError;
use crate::response::Response;

/// The entered rules, and the result.
#[derive(Default)]
struct Edit {
    text: Option<String>,
    /// Hash of the rules that the edit began with.
    base: Option<String>,
    failure: Option<Notice>,
    check: Option<PolicyCheck>,
    replay: Option<PolicyReplay>,
}

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let query: PolicyQuery = visit.query();
    let mut edit = Edit::default();
    let mut why = None;
    if !query.tool.is_empty() {
        let caller = if query.caller.is_empty() { visit.caller() } else { &query.caller };
        let body = json!({ "caller": caller, "tool": query.tool });
        match visit.post::<Why>("/v1/policy/why", &body).await {
            Ok(answer) => why = Some(answer),
            Err(error) => edit.failure = Some(notice_of(&error)),
        }
    }
    if !query.version.is_empty() {
        let version: PolicyVersion =
            visit.get(&format!("/v1/policy/versions/{}", url(&query.version))).await?;
        edit.text = version.text;
    }
    page(&visit, query, why, edit).await
}

/// Checks, replays or applies the rules that were entered.
pub(crate) async fn submit(visit: Visit) -> Result<Response, HttpError> {
    let text = visit.form.text("text").replace("\r\n", "\n");
    let body = json!({ "text": text });
    let base = visit.form.text("hash").to_owned();
    let mut edit = Edit { text: Some(text), base: Some(base.clone()), ..Edit::default() };
    match visit.form.text("do") {
        "apply" => {
            let revision = format!("\"{base}\"");
            let headers = [(header::IF_MATCH, revision.as_str())];
            match visit.perform(Method::PUT, "/v1/policy", Some(&body), &headers).await {
                Ok(_) => {
                    let notice =
                        form::Notice { failed: false, text: "The rules are in use.".to_owned(), hint: None };
                    return Ok(visit.redirect_with("/policy", &notice));
                }
                Err(error) => {
                    edit.failure = Some(notice_of(&error));
                    let problems = problems_of(&error);
                    edit.check =
                        (!problems.is_empty()).then(|| PolicyCheck { problems, ..PolicyCheck::default() });
                }
            }
        }
        "replay" => match visit.post::<PolicyReplay>("/v1/policy/replay", &body).await {
            Ok(replay) => edit.replay = Some(replay),
            Err(error) => edit.failure = Some(notice_of(&error)),
        },
        _ => match visit.post::<PolicyCheck>("/v1/policy/check", &body).await {
            Ok(check) => edit.check = Some(check),
            Err(error) => edit.failure = Some(notice_of(&error)),
        },
    }
    page(&visit, PolicyQuery::default(), None, edit).await
}

async fn page(
    visit: &Visit,
    query: PolicyQuery,
    why: Option<Why>,
    edit: Edit,
) -> Result<Response, HttpError> {
    if !visit.may("why") {
        // The same refusal as over REST.
        let _: Json = visit.post("/v1/policy/why", &json!({})).await?;
    }
    let mut policy: Option<Policy> = visit.get_if("showPolicy", "/v1/policy").await;
    let versions: Option<PolicyVersions> = visit.get_if("listPolicyVersions", "/v1/policy/versions").await;
    let filters = [
        ("tool", query.mtool.as_str()),
        ("server", query.mserver.as_str()),
        ("limit", "30"),
        ("tools", "60"),
    ];
    let matrix = visit.get_if("policyMatrix", &target("/v1/policy/matrix", filters)).await;
    let Edit { text, base, failure, check, replay } = edit;
    let in_use = policy.as_ref().map(|policy| policy.text.clone()).unwrap_or_default();
    if let (Some(policy), Some(base)) = (&mut policy, base) {
        // A change of another caller meanwhile is refused when this one is applied.
        policy.hash = base;
    }
    let commands = ["toolgate policy why CALLER TOOL".to_owned(), "toolgate policy test".to_owned()];
    let frame = visit.frame(Section::Policy, "Policy", &commands, "").await;
    Ok(visit.render(&PolicyPage {
        frame,
        query,
        failure,
        why,
        text: text.unwrap_or(in_use),
        policy,
        replayed: replay.is_some(),
        check,
        replay,
        versions: versions.map(|versions| versions.versions).unwrap_or_default(),
        matrix,
    }))
}
