//! `/do/{operation}`: performs a REST operation from the fields of a form.
//!
//! One function for all operations: the path parameter, the revision and the body come from the form. Afterwards the
//! browser goes back to the page of the form, with a message. Invariant: the requirement of an operation is that of its
//! route, as over REST.

use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use serde_json::{Value as Json, json};
use toolgate_console::form::ToolForm;
use toolgate_console::frame::Section;
use toolgate_console::pages::KeyPage;
use toolgate_console::rest::Question;
use toolgate_console::text::url;

use super::form::Notice;
use super::redirect;
use super::visit::{Visit, problems_of, read_answer};
use crate::auth::HttpError;
use crate::response::Response;
use crate::route::ResponseContent;
use crate::routes::ROUTES;

/// Performs the operation of a form.
pub(super) async fn perform(visit: Visit) -> Result<Response, HttpError> {
    let name = visit.parameter().to_owned();
    let unknown = || HttpError::not_found(format!("there is no operation `{name}`"));
    let route = ROUTES.operation(&name).filter(|route| route.method != Method::GET).ok_or_else(unknown)?;
    let operation = route.operation.as_ref().ok_or_else(unknown)?;
    let parameter = visit.form.text("$path").to_owned();
    let path = match route.parameter() {
        Some(parameter_name) => route.path.replace(&format!("{{{parameter_name}}}"), &url(&parameter)),
        None => route.path.to_owned(),
    };
    let mut body = match name.as_str() {
        // The fields are those of the schema of the question.
        "answerHumanInput" if visit.form.get("$fields").is_some() => Some(answer(&visit, &parameter).await?),
        _ => visit.form.body()?,
    };
    if operation.body.is_some() {
        body.get_or_insert_with(|| Json::Object(serde_json::Map::new()));
    }
    let revision = visit.form.get("$if-match").map(|revision| format!("\"{revision}\""));
    let headers: Vec<(HeaderName, &str)> =
        revision.iter().map(|revision| (header::IF_MATCH, revision.as_str())).collect();
    let performed = visit.perform(route.method.clone(), &path, body.as_ref(), &headers).await;
    let response = match performed {
        Ok(response) if operation.content == ResponseContent::Events => {
            // The run goes on without a watcher; its page shows it.
            let place = response.headers().get(header::LOCATION).and_then(|place| place.to_str().ok());
            let run = place.and_then(|place| place.strip_prefix("/v1")).unwrap_or("/runs");
            return Ok(redirect(run));
        }
        Ok(response) => response,
        // Entered text must not be lost: the browser keeps it when it goes back.
        Err(error) if !problems_of(&error).is_empty() => return Err(error),
        Err(error) => {
            let notice = Notice { failed: true, text: error.message, hint: error.hint };
            return Ok(visit.redirect_with(visit.form.back(), &notice));
        }
    };
    let status = response.status();
    if visit.headers().get(header::ACCEPT).is_some_and(|accept| accept == "application/json") {
        // The script of the page sent the form, and shows the outcome.
        return Ok(response);
    }
    let answer: Json =
        if status == StatusCode::NO_CONTENT { Json::Null } else { read_answer(response).await? };
    if let Some(key) = answer["key"].as_str() {
        return Ok(key_page(&visit, key, &answer, &parameter).await);
    }
    if let Some(place) = answer["url"].as_str().filter(|_| name == "startLogin") {
        return Ok(login_redirect(place));
    }
    let notice = Notice { failed: false, text: done(&name, &parameter), hint: None };
    Ok(visit.redirect_with(visit.form.back(), &notice))
}

/// The body of an answer whose fields were built from the schema of its question.
async fn answer(visit: &Visit, id: &str) -> Result<Json, HttpError> {
    let question: Question = visit.get(&format!("/v1/human-input/{}", url(id))).await?;
    let schema = question.schema.unwrap_or_default();
    let form = ToolForm::sent(&schema, &|name| visit.form.get(name).map(str::to_owned));
    let answer = form
        .arguments()
        .map_err(|error| HttpError::invalid(format!("`{}`: {}", error.label, error.message)))?;
    Ok(json!({ "answer": answer }))
}

/// Shows a new key, once. It is in no redirect and no cookie.
async fn key_page(visit: &Visit, key: &str, answer: &Json, parameter: &str) -> Response {
    let of = answer["caller"]["id"].as_str().unwrap_or(parameter).to_owned();
    let frame = visit.frame(Section::Callers, "New key", &[], "").await;
    let back = format!("/callers/{}", url(&of));
    visit.render(&KeyPage { frame, of, key: key.to_owned(), back })
}

/// Goes to the page of a login, on this gateway.
fn login_redirect(place: &str) -> Response {
    let path = place.parse::<http::Uri>().ok();
    let path = path.as_ref().and_then(|uri| uri.path_and_query()).map_or("/", |path| path.as_str());
    let mut response = redirect(super::form::local_path(path));
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The message after an operation.
fn done(operation: &str, name: &str) -> String {
    match operation {
        "reconnect" => format!("`{name}` was reconnected."),
        "removeServer" | "removeTool" | "removeCaller" => format!("`{name}` was removed."),
        "approve" => format!("The definition of `{name}` was approved. Its tool can be called."),
        "reject" => format!("The definition of `{name}` was rejected. Its tool stays held back."),
        "answerApproval" | "answerHumanInput" => "The answer was given.".to_owned(),
        "cancelExecution" => "The call is being cancelled.".to_owned(),
        "stopRun" => "The run is being stopped. It can be resumed.".to_owned(),
        "verifyLog" => "The chain of the log is being checked.".to_owned(),
        "addTool" => "The tool was registered.".to_owned(),
        "replaceTool" | "changeCaller" => format!("`{name}` was saved."),
        "revokeKey" => format!("The key of `{name}` was revoked. Its streams have ended."),
        _ => "Done.".to_owned(),
    }
}
