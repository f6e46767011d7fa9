//! Prompts at the terminal: inputs of the configuration, and all questions of a running command.
//!
//! Invariant: without a terminal, nothing waits for an answer; the text of a server is sanitised before it is shown,
//! and the server is named.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::bail;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use toolgate_config::{Environment, InputSpec};
use toolgate_redact::printable;
use toolgate_runtime::questions::{
    Answer, ApprovalQuestion, ElicitationQuestion, HumanReply, NoAnswer, NoResponder, Question, QuestionKind,
    REQUEST_HUMAN_INPUT, Responder,
};

use crate::cli::AnswerMode;
use crate::command::agent::keys;
use crate::command::remote::CommandLink;
use crate::command::{login, questions};
use crate::output::{BOLD, Output, quoted_lines, safe_text};

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
        let (description, options) = (printable(&input.description), printable(&options));
        output.message(&format!("{BOLD}{description}{BOLD:#}{options}: "));
        let answer = if input.password {
            rpassword::read_password()?
        } else {
            keys::read_line().ok_or(std::io::ErrorKind::UnexpectedEof).map_err(std::io::Error::from)?
        };
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

/// Keyboard input that answers an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApprovalInput {
    Line,
    /// A single key, for a person who watches an agent.
    Key,
}

/// Answers questions of all kinds at the terminal.
pub(crate) struct TerminalResponder {
    /// `Ask` only if there is a terminal.
    answers: AnswerMode,
    approvals: ApprovalInput,
    /// True if a person can see the URL of a login, or the program in `BROWSER` can open it.
    can_login: bool,
    /// The client with the terminal, if this process is not at it.
    client: Option<CommandLink>,
}

impl TerminalResponder {
    pub(crate) fn new(answers: AnswerMode, approvals: ApprovalInput) -> Self {
        let answers = match answers {
            AnswerMode::Ask if !is_interactive() => AnswerMode::Decline,
            answers => answers,
        };
        let can_login = is_interactive() || login::browser().is_some();
        Self { answers, approvals, can_login, client: None }
    }

    /// Creates the responder of a command that runs in a gateway. Its person is at the terminal of the client.
    pub(crate) fn of_client(
        answers: AnswerMode,
        approvals: ApprovalInput,
        client: CommandLink,
        is_interactive: bool,
    ) -> Self {
        let answers = match answers {
            AnswerMode::Ask if !is_interactive => AnswerMode::Decline,
            answers => answers,
        };
        // Logins belong to the gateway, not to a command.
        Self { answers, approvals, can_login: false, client: Some(client) }
    }

    /// Creates the responder of `servers login`. A person typed the command, so one is present.
    pub(crate) fn for_login() -> Self {
        Self { answers: AnswerMode::Decline, approvals: ApprovalInput::Line, can_login: true, client: None }
    }
}

impl Responder for TerminalResponder {
    fn can_ask(&self, kind: QuestionKind) -> bool {
        match kind {
            QuestionKind::Approval => self.answers == AnswerMode::Ask,
            QuestionKind::HumanInput | QuestionKind::Elicitation => self.answers != AnswerMode::Decline,
            QuestionKind::Login => self.can_login,
        }
    }

    fn ask(&self, question: Arc<Question>) -> BoxFuture<'_, Result<HumanReply, NoAnswer>> {
        if !self.can_ask(question.kind()) {
            return NoResponder.ask(question);
        }
        Box::pin(async move {
            if self.answers == AnswerMode::Defaults && question.kind() != QuestionKind::Login {
                let answer = default_answer(&question).ok_or(NoAnswer::NoResponder)?;
                return Ok(HumanReply { answer, by: "its own defaults".to_owned() });
            }
            // Reading from a terminal blocks the thread.
            let approvals = self.approvals;
            let answer = match &self.client {
                Some(client) => client.ask(&question, approvals).await,
                None => {
                    tokio::task::spawn_blocking(move || prompt(&question, approvals)).await.ok().flatten()
                }
            };
            let answer = answer.ok_or(NoAnswer::NoResponder)?;
            Ok(HumanReply { answer, by: AT_TERMINAL.to_owned() })
        })
    }
}

/// Answers the question of a server with its own defaults. `None` for all other questions.
fn default_answer(question: &Question) -> Option<Answer> {
    match question {
        Question::Elicitation(form) => {
            Some(default_values(&form.schema).map_or(Answer::Declined(None), Answer::Value))
        }
        Question::Input(input) if input.tool != REQUEST_HUMAN_INPUT => {
            default_values(&input.schema.as_ref()?.json).map(Answer::Value)
        }
        _ => None,
    }
}

/// Returns the defaults of the schema; `None` if a required value has none.
fn default_values(schema: &Json) -> Option<Json> {
    let mut content = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = property.get("default") {
            content.insert(name.clone(), default.clone());
        }
    }
    let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
    required.all(|name| content.contains_key(name)).then_some(Json::Object(content))
}

/// Asks the person at the terminal. `None` if stdin is closed.
pub(crate) fn prompt(question: &Question, approvals: ApprovalInput) -> Option<Answer> {
    keys::discard_pending();
    match question {
        Question::Approval(asked) => Some(Answer::Value(prompt_approval(asked, approvals).into())),
        Question::Sampling(asked) => Some(Answer::Value(keys::yes(&quoted_lines(&asked.text)).into())),
        Question::Input(input) => questions::prompt_input(question, input),
        Question::Elicitation(form) => prompt_form(form),
        Question::Login(page) => {
            login::open(page);
            Some(Answer::Value(Json::Null))
        }
    }
}

fn prompt_approval(asked: &ApprovalQuestion, approvals: ApprovalInput) -> bool {
    let ApprovalQuestion { text, arguments, caller, tool, .. } = asked;
    let (tool, arguments, text) = (printable(tool), printable(&arguments.text), quoted_lines(text));
    match approvals {
        ApprovalInput::Key => {
            keys::yes(&format!("{caller} wants to call {BOLD}{tool}{BOLD:#} with {arguments}\n  {text}"))
        }
        ApprovalInput::Line => {
            let question = format!("{caller} wants to call {tool} with {arguments}\n{text} [y/N] ");
            keys::yes_line(&safe_text(&question))
        }
    }
}

fn prompt_form(form: &ElicitationQuestion) -> Option<Answer> {
    let output = Output::new(false, crate::cli::ColorMode::Auto);
    let ElicitationQuestion { server, message, url, schema } = form;
    output.message(&format!("{BOLD}{} asks{BOLD:#}: {}\n", printable(server), quoted_lines(message)));
    if let Some(url) = url {
        let (host, url) = (url.host(), url.as_str());
        output.message(&format!("  open {url} and come back\n  its host is {BOLD}{host}{BOLD:#}\n"));
        output.message("  done? [y/N] ");
        let yes = keys::read_line().is_some_and(|answer| answer.eq_ignore_ascii_case("y"));
        return Some(if yes { Answer::Value(Json::Null) } else { Answer::Declined(None) });
    }
    output.message("  an empty line takes the default, `-` declines\n");
    let mut content = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let title = property["title"].as_str().unwrap_or(name);
        let default =
            property.get("default").map(|default| format!(" [{}]", printable(&default.to_string())));
        output.message(&format!("  {}{}: ", printable(title), default.unwrap_or_default()));
        match (keys::read_line()?.as_str(), property.get("default")) {
            ("-", _) => return Some(Answer::Declined(None)),
            ("", Some(default)) => drop(content.insert(name.clone(), default.clone())),
            ("", None) => {}
            (answer, _) => drop(content.insert(name.clone(), parse_typed(answer, &property["type"]))),
        }
    }
    Some(Answer::Value(Json::Object(content)))
}

/// Parses typed text by the type of the schema.
pub(crate) fn parse_typed(answer: &str, kind: &Json) -> Json {
    let parsed = || serde_json::from_str(answer).ok();
    let value = if kind == "string" { None } else { parsed() };
    value.unwrap_or_else(|| Json::String(answer.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accepts_defaults_if_complete() {
        let schema = json!({ "properties": { "a": { "default": 1.5 }, "b": { "default": "x" }, "c": {} }, "required": ["a"] });
        assert_eq!(default_values(&schema), Some(json!({ "a": 1.5, "b": "x" })));
        let schema = json!({ "properties": { "a": {} }, "required": ["a"] });
        assert_eq!(default_values(&schema), None);
    }

    #[test]
    fn parses_typed_text_by_schema() {
        assert_eq!(parse_typed("42", &json!("integer")), json!(42));
        assert_eq!(parse_typed("42", &json!("string")), json!("42"));
        assert_eq!(parse_typed("true", &json!("boolean")), json!(true));
        assert_eq!(parse_typed("yes", &json!("boolean")), json!("yes"));
    }
}
