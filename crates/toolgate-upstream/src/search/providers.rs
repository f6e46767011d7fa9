//! The search engines: builds their requests, and parses their responses.

use std::sync::LazyLock;

use regex::Regex;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use toolgate_types::builtins::{SearchProvider, WebSearchConfig};
use url::Url;

use super::{SearchQuery, SearchResult, TimeRange, html};

/// Builds the request of an engine; `None` if its URL or its key cannot be sent.
pub(super) fn request(
    client: &Client,
    config: &WebSearchConfig,
    search: &SearchQuery,
    max_results: usize,
) -> Option<RequestBuilder> {
    let mut url = Url::parse(config.url.expose()).ok()?;
    let key = config.key.as_ref().map(|key| key.expose().to_owned()).unwrap_or_default();
    let mut secret = HeaderValue::from_str(&key).ok()?;
    secret.set_sensitive(true);
    let query = search.query.trim();
    Some(match config.provider {
        SearchProvider::Searxng => {
            if !url.path().ends_with("/search") {
                let path = format!("{}/search", url.path().trim_end_matches('/'));
                url.set_path(&path);
            }
            url.query_pairs_mut().append_pair("q", query).append_pair("format", "json");
            if let Some(range) = search.time_range {
                url.query_pairs_mut().append_pair("time_range", range.word());
            }
            client.get(url).header(ACCEPT, "application/json")
        }
        SearchProvider::Brave => {
            url.query_pairs_mut().append_pair("q", query).append_pair("count", &max_results.to_string());
            if let Some(range) = search.time_range {
                url.query_pairs_mut().append_pair("freshness", &format!("p{}", &range.word()[..1]));
            }
            client.get(url).header(ACCEPT, "application/json").header("X-Subscription-Token", secret)
        }
        SearchProvider::Tavily => {
            let mut body = json!({ "query": query, "max_results": max_results });
            if let Some(range) = search.time_range {
                body["time_range"] = range.word().into();
            }
            let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
            bearer.set_sensitive(true);
            client
                .post(url)
                .header("Authorization", bearer)
                .header("Content-Type", "application/json")
                .body(body.to_string())
        }
        SearchProvider::Duckduckgo => {
            url.query_pairs_mut().append_pair("q", query);
            if let Some(range) = search.time_range {
                url.query_pairs_mut().append_pair("df", &range.word()[..1]);
            }
            client.get(url).header(ACCEPT, "text/html")
        }
    })
}

impl TimeRange {
    fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// Parses a response. The error is phrased to follow the name of the engine.
pub(super) fn parse_results(provider: SearchProvider, body: &str) -> Result<Vec<SearchResult>, String> {
    match provider {
        SearchProvider::Searxng => {
            Ok(read::<SearxngResponse>(body)?.results.iter().filter_map(ListedResult::to_result).collect())
        }
        SearchProvider::Brave => {
            let web = read::<BraveResponse>(body)?.web.unwrap_or_default();
            Ok(web.results.iter().filter_map(BraveResult::to_result).collect())
        }
        SearchProvider::Tavily => {
            Ok(read::<TavilyResponse>(body)?.results.iter().filter_map(ListedResult::to_result).collect())
        }
        SearchProvider::Duckduckgo => duckduckgo(body),
    }
}

fn read<T: DeserializeOwned>(body: &str) -> Result<T, String> {
    // The body itself is not quoted: it may be long, and is untrusted.
    serde_json::from_str(body).map_err(|error| format!("answered with an invalid result list: {error}"))
}

#[derive(Deserialize)]
struct SearxngResponse {
    results: Vec<ListedResult>,
}

#[derive(Deserialize)]
struct TavilyResponse {
    results: Vec<ListedResult>,
}

/// A result of SearXNG or Tavily.
#[derive(Deserialize)]
struct ListedResult {
    #[serde(default)]
    title: Option<String>,
    url: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default, alias = "publishedDate")]
    published_date: Option<String>,
    #[serde(default)]
    score: Option<f64>,
}

impl ListedResult {
    fn to_result(&self) -> Option<SearchResult> {
        SearchResult::new(
            self.title.as_deref().unwrap_or(&self.url),
            &self.url,
            self.content.as_deref().unwrap_or_default(),
            self.published_date.as_deref(),
            self.score,
        )
    }
}

#[derive(Deserialize)]
struct BraveResponse {
    /// Absent if there are no results.
    web: Option<BraveWeb>,
}

#[derive(Default, Deserialize)]
struct BraveWeb {
    #[serde(default)]
    results: Vec<BraveResult>,
}

#[derive(Deserialize)]
struct BraveResult {
    title: String,
    url: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    page_age: Option<String>,
    #[serde(default)]
    age: Option<String>,
}

impl BraveResult {
    fn to_result(&self) -> Option<SearchResult> {
        let date = self.page_age.as_deref().or(self.age.as_deref());
        SearchResult::new(&self.title, &self.url, self.description.as_deref().unwrap_or_default(), date, None)
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the built-in pattern is valid")
}

static TITLE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?s)<a\s([^>]*\bclass="[^"]*\bresult__a\b[^"]*"[^>]*)>(.*?)</a>"#));
static HREF: LazyLock<Regex> = LazyLock::new(|| pattern(r#"\bhref="([^"]*)""#));
static SNIPPET: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?s)\bclass="[^"]*\bresult__snippet\b[^"]*"[^>]*>(.*?)</(?:a|div|td)>"#));

/// Parses the HTML page without scripts: DuckDuckGo has no API.
fn duckduckgo(body: &str) -> Result<Vec<SearchResult>, String> {
    let titles: Vec<_> = TITLE.captures_iter(body).collect();
    if titles.is_empty() {
        return if body.contains("no-results") || body.contains("No results.") {
            Ok(Vec::new())
        } else if body.contains("anomaly") {
            Err("rejects us as a bot; configure another provider in `web_search`".to_owned())
        } else {
            Err("answered with a page without a result list".to_owned())
        };
    }
    let starts: Vec<_> =
        titles.iter().filter_map(|title| title.get(0)).map(|whole| (whole.start(), whole.end())).collect();
    let one = |(at, title): (usize, &regex::Captures<'_>)| {
        let href = HREF.captures(&title[1])?;
        let end = starts.get(at + 1).map_or(body.len(), |next| next.0);
        let snippet = SNIPPET.captures(&body[starts[at].1..end]);
        let snippet = snippet.as_ref().map_or("", |snippet| snippet.get(1).map_or("", |text| text.as_str()));
        SearchResult::new(&title[2], &target(&html::text(&href[1]))?, snippet, None, None)
    };
    Ok(titles.iter().enumerate().filter_map(one).collect())
}

/// Resolves the target of a link: results point to `//duckduckgo.com/l/?uddg=…`, advertisements to `/y.js`.
fn target(href: &str) -> Option<String> {
    let absolute = if href.starts_with("//") { format!("https:{href}") } else { href.to_owned() };
    let url = Url::parse(&absolute).ok()?;
    if !url.host_str().is_some_and(|host| host == "duckduckgo.com" || host.ends_with(".duckduckgo.com")) {
        return Some(absolute);
    }
    url.query_pairs().find(|(name, _)| name == "uddg").map(|(_, target)| target.into_owned())
}
