//! What a model is to an agent: messages and tools go in, words and calls come out.
//!
//! [`Model`] is what the loop knows; the models of others are in `openai`, `anthropic` and `gemini`, on one client in
//! `client` that bounds, checks and retries. Invariant: a [`Reply`] holds calls whose arguments are JSON objects that
//! were scanned, or the words why they are not; ids of calls are never empty and never twice in one reply.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolgate_types::agent::Prices;
use toolgate_types::json::Raw;
use toolgate_types::json::scan::Limits;

mod anthropic;
mod client;
mod gemini;
mod names;
mod openai;
mod remote;

pub use remote::Remote;

/// Bytes of the arguments of one call.
const LONGEST_ARGUMENTS: usize = 1 << 20;
/// Calls in one reply.
const MOST_CALLS: usize = 64;
/// Bytes of the words of one reply.
const LONGEST_TEXT: usize = 4 << 20;
/// Bytes of an id that a model gives.
const LONGEST_ID: usize = 128;

/// Something that says what to do next.
pub trait Model: Send + Sync + 'static {
    /// Its name, for people.
    fn name(&self) -> &str;

    /// What comes next. `heard` is told of words as they come; what counts is the reply.
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Heard) + Send),
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// How many tools it is shown at once; the others are found by `search_tools`.
    fn most_tools(&self) -> usize {
        32
    }

    /// Bytes of one tool's result that it is given.
    fn most_result(&self) -> usize {
        32 << 10
    }

    /// What its tokens cost, where somebody said so.
    fn prices(&self) -> Option<Prices> {
        None
    }
}

/// All that a model is told.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// What it is told before everything else.
    pub instructions: String,
    /// What was said so far, the oldest first.
    pub messages: Vec<Message>,
    /// What it may call.
    pub tools: Vec<ToolSpec>,
}

/// A tool, as a model is shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name; every one that the catalog has, also those that a protocol does not allow.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Raw,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// By the person.
    User {
        /// What.
        parts: Vec<Part>,
    },
    /// By the model.
    Assistant {
        /// In words.
        text: String,
        /// What it wants to be called.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
    },
    /// By tools, all that a reply called, in its order.
    Tools {
        /// What each gave.
        results: Vec<ToolOutput>,
    },
}

impl Message {
    /// The person says something in words.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { parts: vec![Part::Text { text: text.into() }] }
    }
}

/// A piece of what was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// A picture.
    Image {
        /// Its kind, such as `image/png`.
        mime: String,
        /// Its bytes, in base64.
        data: String,
    },
    /// A sound.
    Audio {
        /// Its kind, such as `audio/wav`.
        mime: String,
        /// Its bytes, in base64.
        data: String,
    },
}

/// A call that a model wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What its result is known by.
    pub id: String,
    /// The tool.
    pub name: String,
    /// With what.
    pub arguments: Given,
    /// What the model wants to see again with the call, whatever it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// The arguments of a call, as far as they can be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    /// A JSON object.
    Object(serde_json::Map<String, serde_json::Value>),
    /// Something else, and why it is of no use.
    Unusable(String),
}

impl Given {
    /// Arguments as a text.
    pub(crate) fn read(text: &str) -> Self {
        // A model that calls a tool without arguments may say nothing at all.
        if text.trim().is_empty() {
            return Self::Object(serde_json::Map::new());
        }
        let limits = Limits { size: LONGEST_ARGUMENTS, ..Limits::default() };
        match Raw::new(bytes::Bytes::copy_from_slice(text.as_bytes()), limits) {
            Ok(raw) => match raw.parse() {
                Ok(serde_json::Value::Object(object)) => Self::Object(object),
                _ => Self::Unusable("the arguments are not a JSON object".to_owned()),
            },
            Err(why) => Self::Unusable(format!("the arguments are not JSON that can be used: {why}")),
        }
    }

    /// What is sent back to the model, which gets an object whatever it said.
    pub(crate) fn object(&self) -> serde_json::Map<String, serde_json::Value> {
        match self {
            Self::Object(object) => object.clone(),
            Self::Unusable(_) => serde_json::Map::new(),
        }
    }
}

/// What a tool gave, as a model is told it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The id of the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it gave.
    pub parts: Vec<Part>,
    /// Whether it failed.
    pub failed: bool,
}

/// What is heard while a model speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Some words more.
    Text(String),
    /// A call begins.
    Call(String),
    /// All that was heard does not count: the model is asked again.
    Again(String),
}

/// What a model said.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// In words.
    pub text: String,
    /// What it wants to be called.
    pub calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it took.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It has said all it wants.
    Done,
    /// It waits for tools.
    Calls,
    /// It was cut off.
    Length,
    /// It will not, perhaps with its words for why.
    Refused(String),
}

/// What a model took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens it read, those that it had kept among them.
    pub input_tokens: u64,
    /// Tokens it had kept from before.
    pub cached_tokens: u64,
    /// Tokens it wrote.
    pub output_tokens: u64,
    /// Whether the model did not say, and these are reckoned from bytes.
    #[serde(default)]
    pub reckoned: bool,
}

impl Usage {
    /// What the protocol did not tell, from the bytes that went both ways.
    pub(crate) fn reckon(sent: usize, received: usize) -> Self {
        let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
        let (input_tokens, output_tokens) = (tokens(sent), tokens(received));
        Self { input_tokens, cached_tokens: 0, output_tokens, reckoned: true }
    }

    /// Both directions.
    pub fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The same with more.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(more.input_tokens),
            cached_tokens: self.cached_tokens.saturating_add(more.cached_tokens),
            output_tokens: self.output_tokens.saturating_add(more.output_tokens),
            reckoned: self.reckoned || more.reckoned,
        }
    }

    /// What it costs.
    pub fn cost(self, prices: Prices) -> f64 {
        let fresh = self.input_tokens.saturating_sub(self.cached_tokens);
        let part = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        part(fresh, prices.input)
            + part(self.cached_tokens, prices.cached_input)
            + part(self.output_tokens, prices.output)
    }
}

/// Why a model says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// In one word.
    pub kind: ModelErrorKind,
    /// What happened.
    pub message: String,
    /// The way out, where there is one to name.
    pub hint: Option<String>,
    /// When it may be tried again, where the model says so.
    pub retry_after: Option<Duration>,
}

/// Why a model says nothing, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// It is not there.
    Unreachable,
    /// It takes no more for now.
    RateLimited,
    /// It fails, which may pass.
    Overloaded,
    /// It took too long.
    Timeout,
    /// It does not know us.
    Unauthorized,
    /// What it was told does not fit it.
    TooLong,
    /// It does not want what it was told.
    Rejected,
    /// What it says cannot be read.
    Malformed,
}

impl ModelError {
    /// An error of a kind.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, retry_after: None }
    }

    /// The same with the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the same may work later.
    pub fn passes(&self) -> bool {
        use ModelErrorKind::{Overloaded, RateLimited, Timeout, Unreachable};
        matches!(self.kind, Unreachable | RateLimited | Overloaded | Timeout)
    }
}

/// A reply while it comes, whatever the protocol. Bounds are kept here.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) text: String,
    /// Calls by what the protocol tells them apart by.
    pub(crate) calls: Vec<(u64, DraftCall)>,
    pub(crate) stop: Option<Stop>,
    pub(crate) usage: Option<Usage>,
}

/// A call while it comes.
#[derive(Debug, Default)]
pub(crate) struct DraftCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) seal: Option<String>,
}

fn malformed(why: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, why)
}

impl Draft {
    pub(crate) fn say(
        &mut self,
        text: &str,
        heard: &mut (dyn FnMut(Heard) + Send),
    ) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        if self.text.len() + text.len() > LONGEST_TEXT {
            return Err(malformed(format!("the model says more than {LONGEST_TEXT} bytes")));
        }
        self.text.push_str(text);
        heard(Heard::Text(text.to_owned()));
        Ok(())
    }

    /// The call with a number, new where there is none yet.
    pub(crate) fn call(&mut self, number: u64) -> Result<&mut DraftCall, ModelError> {
        let at = match self.calls.iter().position(|(known, _)| *known == number) {
            Some(at) => at,
            None if self.calls.len() >= MOST_CALLS => {
                return Err(malformed(format!("the model wants more than {MOST_CALLS} calls at once")));
            }
            None => {
                self.calls.push((number, DraftCall::default()));
                self.calls.len() - 1
            }
        };
        Ok(&mut self.calls[at].1)
    }

    /// The reply, when all has come.
    pub(crate) fn finish(self, name: impl Fn(&str) -> String, reckoned: Usage) -> Reply {
        let mut ids = HashSet::new();
        // The last call of an answer that was cut off may be half of what was meant, and still be JSON.
        let half = (self.stop == Some(Stop::Length)).then(|| self.calls.len().saturating_sub(1));
        let calls: Vec<ToolCall> = self
            .calls
            .into_iter()
            .enumerate()
            .map(|(at, (_, call))| {
                let good = (1..=LONGEST_ID).contains(&call.id.len()) && ids.insert(call.id.clone());
                let id = if good { call.id } else { format!("call-{:016x}", fastrand::u64(..)) };
                let arguments = match half {
                    Some(half) if half == at => {
                        Given::Unusable("the answer was cut off in the middle".to_owned())
                    }
                    _ => Given::read(&call.arguments),
                };
                ToolCall { id, name: name(&call.name), arguments, seal: call.seal }
            })
            .collect();
        let stop = match self.stop {
            // Some servers say `stop` beside calls.
            Some(Stop::Done) | None if !calls.is_empty() => Stop::Calls,
            Some(stop) => stop,
            None => Stop::Done,
        };
        Reply { text: self.text, calls, stop, usage: self.usage.unwrap_or(reckoned) }
    }
}

impl DraftCall {
    pub(crate) fn argue(&mut self, text: &str) -> Result<(), ModelError> {
        if self.arguments.len() + text.len() > LONGEST_ARGUMENTS {
            return Err(malformed(format!(
                "the arguments of a call have more than {LONGEST_ARGUMENTS} bytes"
            )));
        }
        self.arguments.push_str(text);
        Ok(())
    }
}
