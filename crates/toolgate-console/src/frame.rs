//! Everything that pages have in common: the caller, the navigation, the token of forms, and the operations that the
//! caller may use.
//!
//! Invariant: a page offers an operation only through [`Frame::may`]. The server fills its names from the route table.

use std::collections::BTreeSet;

use crate::assets::{ASSETS, Assets};

/// Part of the console, as in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Overview,
    Servers,
    Tools,
    Executions,
    Inbox,
    Runs,
    Policy,
    Callers,
    Connect,
    /// A page that is in no part.
    Other,
}

/// Colours of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// Those of the system.
    #[default]
    Auto,
    Light,
    Dark,
}

impl Theme {
    pub const ALL: [Self; 3] = [Self::Auto, Self::Light, Self::Dark];

    pub fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.label() == text)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Auto => "Colours of the system",
            Self::Light => "Light colours",
            Self::Dark => "Dark colours",
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Auto => "◐",
            Self::Light => "☀",
            Self::Dark => "☾",
        }
    }
}

/// A message after an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub failed: bool,
    pub text: String,
    pub hint: Option<String>,
}

/// Common values of all pages.
#[derive(Debug, Clone)]
pub struct Frame {
    pub title: String,
    pub section: Section,
    pub caller: String,
    pub theme: Theme,
    /// Token that every form sends back.
    pub csrf: String,
    /// Path and query of this page.
    pub here: String,
    /// Names of the operations that the caller may use.
    pub operations: BTreeSet<&'static str>,
    pub notice: Option<Notice>,
    /// Open questions and approvals. `None` if the caller may not see them.
    pub waiting: Option<usize>,
    /// REST requests with the same content as the page.
    pub rest: Vec<String>,
    /// Commands with the same content as the page.
    pub commands: Vec<String>,
    /// Kinds of events that make the page stale, separated by spaces.
    pub live: &'static str,
}

/// An entry of the navigation.
pub(crate) struct Entry {
    pub(crate) section: Section,
    pub(crate) label: &'static str,
    pub(crate) path: &'static str,
}

/// Entries, each with operations. The caller needs one of them. Without any, every caller has the page.
const ENTRIES: [(Section, &str, &str, &[&str]); 9] = [
    (Section::Overview, "Overview", "/", &[]),
    (Section::Servers, "Servers", "/servers", &["listServers"]),
    (Section::Tools, "Tools", "/tools", &[]),
    (Section::Executions, "Executions", "/executions", &["listExecutions"]),
    (Section::Inbox, "Inbox", "/inbox", &["listApprovals", "listHumanInput"]),
    (Section::Runs, "Runs", "/runs", &[]),
    (Section::Policy, "Policy", "/policy", &["why"]),
    (Section::Callers, "Callers", "/callers", &["listCallers"]),
    (Section::Connect, "Connect", "/connect", &[]),
];

impl Frame {
    /// Returns true if the caller may use an operation.
    pub fn may(&self, operation: &str) -> bool {
        self.operations.contains(operation)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let offered = |needs: &[&str]| needs.is_empty() || needs.iter().any(|operation| self.may(operation));
        ENTRIES
            .into_iter()
            .filter(move |(_, _, _, needs)| offered(needs))
            .map(|(section, label, path, _)| Entry { section, label, path })
    }

    pub(crate) fn assets(&self) -> &'static Assets {
        &ASSETS
    }

    pub(crate) fn themes(&self) -> [Theme; 3] {
        Theme::ALL
    }
}
