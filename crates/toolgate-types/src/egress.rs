//! Egress filter settings: strings that no argument of a call may contain.

use serde::Serialize;

use crate::Secret;

/// Minimum characters of a canary. A shorter string occurs in many calls by chance.
pub const MIN_CANARY_LENGTH: usize = 8;

/// `egress` of the configuration. Off by default.
#[derive(Debug, Clone, Default, Serialize)]
pub struct EgressConfig {
    /// Strings planted where nothing has a reason to read them. A canary in a call proves that something did. Each has
    /// at least [`MIN_CANARY_LENGTH`] characters.
    pub canaries: Vec<Secret>,
    /// Also check arguments for secrets: known values, and strings that have the shape of a key.
    pub secrets: bool,
    /// Values of known secrets.
    #[serde(skip)]
    pub known: Vec<Secret>,
}

impl EgressConfig {
    /// True if nothing is checked.
    pub fn is_off(&self) -> bool {
        self.canaries.is_empty() && !self.secrets
    }
}
