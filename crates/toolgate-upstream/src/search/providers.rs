//! The search engines: how each is asked, and how its answer is read.

use std::sync::LazyLock;

use regex::Regex;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use toolgate_types::builtins::{Provider, WebSearch};
use url::Url;

use super::{Found, TimeRange, Wanted, html};

/// The question in an engine's words; `None` where its address or its key cannot be sent.
pub(super) fn request(
    client: &Client,
    rules: &WebSearch,
    wanted: &Wanted,
    most: usize,
) -> Option<RequestBuilder> {
    let mut url = Url::parse(rules.url.expose()).ok()?;
    let key = rules.key.as_ref().map(|key| key.expose().to_owned()).unwrap_or_default();
    let mut secret = HeaderValue::from_str(&key).ok()?;
    secret.set_sensitive(true);
    let query = wanted.query.trim();
    Some(match rules.provider {
        Provider::Searxng => {
            if !url.path().ends_with("/search") {
                let path = format!("{}/search", url.path().trim_end_matches('/'));
                url.set_path(&path);
            }
            url.query_pairs_mut().append_pair("q", query).append_pair("format", "json");
            if let Some(range) = wanted.time_range {
                url.query_pairs_mut().append_pair("time_range", range.word());
            }
            client.get(url).header(ACCEPT, "application/json")
        }
        Provider::Brave => {
            url.query_pairs_mut().append_pair("q", query).append_pair("count", &most.to_string());
            if let Some(range) = wanted.time_range {
                url.query_pairs_mut().append_pair("freshness", &format!("p{}", &range.word()[..1]));
            }
            client.get(url).header(ACCEPT, "application/json").header("X-Subscription-Token", secret)
        }
        Provider::Tavily => {
            let mut body = json!({ "query": query, "max_results": most });
            if let Some(range) = wanted.time_range {
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
        Provider::Duckduckgo => {
            url.query_pairs_mut().append_pair("q", query);
            if let Some(range) = wanted.time_range {
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

/// What an engine answered, or how it is wrong.
pub(super) fn found(provider: Provider, body: &str) -> Result<Vec<Found>, String> {
    match provider {
        Provider::Searxng => Ok(read::<Searxng>(body)?.results.iter().filter_map(Listed::found).collect()),
        Provider::Brave => {
            let web = read::<Brave>(body)?.web.unwrap_or_default();
            Ok(web.results.iter().filter_map(BraveResult::found).collect())
        }
        Provider::Tavily => Ok(read::<Tavily>(body)?.results.iter().filter_map(Listed::found).collect()),
        Provider::Duckduckgo => duckduckgo(body),
    }
}

fn read<T: DeserializeOwned>(body: &str) -> Result<T, String> {
    // What it said instead may be a page of thousands of lines, and is written by others.
    serde_json::from_str(body).map_err(|error| format!("answered with what is no list of results: {error}"))
}

#[derive(Deserialize)]
struct Searxng {
    results: Vec<Listed>,
}

#[derive(Deserialize)]
struct Tavily {
    results: Vec<Listed>,
}

/// A result of SearXNG, and of Tavily.
#[derive(Deserialize)]
struct Listed {
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

impl Listed {
    fn found(&self) -> Option<Found> {
        Found::new(
            self.title.as_deref().unwrap_or(&self.url),
            &self.url,
            self.content.as_deref().unwrap_or_default(),
            self.published_date.as_deref(),
            self.score,
        )
    }
}

#[derive(Deserialize)]
struct Brave {
    /// Not there where nothing was found.
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
    fn found(&self) -> Option<Found> {
        let date = self.page_age.as_deref().or(self.age.as_deref());
        Found::new(&self.title, &self.url, self.description.as_deref().unwrap_or_default(), date, None)
    }
}

/// A pattern of our own.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("it is a pattern")
}

static TITLE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?s)<a\s([^>]*\bclass="[^"]*\bresult__a\b[^"]*"[^>]*)>(.*?)</a>"#));
static HREF: LazyLock<Regex> = LazyLock::new(|| pattern(r#"\bhref="([^"]*)""#));
static SNIPPET: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?s)\bclass="[^"]*\bresult__snippet\b[^"]*"[^>]*>(.*?)</(?:a|div|td)>"#));

/// The page without scripts, for people.
fn duckduckgo(body: &str) -> Result<Vec<Found>, String> {
    let titles: Vec<_> = TITLE.captures_iter(body).collect();
    if titles.is_empty() {
        return if body.contains("no-results") || body.contains("No results.") {
            Ok(Vec::new())
        } else if body.contains("anomaly") {
            Err("takes us for a robot that asks too often; another provider in `web_search` takes programs"
                .to_owned())
        } else {
            Err("answered with a page that is no list of results".to_owned())
        };
    }
    let starts: Vec<_> =
        titles.iter().filter_map(|title| title.get(0)).map(|whole| (whole.start(), whole.end())).collect();
    let one = |(at, title): (usize, &regex::Captures<'_>)| {
        let href = HREF.captures(&title[1])?;
        let end = starts.get(at + 1).map_or(body.len(), |next| next.0);
        let snippet = SNIPPET.captures(&body[starts[at].1..end]);
        let snippet = snippet.as_ref().map_or("", |snippet| snippet.get(1).map_or("", |text| text.as_str()));
        Found::new(&title[2], &target(&html::text(&href[1]))?, snippet, None, None)
    };
    Ok(titles.iter().enumerate().filter_map(one).collect())
}

/// Where a link leads: results are behind `//duckduckgo.com/l/?uddg=…`, advertisements behind `/y.js`.
fn target(href: &str) -> Option<String> {
    let whole = if href.starts_with("//") { format!("https:{href}") } else { href.to_owned() };
    let url = Url::parse(&whole).ok()?;
    if !url.host_str().is_some_and(|host| host == "duckduckgo.com" || host.ends_with(".duckduckgo.com")) {
        return Some(whole);
    }
    url.query_pairs().find(|(name, _)| name == "uddg").map(|(_, target)| target.into_owned())
}
