//! Protocol revisions and their features.
//!
//! All differences are in one table, so that a new revision is one new row.

use std::fmt;
use std::str::FromStr;

/// Protocol revision; the order is chronological.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// HTTP+SSE, no annotations.
    V2024_11_05,
    /// Streamable HTTP, batches, annotations, audio.
    V2025_03_26,
    /// Structured results, elicitation, resource links; no batches.
    V2025_06_18,
    /// Icons, URL elicitation, experimental tasks.
    V2025_11_25,
    /// No handshake and no sessions: every request is self-contained.
    V2026_07_28,
}

/// Features of a revision.
struct RevisionFeatures {
    revision: Revision,
    name: &'static str,
    /// Sessions begin with `initialize`; without it every request carries its metadata.
    handshake: bool,
    /// Receivers must accept batches.
    batches: bool,
    /// Every HTTP request carries the revision in a header.
    header: bool,
}

const TABLE: [RevisionFeatures; 5] = [
    RevisionFeatures {
        revision: Revision::V2024_11_05,
        name: "2024-11-05",
        handshake: true,
        batches: true,
        header: false,
    },
    RevisionFeatures {
        revision: Revision::V2025_03_26,
        name: "2025-03-26",
        handshake: true,
        batches: true,
        header: false,
    },
    RevisionFeatures {
        revision: Revision::V2025_06_18,
        name: "2025-06-18",
        handshake: true,
        batches: false,
        header: true,
    },
    RevisionFeatures {
        revision: Revision::V2025_11_25,
        name: "2025-11-25",
        handshake: true,
        batches: false,
        header: true,
    },
    RevisionFeatures {
        revision: Revision::V2026_07_28,
        name: "2026-07-28",
        handshake: false,
        batches: false,
        header: true,
    },
];

impl Revision {
    pub const NEWEST: Self = Self::V2026_07_28;
    /// Newest revision with a handshake; the one we offer in `initialize`.
    pub const NEWEST_WITH_HANDSHAKE: Self = Self::V2025_11_25;

    fn features(self) -> &'static RevisionFeatures {
        TABLE.iter().find(|features| features.revision == self).expect("every revision is in the table")
    }

    /// All revisions, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        TABLE.iter().map(|features| features.revision)
    }

    /// Date string used in the protocol.
    pub fn name(self) -> &'static str {
        self.features().name
    }

    /// True if a session begins with `initialize`.
    pub fn has_handshake(self) -> bool {
        self.features().handshake
    }

    /// True if a message may be a batch.
    pub fn has_batches(self) -> bool {
        self.features().batches
    }

    /// True if HTTP requests carry the revision in a header.
    pub fn has_header(self) -> bool {
        self.features().header
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Revision string that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol revision `{0}`")]
pub struct UnknownRevision(pub String);

impl FromStr for Revision {
    type Err = UnknownRevision;

    fn from_str(text: &str) -> Result<Self, UnknownRevision> {
        let features = TABLE.iter().find(|features| features.name == text);
        features
            .map(|features| features.revision)
            .ok_or_else(|| UnknownRevision(text.chars().take(32).collect()))
    }
}
