//! The interface of a model: messages and tools go in, text and tool calls come out.
//!
//! [`Model`] is all that the agent loop knows. The providers are in `openai`, `anthropic` and `gemini`; they share the
//! HTTP client in `client`, which limits, validates and retries. Invariant: the arguments of every call in a
//! [`ModelReply`] are a validated JSON object, or the reason why they are not; ids of calls are not empty and unique
//! within a reply.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolgate_json::RawJson;
use toolgate_json::scan::ScanLimits;
use toolgate_types::agent::{ModelSpec, TokenPrices};

mod adapt;
mod anthropic;
mod client;
mod gemini;
mod names;
mod openai;
mod remote;

pub use remote::RemoteModel;

/// Bytes of the arguments of one call.
const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// Calls in one reply.
const MAX_CALLS: usize = 64;
/// Bytes of text in one reply.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// Bytes of a call id chosen by the model.
const MAX_ID_BYTES: usize = 128;

/// A language model, or anything else that decides the next step of a run.
pub trait Model: Send + Sync + 'static {
    /// Name for display.
    fn name(&self) -> &str;

    /// Returns the next reply. Text and calls are streamed to `on_event`; only the returned reply is binding.
    fn reply<'a>(
        &'a self,
        request: &'a ModelRequest,
        on_event: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>>;

    /// Number of tools offered at once. The others are found with `search_tools`.
    fn max_tools(&self) -> usize {
        32
    }

    /// Bytes of one tool result that are passed to the model.
    fn max_result_bytes(&self) -> usize {
        32 << 10
    }

    /// Token prices, if configured.
    fn prices(&self) -> Option<TokenPrices> {
        None
    }
}

/// Everything a model gets for one turn.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// System prompt.
    pub instructions: String,
    /// Conversation so far, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Limits of this reply, within those of the configuration.
    pub limits: ReplyLimits,
}

/// Limits of one reply. The default is the configuration of the model.
#[derive(Debug, Clone, Default)]
pub struct ReplyLimits {
    /// At most this many tokens; the configured limit also applies.
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    /// Texts that end the reply. Providers accept at most four.
    pub stop: Vec<String>,
}

impl ReplyLimits {
    pub(crate) fn max_tokens(&self, spec: &ModelSpec) -> u32 {
        self.max_tokens.map_or(spec.max_tokens, |limit| limit.min(spec.max_tokens))
    }

    pub(crate) fn temperature(&self, spec: &ModelSpec) -> Option<f64> {
        self.temperature.or(spec.temperature)
    }
}

/// A tool as offered to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Name in the catalog. It may contain characters that a provider does not allow.
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: RawJson,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the user.
    User { parts: Vec<Part> },
    /// From the model.
    Assistant {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
    },
    /// Results of all calls of a reply, in the order of the calls.
    Tools { results: Vec<ToolOutput> },
}

impl Message {
    /// Creates a text message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { parts: vec![Part::Text { text: text.into() }] }
    }
}

/// One piece of content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    Text {
        text: String,
    },
    Image {
        /// Media type, for example `image/png`.
        mime: String,
        /// Bytes in base64.
        data: String,
    },
    Audio {
        /// Media type, for example `audio/wav`.
        mime: String,
        /// Bytes in base64.
        data: String,
    },
    Document {
        /// Media type: `application/pdf`.
        mime: String,
        /// Name of the file.
        name: String,
        /// Bytes in base64.
        data: String,
    },
}

/// Media type of documents that models read.
pub const PDF: &str = "application/pdf";

/// A tool call requested by a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Id that links the call to its result.
    pub id: String,
    pub name: String,
    pub arguments: CallArguments,
    /// Opaque value that the provider wants back with the call (Gemini's `thoughtSignature`).
    #[serde(default, rename = "seal", skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// Arguments of a call, if they are usable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallArguments {
    Object(serde_json::Map<String, serde_json::Value>),
    /// Reason why the arguments cannot be used.
    Unusable(String),
}

impl CallArguments {
    /// Parses the arguments of a call.
    pub(crate) fn parse(text: &str) -> Self {
        // Models may send nothing at all for a tool without arguments.
        if text.trim().is_empty() {
            return Self::Object(serde_json::Map::new());
        }
        let limits = ScanLimits { size: MAX_ARGUMENT_BYTES, ..ScanLimits::default() };
        match RawJson::new(bytes::Bytes::copy_from_slice(text.as_bytes()), limits) {
            Ok(raw) => match raw.parse() {
                Ok(serde_json::Value::Object(object)) => Self::Object(object),
                _ => Self::Unusable("the arguments are not a JSON object".to_owned()),
            },
            Err(why) => Self::Unusable(format!("the arguments are not JSON that can be used: {why}")),
        }
    }

    /// Returns the arguments to send back to the model. Providers require an object even if the original was unusable.
    pub(crate) fn to_object(&self) -> serde_json::Map<String, serde_json::Value> {
        match self {
            Self::Object(object) => object.clone(),
            Self::Unusable(_) => serde_json::Map::new(),
        }
    }
}

/// Result of a tool call, as content for a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    pub id: String,
    pub name: String,
    pub parts: Vec<Part>,
    pub failed: bool,
}

/// Progress while a model replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// A piece of text.
    Text(String),
    /// A call to the named tool begins.
    Call(String),
    /// Everything streamed so far is void: the request is retried, for the given reason.
    Retry(String),
}

/// Reply of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    pub text: String,
    pub calls: Vec<ToolCall>,
    pub stop: StopReason,
    pub usage: TokenUsage,
}

/// Reason why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer is complete.
    Done,
    /// The model waits for tool results.
    Calls,
    /// The token limit was reached.
    Length,
    /// The task was not done: no tool fits, or its call failed. Only the planner says so.
    Unfinished,
    /// The model refused, with its explanation if it gave one.
    Refused(String),
}

/// Tokens used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens read from the provider's cache.
    pub cached_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// True if the provider reported no usage and these counts are estimated from bytes.
    #[serde(default, rename = "reckoned")]
    pub estimated: bool,
}

impl TokenUsage {
    /// Estimates tokens from the bytes sent and received, for providers that report no usage.
    pub(crate) fn estimate(sent: usize, received: usize) -> Self {
        let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
        let (input_tokens, output_tokens) = (tokens(sent), tokens(received));
        Self { input_tokens, cached_tokens: 0, output_tokens, estimated: true }
    }

    /// Input and output tokens together.
    pub fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(more.input_tokens),
            cached_tokens: self.cached_tokens.saturating_add(more.cached_tokens),
            output_tokens: self.output_tokens.saturating_add(more.output_tokens),
            estimated: self.estimated || more.estimated,
        }
    }

    /// Cost at the given prices, which are per million tokens.
    pub fn cost(self, prices: TokenPrices) -> f64 {
        let fresh = self.input_tokens.saturating_sub(self.cached_tokens);
        let part = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        part(fresh, prices.input)
            + part(self.cached_tokens, prices.cached_input)
            + part(self.output_tokens, prices.output)
    }
}

/// Error of a request to a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    pub kind: ModelErrorKind,
    pub message: String,
    /// Suggested fix, if there is one.
    pub hint: Option<String>,
    /// Delay requested by the provider before a retry.
    pub retry_after: Option<Duration>,
}

/// Category of a model error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// No connection, or the connection broke.
    Unreachable,
    RateLimited,
    /// The provider failed; a retry may succeed.
    Overloaded,
    Timeout,
    /// The key is missing or was rejected.
    Unauthorized,
    /// The conversation exceeds the context window.
    TooLong,
    /// The provider rejected the request.
    Rejected,
    /// The response could not be parsed.
    Malformed,
}

impl ModelError {
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, retry_after: None }
    }

    /// Adds a suggested fix.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns true if a retry may succeed.
    pub fn is_transient(&self) -> bool {
        use ModelErrorKind::{Overloaded, RateLimited, Timeout, Unreachable};
        matches!(self.kind, Unreachable | RateLimited | Overloaded | Timeout)
    }
}

/// A reply under construction, for every provider. Enforces the limits on text, calls and arguments.
#[derive(Debug, Default)]
pub(crate) struct ReplyBuilder {
    pub(crate) text: String,
    /// Calls, keyed by the index that the provider uses.
    pub(crate) calls: Vec<(u64, CallBuilder)>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) usage: Option<TokenUsage>,
}

/// A call under construction.
#[derive(Debug, Default)]
pub(crate) struct CallBuilder {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) signature: Option<String>,
}

fn malformed(why: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, why)
}

impl ReplyBuilder {
    pub(crate) fn push_text(
        &mut self,
        text: &str,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        if self.text.len() + text.len() > MAX_TEXT_BYTES {
            return Err(malformed(format!("the reply of the model exceeds {MAX_TEXT_BYTES} bytes")));
        }
        self.text.push_str(text);
        on_event(StreamEvent::Text(text.to_owned()));
        Ok(())
    }

    /// Returns the call with this index, a new one if there is none yet.
    pub(crate) fn call_mut(&mut self, number: u64) -> Result<&mut CallBuilder, ModelError> {
        let at = match self.calls.iter().position(|(known, _)| *known == number) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => {
                return Err(malformed(format!("the reply of the model has more than {MAX_CALLS} calls")));
            }
            None => {
                self.calls.push((number, CallBuilder::default()));
                self.calls.len() - 1
            }
        };
        Ok(&mut self.calls[at].1)
    }

    /// Completes the reply. `name` maps tool names of the provider to names of the catalog.
    pub(crate) fn finish(self, name: impl Fn(&str) -> String, estimated: TokenUsage) -> ModelReply {
        let mut ids = HashSet::new();
        // The last call of a truncated reply may be incomplete and still parse as JSON.
        let truncated = (self.stop == Some(StopReason::Length)).then(|| self.calls.len().saturating_sub(1));
        let calls: Vec<ToolCall> = self
            .calls
            .into_iter()
            .enumerate()
            .map(|(at, (_, call))| {
                let good = (1..=MAX_ID_BYTES).contains(&call.id.len()) && ids.insert(call.id.clone());
                let id = if good { call.id } else { format!("call-{:016x}", fastrand::u64(..)) };
                let arguments = match truncated {
                    Some(truncated) if truncated == at => {
                        CallArguments::Unusable("the reply was truncated within this call".to_owned())
                    }
                    _ => CallArguments::parse(&call.arguments),
                };
                ToolCall { id, name: name(&call.name), arguments, signature: call.signature }
            })
            .collect();
        let stop = match self.stop {
            // Some servers report `stop` beside calls.
            Some(StopReason::Done) | None if !calls.is_empty() => StopReason::Calls,
            Some(stop) => stop,
            None => StopReason::Done,
        };
        ModelReply { text: self.text, calls, stop, usage: self.usage.unwrap_or(estimated) }
    }
}

impl CallBuilder {
    pub(crate) fn push_arguments(&mut self, text: &str) -> Result<(), ModelError> {
        if self.arguments.len() + text.len() > MAX_ARGUMENT_BYTES {
            return Err(malformed(format!("the arguments of a call exceed {MAX_ARGUMENT_BYTES} bytes")));
        }
        self.arguments.push_str(text);
        Ok(())
    }
}
