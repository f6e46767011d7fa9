//! What must not leave: texts that no argument of a call may hold.

use serde::Serialize;

use crate::Secret;

/// The fewest characters of a canary: a shorter text is in half of all calls by chance.
pub const SHORTEST_CANARY: usize = 8;

/// `egress` of the configuration. Nothing is looked for by default.
#[derive(Debug, Clone, Default, Serialize)]
pub struct EgressRules {
    /// Texts that were put where nobody has a reason to read; one in a call shows that somebody did. Each
    /// has at least [`SHORTEST_CANARY`] characters.
    pub canaries: Vec<Secret>,
    /// Whether secrets are looked for as well: those that are known, and what has the shape of one.
    pub secrets: bool,
    /// The secrets that are known.
    #[serde(skip)]
    pub known: Vec<Secret>,
}

impl EgressRules {
    /// Whether nothing is looked for.
    pub fn is_off(&self) -> bool {
        self.canaries.is_empty() && !self.secrets
    }
}
