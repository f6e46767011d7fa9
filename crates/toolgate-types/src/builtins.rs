//! The tools that Toolgate brings along, as the configuration wants them. What it does not name is not there.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;

use crate::{ByteSize, HumanDuration, Secret, Text};

/// Which of them there are, and how they are used.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BuiltinRules {
    /// People can be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub human_input: Option<HumanInput>,
    /// The web can be searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_search: Option<WebSearch>,
    /// Code can be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_execution: Option<CodeExecution>,
}

/// How people are asked: by the tool `request_human_input`, and by rules that ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HumanInput {
    /// How long a person has to answer.
    pub timeout: HumanDuration,
}

/// Who searches the web, and within which limits.
#[derive(Debug, Clone, Serialize)]
pub struct WebSearch {
    /// Who.
    pub provider: Provider,
    /// Where.
    pub url: Text,
    /// What it wants to see, where it wants something.
    #[serde(skip)]
    pub key: Option<Secret>,
    /// The most results that are given.
    pub max_results: u32,
    /// How long a search may take.
    pub timeout: HumanDuration,
}

/// A search engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// An instance of SearXNG.
    Searxng,
    /// Brave Search.
    Brave,
    /// Tavily.
    Tavily,
    /// The page of DuckDuckGo without scripts.
    Duckduckgo,
}

impl Provider {
    /// Its name in the configuration.
    pub fn label(self) -> &'static str {
        match self {
            Self::Searxng => "searxng",
            Self::Brave => "brave",
            Self::Tavily => "tavily",
            Self::Duckduckgo => "duckduckgo",
        }
    }

    /// Where it is, where there is one such place.
    pub fn place(self) -> Option<&'static str> {
        match self {
            Self::Searxng => None,
            Self::Brave => Some("https://api.search.brave.com/res/v1/web/search"),
            Self::Tavily => Some("https://api.tavily.com/search"),
            Self::Duckduckgo => Some("https://html.duckduckgo.com/html/"),
        }
    }

    /// Whether it wants a key.
    pub fn wants_key(self) -> bool {
        matches!(self, Self::Brave | Self::Tavily)
    }
}

/// What code may use that callers bring along.
#[derive(Debug, Clone, Serialize)]
pub struct CodeExecution {
    /// Whether the kernel keeps it from everything but its own folder, and from the network.
    pub sandbox: bool,
    /// How long it may run.
    pub timeout: HumanDuration,
    /// The memory that all its processes may hold.
    pub max_memory: ByteSize,
    /// What it may write to stdout, and to stderr.
    pub max_output: ByteSize,
    /// How many processes it may have.
    pub max_processes: NonZeroU32,
    /// What its files may take.
    pub max_disk: ByteSize,
    /// The Python that runs it.
    pub python: Text,
    /// What it may read in the sandbox, beside what every program needs.
    pub read: Vec<PathBuf>,
}
