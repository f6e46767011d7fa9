//! Events of a run, as reported to the front end that started it or follows it.
//!
//! `toolgate run --json` prints and `POST /v1/runs` streams them in this JSON form, one event at a time.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::model::TokenUsage;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run started or resumed.
    #[serde(rename = "begun")]
    Started {
        run: String,
        model: String,
        /// Caller that the run acts as.
        caller: String,
        /// Number of tools offered to the model.
        tools: usize,
        /// True if the run continues an earlier one.
        resumed: bool,
    },
    /// A streamed piece of the model's text.
    Text {
        text: String,
    },
    /// The text of this turn so far is void: the request to the model is retried.
    #[serde(rename = "again")]
    Retrying {
        why: String,
    },
    /// A turn of the model is complete.
    #[serde(rename = "said")]
    Replied {
        /// The whole text of the turn.
        text: String,
        usage: TokenUsage,
        /// Cost of the turn, if prices are configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
        took_ms: f64,
    },
    /// A tool call starts.
    Call {
        /// Number of the call within the run, counted from 1.
        number: usize,
        id: String,
        tool: String,
        arguments: Json,
    },
    /// A tool call ended.
    Result {
        number: usize,
        id: String,
        tool: String,
        failed: bool,
        /// Content passed to the model, as text.
        text: String,
        took_ms: f64,
        /// Correlation id in the execution log; `None` if no call was made.
        #[serde(skip_serializing_if = "Option::is_none")]
        correlation_id: Option<String>,
    },
    /// A message for the user.
    Note {
        text: String,
    },
    Ended(RunOutcome),
}

/// Result of a run: why it ended, the answer and the usage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunOutcome {
    pub run: String,
    pub reason: EndReason,
    /// Last text of the model.
    pub answer: String,
    /// Error message, if something failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Suggested fix, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[serde(flatten)]
    pub spent: RunUsage,
    pub took_ms: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model finished its answer.
    Done,
    /// The planner found no tool for the task, or the call of the tool failed.
    NotDone,
    /// The model refused the task.
    Refused,
    /// The answer was truncated at the token limit.
    #[serde(rename = "cut_off")]
    Truncated,
    /// The model returned neither text nor calls.
    Silent,
    /// The model could not be reached, or returned an error.
    ModelFailed,
    /// A budget is used up.
    Budget,
    /// The user stopped the run.
    Interrupted,
    /// The journal could not be written.
    #[serde(rename = "not_kept")]
    JournalFailed,
}

impl EndReason {
    /// Name in JSON, in the journal and in listings.
    pub fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotDone => "not_done",
            Self::Refused => "refused",
            Self::Truncated => "cut_off",
            Self::Silent => "silent",
            Self::ModelFailed => "model_failed",
            Self::Budget => "budget",
            Self::Interrupted => "interrupted",
            Self::JournalFailed => "not_kept",
        }
    }
}

/// Turns, calls, tokens and cost used by a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RunUsage {
    /// Turns of the model.
    pub turns: u32,
    /// Tool calls.
    pub calls: u32,
    /// Tool calls that are not known to be read-only.
    pub writes: u32,
    pub usage: TokenUsage,
    /// Cost, if prices are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}
