//! Prompts at the terminal: inputs of the configuration, and all questions of a running command.
//!
//! Invariant: without a terminal, nothing waits for an answer; the text of a server is sanitised before it is shown,
//! and the server is named.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use toolgate_config::{Environment, InputSpec};
use toolgate_redact::printable;
use toolgate_runtime::questions::{
    Answer, ApprovalQuestion, ApprovalScope, ElicitationQuestion, HumanReply, NoAnswer, NoResponder,
    Question, QuestionKind, REQUEST_HUMAN_INPUT, Responder,
};

use crate::cli::AnswerMode;
use crate::command::agent::keys::{self, KeyChoice};
use crate::command::remote::CommandLink;
use crate::command::{form, login, questions};
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
                None => ask_here(question, approvals).await,
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

/// Asks at the terminal of this process, after the questions before. Dropping the future withdraws the question.
async fn ask_here(question: Arc<Question>, approvals: ApprovalInput) -> Option<Answer> {
    let guard = TerminalWithdrawal(Arc::default());
    let withdrawn = Arc::clone(&guard.0);
    let ask = move || keys::ask_alone(&withdrawn, || prompt(&question, approvals));
    tokio::task::spawn_blocking(ask).await.ok().flatten()
}

/// Withdraws a question on drop.
struct TerminalWithdrawal(Arc<AtomicBool>);

impl Drop for TerminalWithdrawal {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks the person at the terminal. `None` if stdin is closed.
pub(crate) fn prompt(question: &Question, approvals: ApprovalInput) -> Option<Answer> {
    keys::discard_pending();
    match question {
        Question::Approval(asked) => prompt_approval(asked, approvals),
        Question::Sampling(asked) => Some(Answer::Value(keys::yes(&quoted_lines(&asked.text))?.into())),
        Question::Input(input) => questions::prompt_input(question, input),
        Question::Elicitation(form) => prompt_form(form),
        Question::Login(page) => {
            login::open(page);
            Some(Answer::Value(Json::Null))
        }
    }
}

/// Explains the keys, and leaves the next line to the answer.
const APPROVAL_HELP: &str =
    "\n  y once · c this call, t this tool for the session · x never in the session\n ";

/// Keys that answer an approval. Any other key declines it.
const APPROVAL_KEYS: [KeyChoice<ApprovalKey>; 4] = [
    (b'y', "yes", ApprovalKey::Once(true)),
    (b'c', "yes, this call for the session", ApprovalKey::ForSession(true, ApprovalScope::Call)),
    (b't', "yes, this tool for the session", ApprovalKey::ForSession(true, ApprovalScope::Tool)),
    (b'x', "no, never this tool in the session", ApprovalKey::ForSession(false, ApprovalScope::Tool)),
];

#[derive(Debug, Clone, Copy)]
enum ApprovalKey {
    Once(bool),
    ForSession(bool, ApprovalScope),
}

fn prompt_approval(asked: &ApprovalQuestion, approvals: ApprovalInput) -> Option<Answer> {
    let ApprovalQuestion { text, arguments, caller, tool, session, context } = asked;
    let (tool, arguments, text) = (printable(tool), printable(&arguments.text), quoted_lines(text));
    let choice = match approvals {
        ApprovalInput::Line => {
            let question = format!("{caller} wants to call {tool} with {arguments}\n{text} [y/N] ");
            ApprovalKey::Once(keys::yes_line(&safe_text(&question)))
        }
        ApprovalInput::Key => {
            let mut question =
                format!("{caller} wants to call {BOLD}{tool}{BOLD:#} with {arguments}\n  {text}");
            // An approval from before does not hold any more.
            if context.tainted == Some(true) {
                question.push_str("\n  content of an untrusted source has reached this session");
            }
            let mut choices = &APPROVAL_KEYS[..1];
            if session.is_some() {
                question.push_str(APPROVAL_HELP);
                choices = &APPROVAL_KEYS;
            }
            keys::choose(&question, choices, ("no", ApprovalKey::Once(false)))?
        }
    };
    Some(match choice {
        ApprovalKey::Once(approve) => Answer::Value(approve.into()),
        ApprovalKey::ForSession(approve, scope) => Answer::ForSession { approve, scope },
    })
}

fn prompt_form(form: &ElicitationQuestion) -> Option<Answer> {
    let output = Output::new(false, crate::cli::ColorMode::Auto);
    let ElicitationQuestion { server, message, url, schema } = form;
    output.message(&format!("{BOLD}{} asks{BOLD:#}: {}\n", printable(server), quoted_lines(message)));
    if let Some(url) = url {
        let (host, url) = (url.host(), url.as_str());
        output.message(&format!("  open {url} and come back\n  its host is {BOLD}{host}{BOLD:#}\n"));
        let yes = keys::yes("  done?")?;
        return Some(if yes { Answer::Value(Json::Null) } else { Answer::Declined(None) });
    }
    Some(match form::prompt_form(schema, &output)? {
        Some(value) => Answer::Value(value),
        None => Answer::Declined(None),
    })
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
}
