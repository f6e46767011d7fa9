//! What happens in a run, as whoever watches is told it.
//!
//! The JSON form is what `toolgate run --json` prints and `POST /v1/runs` sends, one event at a time.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::model::Usage;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A run has begun, or goes on.
    Begun {
        /// Its id.
        run: String,
        /// The model.
        model: String,
        /// As whom it acts.
        caller: String,
        /// Tools that the model sees.
        tools: usize,
        /// Whether it goes on where it had ended.
        resumed: bool,
    },
    /// Words as they come.
    Text {
        /// Some more of them.
        text: String,
    },
    /// The words of this turn so far do not count: the model is asked again.
    Again {
        /// Why.
        why: String,
    },
    /// A turn of the model has ended.
    Said {
        /// All of its words.
        text: String,
        /// What it used.
        usage: Usage,
        /// What that costs, where prices are known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
        /// How long it took.
        took_ms: f64,
    },
    /// A tool is called.
    Call {
        /// Its number in the run, from one.
        number: usize,
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// With what.
        arguments: Json,
    },
    /// A call has ended.
    Result {
        /// The number of the call.
        number: usize,
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// Whether it failed.
        failed: bool,
        /// What the model is told.
        text: String,
        /// How long it took.
        took_ms: f64,
        /// What links it with the execution log; none where no call was made.
        #[serde(skip_serializing_if = "Option::is_none")]
        correlation_id: Option<String>,
    },
    /// Something to know.
    Note {
        /// What.
        text: String,
    },
    /// The run has ended.
    Ended(Ended),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ended {
    /// Its id.
    pub run: String,
    /// Why it ended.
    pub reason: Reason,
    /// The last words of the model.
    pub answer: String,
    /// What went wrong, where something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The way out, where there is one to name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What it used.
    #[serde(flatten)]
    pub spent: Spent,
    /// How long it took.
    pub took_ms: f64,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The model has said all it wants.
    Done,
    /// The model will not.
    Refused,
    /// The answer was cut off.
    CutOff,
    /// The model said nothing.
    Silent,
    /// The model failed.
    ModelFailed,
    /// A budget is used up.
    Budget,
    /// Whoever asked has stopped it.
    Interrupted,
    /// It could not be written down.
    NotKept,
}

impl Reason {
    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::CutOff => "cut_off",
            Self::Silent => "silent",
            Self::ModelFailed => "model_failed",
            Self::Budget => "budget",
            Self::Interrupted => "interrupted",
            Self::NotKept => "not_kept",
        }
    }
}

/// What was used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Turns of the model.
    pub turns: u32,
    /// Calls of tools.
    pub calls: u32,
    /// Those of them that are not known to only read.
    pub writes: u32,
    /// Tokens.
    pub usage: Usage,
    /// Money, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}
