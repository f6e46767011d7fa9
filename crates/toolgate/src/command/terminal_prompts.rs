//! Prompts at the terminal: inputs of the configuration, approvals, and questions of servers (elicitation).
//!
//! Invariant: without a terminal, nothing waits for an answer; the text of a server is sanitised before it is shown,
//! and the server is named.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value as Json, json};
use toolgate_config::{Environment, InputSpec};
use toolgate_policy::Question;
use toolgate_redact::sanitize::sanitize;
use toolgate_runtime::{ApprovalAnswer, Approver, CallOrigin, NoApprover};
use toolgate_upstream::{ClientFeatures, RawJson, RpcError};

use crate::cli::AnswerMode;
use crate::output::{BOLD, Output};

/// Name of the person in records.
pub(crate) const AT_TERMINAL: &str = "the person at the terminal";

/// Returns true if a person can be asked.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Prompts for unanswered inputs. Returns the variables that answer them.
pub(crate) fn ask_inputs(inputs: &[InputSpec], output: &Output) -> anyhow::Result<BTreeMap<String, String>> {
    let mut answers = BTreeMap::new();
    for input in inputs.iter().filter(|input| !input.answered) {
        let variable = input.variable();
        if !is_interactive() {
            bail!(
                "input `{}` is needed to start, and there is no terminal to ask for it\nhint: set `{variable}`",
                input.id
            );
        }
        let options =
            if input.options.is_empty() { String::new() } else { format!(" ({})", input.options.join(", ")) };
        output.message(&format!("{BOLD}{}{BOLD:#}{options}: ", input.description));
        let answer = if input.password { rpassword::read_password()? } else { read_line()? };
        answers.insert(variable, answer);
    }
    Ok(answers)
}

/// Returns the environment with the answers added.
pub(crate) fn with_answers(environment: &Environment, answers: BTreeMap<String, String>) -> Environment {
    let mut environment = environment.clone();
    environment.variables.extend(answers);
    environment
}

/// Returns the approver for questions of the policy.
pub(crate) fn approver(answers: AnswerMode) -> Arc<dyn Approver> {
    match answers {
        AnswerMode::Ask if is_interactive() => Arc::new(TerminalApprover),
        AnswerMode::Ask | AnswerMode::Defaults | AnswerMode::Decline => Arc::new(NoApprover),
    }
}

/// Asks the person at the terminal for approval.
struct TerminalApprover;

impl Approver for TerminalApprover {
    fn ask(&self, question: &Question, _origin: &CallOrigin) -> BoxFuture<'static, ApprovalAnswer> {
        let arguments = sanitize(question.arguments.as_str()).into_owned();
        let text = format!(
            "{} wants to call {} with {arguments}\n{} [y/N] ",
            question.caller, question.tool, question.text
        );
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || {
                let stderr = std::io::stderr();
                let _ = stderr.lock().write_all(text.as_bytes());
                read_line().unwrap_or_default()
            });
            let yes = matches!(answer.await.unwrap_or_default().trim(), "y" | "Y" | "yes");
            if yes {
                ApprovalAnswer::Approved(AT_TERMINAL.to_owned())
            } else {
                ApprovalAnswer::Denied(format!("{AT_TERMINAL} said no"))
            }
        })
    }

    fn approval_timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(590))
    }
}

/// Returns the handler for questions of servers.
pub(crate) fn server_questions(answers: AnswerMode) -> Arc<dyn ClientFeatures> {
    match answers {
        AnswerMode::Ask if is_interactive() => Arc::new(TerminalAnswers { defaults: false }),
        AnswerMode::Defaults => Arc::new(TerminalAnswers { defaults: true }),
        AnswerMode::Ask | AnswerMode::Decline => Arc::new(toolgate_upstream::NoClientFeatures),
    }
}

/// Answers by prompting at the terminal, or with the server's defaults.
struct TerminalAnswers {
    defaults: bool,
}

impl ClientFeatures for TerminalAnswers {
    fn capabilities(&self) -> Json {
        json!({ "elicitation": {} })
    }

    fn answer(
        &self,
        server: &str,
        method: &str,
        params: Option<RawJson>,
    ) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let (server, defaults) = (server.to_owned(), self.defaults);
        if method != "elicitation/create" {
            let error = RpcError::new(
                RpcError::METHOD_NOT_FOUND,
                format!("`{}` is not offered here", sanitize(method)),
            );
            return Box::pin(async { Err(error) });
        }
        let params: Json = params.and_then(|params| params.parse().ok()).unwrap_or_default();
        Box::pin(async move {
            if defaults {
                return Ok(RawJson::from_value(&accept_defaults(&params["requestedSchema"])));
            }
            // Reading from a terminal blocks the thread.
            let asked = tokio::task::spawn_blocking(move || ask(&server, &params)).await;
            let answer = asked.map_err(|_| RpcError::new(-32603, "the question could not be asked"))?;
            Ok(RawJson::from_value(&answer))
        })
    }
}

/// Accepts with the defaults of the schema; declines if a required value has none.
pub(crate) fn accept_defaults(schema: &Json) -> Json {
    let mut content = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = property.get("default") {
            content.insert(name.clone(), default.clone());
        }
    }
    let required = schema["required"].as_array().into_iter().flatten();
    if required.filter_map(Json::as_str).all(|name| content.contains_key(name)) {
        json!({ "action": "accept", "content": content })
    } else {
        json!({ "action": "decline" })
    }
}

fn ask(server: &str, params: &Json) -> Json {
    let output = Output::new(false, crate::cli::ColorMode::Auto);
    let text = |value: &Json| sanitize(value.as_str().unwrap_or_default()).into_owned();
    output.message(&format!("{BOLD}{} asks{BOLD:#}: {}\n", sanitize(server), text(&params["message"])));
    if let Some(url) = params["url"].as_str() {
        output.message(&format!("  open {} and come back\n  done? [y/N] ", sanitize(url)));
        let yes = read_line().is_ok_and(|answer| answer.eq_ignore_ascii_case("y"));
        return json!({ "action": if yes { "accept" } else { "decline" } });
    }
    output.message("  an empty line takes the default, `-` declines\n");
    let mut content = Map::new();
    for (name, property) in params["requestedSchema"]["properties"].as_object().into_iter().flatten() {
        let title = property["title"].as_str().unwrap_or(name);
        let default = property.get("default").map(|default| format!(" [{}]", sanitize(&default.to_string())));
        output.message(&format!("  {}{}: ", sanitize(title), default.unwrap_or_default()));
        let Ok(answer) = read_line() else { return json!({ "action": "cancel" }) };
        match (answer.as_str(), property.get("default")) {
            ("-", _) => return json!({ "action": "decline" }),
            ("", Some(default)) => drop(content.insert(name.clone(), default.clone())),
            ("", None) => {}
            (answer, _) => drop(content.insert(name.clone(), parse_typed(answer, &property["type"]))),
        }
    }
    json!({ "action": "accept", "content": content })
}

/// Parses typed text by the type of the schema.
pub(crate) fn parse_typed(answer: &str, kind: &Json) -> Json {
    let parsed = || serde_json::from_str(answer).ok();
    let value = if kind == "string" { None } else { parsed() };
    value.unwrap_or_else(|| Json::String(answer.to_owned()))
}

pub(crate) fn read_line() -> std::io::Result<String> {
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_defaults_if_complete() {
        let schema = json!({ "properties": { "a": { "default": 1.5 }, "b": { "default": "x" }, "c": {} }, "required": ["a"] });
        assert_eq!(
            accept_defaults(&schema),
            json!({ "action": "accept", "content": { "a": 1.5, "b": "x" } })
        );
        let schema = json!({ "properties": { "a": {} }, "required": ["a"] });
        assert_eq!(accept_defaults(&schema), json!({ "action": "decline" }));
    }

    #[test]
    fn parses_typed_text_by_schema() {
        assert_eq!(parse_typed("42", &json!("integer")), json!(42));
        assert_eq!(parse_typed("42", &json!("string")), json!("42"));
        assert_eq!(parse_typed("true", &json!("boolean")), json!(true));
        assert_eq!(parse_typed("yes", &json!("boolean")), json!("yes"));
    }
}
