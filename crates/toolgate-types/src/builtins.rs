//! The tools that Toolgate brings along, as the configuration wants them. What it does not name is not there.

use serde::Serialize;

use crate::{HumanDuration, Secret, Text};

/// Which of them there are, and how they are used.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BuiltinRules {
    /// People can be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub human_input: Option<HumanInput>,
    /// The web can be searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_search: Option<WebSearch>,
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
