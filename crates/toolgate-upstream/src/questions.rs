//! Questions to people, and the one trait through which all of them are asked.
//!
//! Five things need a person: a policy rule that requires approval of a call, a server that requests text from a model,
//! a tool that needs input, a server that asks its client (MCP elicitation), and a server that requires a login in a
//! browser. Each front end reaches a person in its own way, as a [`Responder`]: a prompt at the terminal, the question
//! queue, elicitation at an MCP client, or none. Invariant: a feature that no person can answer is not declared to
//! servers, and a question that cannot be asked fails at once instead of waiting.

mod arguments;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toolgate_policy::schema::SchemaViolations;
use toolgate_policy::{SchemaError, SchemaValidator};
use toolgate_types::{BrowserUrl, CallerId};

pub use toolgate_mcp::oauth::LoginPage;

pub use self::arguments::{MaskedPart, NotShowable, ShownArguments, masked_parts};
use crate::blocking::run_blocking;

/// Size limit of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// A question to a person.
#[derive(Debug)]
pub enum Question {
    /// A policy rule requires approval of a call. The answer is `true` or `false`.
    Approval(ApprovalQuestion),
    /// A server requests text from the model of an agent, and the agent may not give it without approval. The answer is
    /// `true` or `false`.
    Sampling(ApprovalQuestion),
    /// A tool needs input, or passes on the question of a server.
    Input(InputQuestion),
    /// A server asks its client for values. The answer is an object with the values.
    Elicitation(ElicitationQuestion),
    /// A server requires a login. The answer, which has no value, comes once the URL was shown.
    Login(LoginPage),
}

/// Kinds of questions, as far as responders differ in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// A tool needs information.
    HumanInput,
    /// A call, or a request for text from a model, requires approval.
    Approval,
    Elicitation,
    Login,
}

/// Circumstances of a question, for the person that answers it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionContext {
    /// Server of the tool, or the one that asks.
    pub server: Option<String>,
    /// Name of the tool on its server.
    pub original: Option<String>,
    /// Correlation id of the call in the execution log.
    pub correlation: Option<String>,
    /// True if untrusted content had reached the session. `None` if that is not known.
    pub tainted: Option<bool>,
    /// Ids of the rules that ask.
    pub rules: Vec<String>,
    /// Version of the policy.
    pub policy: Option<String>,
    /// Hash of the definition of the tool.
    pub definition: Option<String>,
}

/// A question that is answered with yes or no.
#[derive(Debug, Clone)]
pub struct ApprovalQuestion {
    pub text: String,
    /// Arguments of the call, or parameters of the request.
    pub arguments: ShownArguments,
    /// The caller whose call needs approval.
    pub caller: CallerId,
    pub tool: String,
    pub session: Option<String>,
    pub context: QuestionContext,
}

/// A question that is answered with a text, one of the choices, or a value that matches a schema.
#[derive(Debug)]
pub struct InputQuestion {
    pub text: String,
    /// Allowed answers. Empty if any text is allowed.
    pub choices: Vec<String>,
    pub schema: Option<AnswerSchema>,
    /// The caller that asks.
    pub caller: CallerId,
    /// The tool that asks.
    pub tool: String,
    pub session: Option<String>,
    pub context: QuestionContext,
}

/// An elicitation request of a server. Its texts are as the server sent them.
#[derive(Debug)]
pub struct ElicitationQuestion {
    pub server: String,
    pub message: String,
    /// URL to open, in place of a form.
    pub url: Option<BrowserUrl>,
    /// JSON Schema of the form.
    pub schema: Json,
}

/// JSON Schema of an answer, compiled.
#[derive(Debug)]
pub struct AnswerSchema {
    pub json: Json,
    validator: SchemaValidator,
}

impl AnswerSchema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// If it is not a valid schema, or would take too long to validate with.
    pub fn new(json: Json) -> Result<Self, SchemaError> {
        // Patterns take time to compile.
        let validator = run_blocking(true, || SchemaValidator::new(&json))?;
        Ok(Self { json, validator })
    }

    /// Checks a value.
    ///
    /// # Errors
    /// If the value does not match the schema.
    pub fn check(&self, value: &Json) -> Result<(), SchemaViolations> {
        // Answers are at most 64 KiB, but schemas come from outside.
        run_blocking(self.validator.is_expensive(MAX_ANSWER_BYTES), || self.validator.check(value))
    }
}

impl Question {
    pub fn kind(&self) -> QuestionKind {
        match self {
            Self::Approval(_) | Self::Sampling(_) => QuestionKind::Approval,
            Self::Input(_) => QuestionKind::HumanInput,
            Self::Elicitation(_) => QuestionKind::Elicitation,
            Self::Login(_) => QuestionKind::Login,
        }
    }

    /// Checks an answer against size, choices and schema.
    ///
    /// # Errors
    /// If the answer is not valid.
    pub fn check(&self, answer: &Answer) -> Result<(), InvalidAnswer> {
        let invalid = |why: String| Err(InvalidAnswer(why));
        let value = match (answer, self) {
            (Answer::Value(value), _) => value,
            (Answer::Declined(_), _) => return Ok(()),
            (Answer::ForSession { .. }, Self::Approval(asked)) if asked.session.is_some() => return Ok(()),
            (Answer::ForSession { .. }, _) => {
                return invalid(
                    "only the approval of a call in a session can hold for the session".to_owned(),
                );
            }
        };
        if value.to_string().len() > MAX_ANSWER_BYTES {
            return invalid(format!("it is larger than {MAX_ANSWER_BYTES} bytes"));
        }
        let input = match self {
            Self::Approval(_) | Self::Sampling(_) if value.is_boolean() => return Ok(()),
            Self::Approval(_) | Self::Sampling(_) => {
                return invalid("it must be `true` or `false`".to_owned());
            }
            Self::Input(input) => input,
            // The server checks the values of its own form.
            Self::Elicitation(_) | Self::Login(_) => return Ok(()),
        };
        let choices = &input.choices;
        match (&input.schema, value) {
            (Some(schema), value) => {
                schema.check(value).map_err(|violations| InvalidAnswer(violations.to_string()))
            }
            (None, Json::String(text)) if choices.is_empty() && !text.trim().is_empty() => Ok(()),
            (None, Json::String(text)) if choices.contains(text) => Ok(()),
            (None, _) if choices.is_empty() => invalid("it must be a non-empty string".to_owned()),
            (None, _) => invalid(format!("it must be one of `{}`", choices.join("`, `"))),
        }
    }
}

/// The answer does not match the question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not valid: {0}")]
pub struct InvalidAnswer(pub String);

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Value(Json),
    /// Declined, with an optional reason.
    Declined(Option<String>),
    /// The answer to an approval. It also decides later calls of the same session.
    ForSession {
        approve: bool,
        scope: ApprovalScope,
    },
}

/// Later calls of a session that the answer to an approval decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// Calls of the same tool with the same arguments.
    Call,
    /// All calls of the tool.
    Tool,
}

/// An answer, and the name of the person who gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct HumanReply {
    pub answer: Answer,
    pub by: String,
}

/// Reasons why a question gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// There is no responder for this question, and no front end accepts answers.
    #[error("no person can be reached here")]
    NoResponder,
    #[error("too many questions are open already")]
    QueueFull,
    #[error("no one answered in time")]
    TimedOut,
    /// The queue is closed because the process stops.
    #[error("no questions are accepted: Toolgate is stopping")]
    Closed,
}

/// Asks a person. The only trait for this: each front end has one implementation, which answers the kinds of questions
/// that its person can answer.
pub trait Responder: Send + Sync + 'static {
    /// Returns true if a person can be asked questions of this kind.
    fn can_ask(&self, kind: QuestionKind) -> bool;

    /// Asks the question and waits for the answer. Dropping the future withdraws the question.
    ///
    /// # Errors
    /// If no person can be reached, or no one answers in time.
    fn ask(&self, question: Arc<Question>) -> BoxFuture<'_, Result<HumanReply, NoAnswer>>;
}

/// Reaches no person: every question fails at once.
pub struct NoResponder;

impl Responder for NoResponder {
    fn can_ask(&self, _kind: QuestionKind) -> bool {
        false
    }

    fn ask(&self, _question: Arc<Question>) -> BoxFuture<'_, Result<HumanReply, NoAnswer>> {
        Box::pin(std::future::ready(Err(NoAnswer::NoResponder)))
    }
}
