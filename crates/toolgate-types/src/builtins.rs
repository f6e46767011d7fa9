//! The tools that Toolgate brings along, as the configuration wants them. What it does not name is not there.

use serde::Serialize;

use crate::HumanDuration;

/// Which of them there are, and how they are used.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BuiltinRules {
    /// People can be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub human_input: Option<HumanInput>,
}

/// How people are asked: by the tool `request_human_input`, and by rules that ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HumanInput {
    /// How long a person has to answer.
    pub timeout: HumanDuration,
}
