//! Settings of the built-in tools. A tool without settings does not exist.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;

use crate::{ByteSize, ConfigString, HumanDuration, Secret};

/// `builtins` of the configuration.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BuiltinConfig {
    /// Enables questions to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub human_input: Option<HumanInputConfig>,
    /// Enables web search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_search: Option<WebSearchConfig>,
    /// Enables code execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_execution: Option<CodeExecutionConfig>,
}

/// Questions to people: those of the tool `request_human_input`, and approvals that the policy demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HumanInputConfig {
    /// Time a person has to answer.
    pub timeout: HumanDuration,
}

/// Settings of the tool `web_search`.
#[derive(Debug, Clone, Serialize)]
pub struct WebSearchConfig {
    pub provider: SearchProvider,
    /// Endpoint of the search API.
    pub url: ConfigString,
    /// API key, if the provider requires one.
    #[serde(skip)]
    pub key: Option<Secret>,
    /// Maximum number of results returned.
    pub max_results: u32,
    /// Deadline of one search.
    pub timeout: HumanDuration,
}

/// A search engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchProvider {
    /// A self-hosted SearXNG instance.
    Searxng,
    /// Brave Search.
    Brave,
    Tavily,
    /// The HTML page of DuckDuckGo: needs neither a key nor JavaScript.
    Duckduckgo,
}

impl SearchProvider {
    /// Name in the configuration.
    pub fn label(self) -> &'static str {
        match self {
            Self::Searxng => "searxng",
            Self::Brave => "brave",
            Self::Tavily => "tavily",
            Self::Duckduckgo => "duckduckgo",
        }
    }

    /// Public endpoint of the provider. `None` for SearXNG, which is self-hosted.
    pub fn default_url(self) -> Option<&'static str> {
        match self {
            Self::Searxng => None,
            Self::Brave => Some("https://api.search.brave.com/res/v1/web/search"),
            Self::Tavily => Some("https://api.tavily.com/search"),
            Self::Duckduckgo => Some("https://html.duckduckgo.com/html/"),
        }
    }

    pub fn requires_key(self) -> bool {
        matches!(self, Self::Brave | Self::Tavily)
    }
}

/// Limits of code that callers submit for execution.
#[derive(Debug, Clone, Serialize)]
pub struct CodeExecutionConfig {
    /// Run the code in a sandbox: no network, and no files outside its own folder.
    pub sandbox: bool,
    /// Deadline of one run.
    pub timeout: HumanDuration,
    /// Memory limit of all its processes together.
    pub max_memory: ByteSize,
    /// Bytes it may write to stdout, and to stderr.
    pub max_output: ByteSize,
    /// Maximum number of processes.
    pub max_processes: NonZeroU32,
    /// Disk space its files may use.
    pub max_disk: ByteSize,
    /// Python interpreter that runs it.
    pub python: ConfigString,
    /// Paths readable inside the sandbox, besides those every program needs.
    pub read: Vec<PathBuf>,
}
