//! The revisions of the protocol, and what each of them has.
//!
//! One table, so that a new revision is a row and not a search through the code.

use std::fmt;
use std::str::FromStr;

/// A revision, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// The first: HTTP+SSE, no annotations.
    V2024_11_05,
    /// Streamable HTTP, batches, annotations, audio.
    V2025_03_26,
    /// Structured results, elicitation, resource links; no batches.
    V2025_06_18,
    /// Icons, URL elicitation, tasks as an experiment.
    V2025_11_25,
    /// No handshake and no sessions: every request stands alone.
    V2026_07_28,
}

/// What a revision has.
struct Row {
    revision: Revision,
    name: &'static str,
    /// A handshake with `initialize`; without it every request carries its metadata.
    handshake: bool,
    /// Batches of messages, which a receiver must take.
    batches: bool,
    /// The header with the revision on every request over HTTP.
    header: bool,
}

const TABLE: [Row; 5] = [
    Row {
        revision: Revision::V2024_11_05,
        name: "2024-11-05",
        handshake: true,
        batches: true,
        header: false,
    },
    Row {
        revision: Revision::V2025_03_26,
        name: "2025-03-26",
        handshake: true,
        batches: true,
        header: false,
    },
    Row {
        revision: Revision::V2025_06_18,
        name: "2025-06-18",
        handshake: true,
        batches: false,
        header: true,
    },
    Row {
        revision: Revision::V2025_11_25,
        name: "2025-11-25",
        handshake: true,
        batches: false,
        header: true,
    },
    Row {
        revision: Revision::V2026_07_28,
        name: "2026-07-28",
        handshake: false,
        batches: false,
        header: true,
    },
];

impl Revision {
    /// The newest.
    pub const NEWEST: Self = Self::V2026_07_28;
    /// The newest that begins with a handshake; what we offer in one.
    pub const NEWEST_WITH_HANDSHAKE: Self = Self::V2025_11_25;

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.revision == self).expect("every revision has a row")
    }

    /// All of them, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        TABLE.iter().map(|row| row.revision)
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether a session begins with `initialize`.
    pub fn has_handshake(self) -> bool {
        self.row().handshake
    }

    /// Whether a message may be a batch.
    pub fn has_batches(self) -> bool {
        self.row().batches
    }

    /// Whether requests over HTTP name the revision in a header.
    pub fn has_header(self) -> bool {
        self.row().header
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A revision that we do not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("protocol revision `{0}` is not known")]
pub struct UnknownRevision(pub String);

impl FromStr for Revision {
    type Err = UnknownRevision;

    fn from_str(text: &str) -> Result<Self, UnknownRevision> {
        let row = TABLE.iter().find(|row| row.name == text);
        row.map(|row| row.revision).ok_or_else(|| UnknownRevision(text.chars().take(32).collect()))
    }
}
