//! What is asked of the person at the terminal: the inputs of a configuration, and the questions of
//! servers (elicitation).
//!
//! Invariant: where nobody is there nothing waits; a server's words are cleaned before they are
//! shown, and it is said whose words they are.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value as Json, json};
use toolgate_config::{Environment, InputSpec};
use toolgate_policy::Question;
use toolgate_runtime::{Approver, NobodyApproves, Origin, Verdict};
use toolgate_types::clean::clean;
use toolgate_upstream::{Questions, Raw, RpcError};

use crate::cli::Answers;
use crate::output::{BOLD, Output};

/// Who that is, for the record.
pub(crate) const AT_TERMINAL: &str = "the person at the terminal";

/// Whether somebody can be asked.
pub(crate) fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for the inputs that have no answer yet, as variables that answer them.
pub(crate) fn inputs(inputs: &[InputSpec], output: &Output) -> anyhow::Result<BTreeMap<String, String>> {
    let mut answers = BTreeMap::new();
    for input in inputs.iter().filter(|input| !input.answered) {
        let variable = input.variable();
        if !somebody_is_there() {
            bail!(
                "input `{}` is needed to start, and nobody is there to ask\nhint: set `{variable}`",
                input.id
            );
        }
        let options =
            if input.options.is_empty() { String::new() } else { format!(" ({})", input.options.join(", ")) };
        output.message(&format!("{BOLD}{}{BOLD:#}{options}: ", input.description));
        let answer = if input.password { rpassword::read_password()? } else { line()? };
        answers.insert(variable, answer);
    }
    Ok(answers)
}

/// The environment with answers in it.
pub(crate) fn answered(environment: &Environment, answers: BTreeMap<String, String>) -> Environment {
    let mut environment = environment.clone();
    environment.variables.extend(answers);
    environment
}

/// Who says yes or no when the policy asks.
pub(crate) fn approver(answers: Answers) -> Arc<dyn Approver> {
    match answers {
        Answers::Ask if somebody_is_there() => Arc::new(AtTerminal),
        Answers::Ask | Answers::Defaults | Answers::Decline => Arc::new(NobodyApproves),
    }
}

/// The person at the terminal.
struct AtTerminal;

impl Approver for AtTerminal {
    fn ask(&self, question: &Question, _origin: &Origin) -> BoxFuture<'static, Verdict> {
        let arguments = clean(question.arguments.get()).into_owned();
        let text = format!(
            "{} wants to call {} with {arguments}\n{} [y/N] ",
            question.caller, question.tool, question.text
        );
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || {
                let stderr = std::io::stderr();
                let _ = stderr.lock().write_all(text.as_bytes());
                line().unwrap_or_default()
            });
            let yes = matches!(answer.await.unwrap_or_default().trim(), "y" | "Y" | "yes");
            if yes {
                Verdict::Yes(AT_TERMINAL.to_owned())
            } else {
                Verdict::No(format!("{AT_TERMINAL} said no"))
            }
        })
    }

    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_secs(590))
    }
}

/// How the questions of servers are answered.
pub(crate) fn of_servers(answers: Answers) -> Arc<dyn Questions> {
    match answers {
        Answers::Ask if somebody_is_there() => Arc::new(Person { defaults: false }),
        Answers::Defaults => Arc::new(Person { defaults: true }),
        Answers::Ask | Answers::Decline => Arc::new(toolgate_upstream::Nobody),
    }
}

/// Somebody at the terminal, or the defaults that a server gives.
struct Person {
    defaults: bool,
}

impl Questions for Person {
    fn capabilities(&self) -> Json {
        json!({ "elicitation": {} })
    }

    fn answer(
        &self,
        server: &str,
        method: &str,
        params: Option<Raw>,
    ) -> BoxFuture<'static, Result<Raw, RpcError>> {
        let (server, defaults) = (server.to_owned(), self.defaults);
        if method != "elicitation/create" {
            let error =
                RpcError::new(RpcError::METHOD_NOT_FOUND, format!("`{}` is not offered here", clean(method)));
            return Box::pin(async { Err(error) });
        }
        let params: Json = params.and_then(|params| params.parse().ok()).unwrap_or_default();
        Box::pin(async move {
            if defaults {
                return Ok(Raw::of(&with_defaults(&params["requestedSchema"])));
            }
            // Reading from a terminal blocks; nobody else should wait for it.
            let asked = tokio::task::spawn_blocking(move || ask(&server, &params)).await;
            let answer = asked.map_err(|_| RpcError::new(-32603, "the question could not be asked"))?;
            Ok(Raw::of(&answer))
        })
    }
}

/// Accepts with what the schema gives as defaults; declines where something is missing.
pub(crate) fn with_defaults(schema: &Json) -> Json {
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
    let output = Output::new(false, crate::cli::ColorWhen::Auto);
    let text = |value: &Json| clean(value.as_str().unwrap_or_default()).into_owned();
    output.message(&format!("{BOLD}{} asks{BOLD:#}: {}\n", clean(server), text(&params["message"])));
    if let Some(url) = params["url"].as_str() {
        output.message(&format!("  open {} and come back\n  done? [y/N] ", clean(url)));
        let yes = line().is_ok_and(|answer| answer.eq_ignore_ascii_case("y"));
        return json!({ "action": if yes { "accept" } else { "decline" } });
    }
    output.message("  an empty line takes the default, `-` declines\n");
    let mut content = Map::new();
    for (name, property) in params["requestedSchema"]["properties"].as_object().into_iter().flatten() {
        let title = property["title"].as_str().unwrap_or(name);
        let default = property.get("default").map(|default| format!(" [{}]", clean(&default.to_string())));
        output.message(&format!("  {}{}: ", clean(title), default.unwrap_or_default()));
        let Ok(answer) = line() else { return json!({ "action": "cancel" }) };
        match (answer.as_str(), property.get("default")) {
            ("-", _) => return json!({ "action": "decline" }),
            ("", Some(default)) => drop(content.insert(name.clone(), default.clone())),
            ("", None) => {}
            (answer, _) => drop(content.insert(name.clone(), typed(answer, &property["type"]))),
        }
    }
    json!({ "action": "accept", "content": content })
}

/// What was typed, as the schema wants it.
pub(crate) fn typed(answer: &str, kind: &Json) -> Json {
    let parsed = || serde_json::from_str(answer).ok();
    let value = if kind == "string" { None } else { parsed() };
    value.unwrap_or_else(|| Json::String(answer.to_owned()))
}

pub(crate) fn line() -> std::io::Result<String> {
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
    fn defaults_are_taken_where_all_that_is_required_has_one() {
        let schema = json!({ "properties": { "a": { "default": 1.5 }, "b": { "default": "x" }, "c": {} }, "required": ["a"] });
        assert_eq!(with_defaults(&schema), json!({ "action": "accept", "content": { "a": 1.5, "b": "x" } }));
        let schema = json!({ "properties": { "a": {} }, "required": ["a"] });
        assert_eq!(with_defaults(&schema), json!({ "action": "decline" }));
    }

    #[test]
    fn what_is_typed_is_what_the_schema_wants() {
        assert_eq!(typed("42", &json!("integer")), json!(42));
        assert_eq!(typed("42", &json!("string")), json!("42"));
        assert_eq!(typed("true", &json!("boolean")), json!(true));
        assert_eq!(typed("yes", &json!("boolean")), json!("yes"));
    }
}
