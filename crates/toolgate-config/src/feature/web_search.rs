//! `web_search`: the search engine of the tool `web_search`.

use std::num::NonZeroU32;

use toolgate_types::builtins::{SearchProvider, WebSearchConfig};
use toolgate_types::{ConfigString, HumanDuration, Secret};

use crate::context::Context;
use crate::feature::checks::check_url;
use crate::keys::{choice, keys};
use crate::node::Node;
use crate::resolve::ConfigBuilder;

keys! {
    /// A search engine. Its results are third-party content and are treated as untrusted.
    struct WebSearchFile as "web_search" {
        /// Search engine to use.
        provider: ProviderName; required,
        /// URL of the search engine. Required for `searxng`; the others have a default.
        url: ConfigString,
        /// API key, required for `brave` and `tavily`. Preferably `${NAME}`.
        key: ConfigString,
        /// Maximum number of results per search, at most 20.
        max_results: NonZeroU32 = "10",
        /// Timeout of one search.
        timeout: HumanDuration = "15s",
    }
}

choice! {
    /// A search engine.
    enum ProviderName as "a search engine" {
        /// A SearXNG instance with the JSON format enabled.
        Searxng = "searxng",
        /// Brave Search.
        Brave = "brave",
        /// Tavily.
        Tavily = "tavily",
        /// DuckDuckGo's HTML page. Needs no key, but limits automated queries.
        Duckduckgo = "duckduckgo",
    }
}

/// Maximum number of results that all supported search engines can return.
const MAX_SEARCH_RESULTS: u32 = 20;

/// Registers the API key as a secret.
pub(crate) fn add_key_secret(web_search: &Node, cx: &mut Context<'_>) {
    if let Some(key) = web_search.get("key") {
        cx.add_secret_values("secret", key);
    }
}

impl ConfigBuilder {
    pub(crate) fn set_web_search(&mut self, file: WebSearchFile, cx: &mut Context<'_>) {
        self.record_origins("web_search", file.value_spans());
        let Some(provider) = file.provider else { return };
        let (span, provider) = (provider.span, SearchProvider::from(provider.value));
        let label = provider.label();
        let url = match (file.url, provider.default_url()) {
            (Some(url), _) => check_url(&url, &["https", "http"], cx).map(|()| url.value),
            (None, Some(place)) => Some(ConfigString::plain(place)),
            (None, None) => {
                let hint = "give the URL of an instance, such as `https://searx.example.com`";
                cx.error(span, format!("`{label}` needs `url`{}", cx.location_suffix()), hint);
                None
            }
        };
        match &file.key {
            None if provider.requires_key() => {
                let message = format!("`{label}` needs `key`{}", cx.location_suffix());
                cx.error(span, message, "give it as a variable, such as `${SEARCH_KEY}`");
                return;
            }
            Some(key) if !provider.requires_key() => {
                let message = format!("`{label}` takes no `key`{}", cx.location_suffix());
                cx.error(key.key_span, message, "remove it, or choose another `provider`");
                return;
            }
            Some(key) => cx.hide(key.value.expose()),
            None => {}
        }
        let most = file.max_results.as_ref().map_or(10, |at| at.value.get());
        if let Some(written) = file.max_results.filter(|_| most > MAX_SEARCH_RESULTS) {
            let message = format!("`max_results` is more than {MAX_SEARCH_RESULTS}{}", cx.location_suffix());
            cx.error(written.span, message, "search engines return no more per search");
        }
        let Some(url) = url else { return };
        self.builtins.web_search = Some(WebSearchConfig {
            provider,
            url,
            key: file.key.map(|key| Secret::new(key.value.expose())),
            max_results: most,
            timeout: file.timeout.map_or(HumanDuration::from_secs(15), |at| at.value),
        });
    }
}

impl From<ProviderName> for SearchProvider {
    fn from(name: ProviderName) -> Self {
        match name {
            ProviderName::Searxng => Self::Searxng,
            ProviderName::Brave => Self::Brave,
            ProviderName::Tavily => Self::Tavily,
            ProviderName::Duckduckgo => Self::Duckduckgo,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    fn project(text: &str) -> LoadOutcome {
        loaded(&[("toolgate.yaml", text)], &[])
    }

    #[test]
    fn values_and_defaults() {
        let text = "web_search: {provider: brave, url: 'https://s.test', key: the-brave-key, max_results: 3, timeout: 4s}";
        insta::assert_snapshot!(config(&project(text))["web_search"], @r#"{"provider":"brave","url":"https://s.test","max_results":3,"timeout":"4s"}"#);
        insta::assert_snapshot!(config(&project("web_search: {provider: duckduckgo}"))["web_search"], @r#"{"provider":"duckduckgo","url":"https://html.duckduckgo.com/html/","max_results":10,"timeout":"15s"}"#);
        assert!(config(&project("name: x")).get("web_search").is_none(), "it is off by default");
    }

    #[test]
    fn reports_mistakes() {
        let mistakes = [
            "web_search: {}",
            "web_search: {provider: gogle}",
            "web_search: {provider: searxng}",
            "web_search: {provider: brave}",
            "web_search: {provider: duckduckgo, key: the-wrong-key}",
            "web_search: {provider: duckduckgo, url: 'ftp://s.test'}",
            "web_search: {provider: duckduckgo, max_results: 21}",
        ];
        let mistakes = mistakes.map(|text| messages(&project(text))).join("\n");
        assert!(!mistakes.contains("the-wrong-key"), "{mistakes}");
        insta::assert_snapshot!(mistakes, @"
        error toolgate.yaml:1:13 missing key `provider` in web_search (add `provider`: `searxng`, `brave`, `tavily` or `duckduckgo`)
        error toolgate.yaml:1:24 `gogle` is not a search engine in web_search (`searxng`, `brave`, `tavily` or `duckduckgo` is expected)
        error toolgate.yaml:1:24 `searxng` needs `url` (give the URL of an instance, such as `https://searx.example.com`)
        error toolgate.yaml:1:24 `brave` needs `key` (give it as a variable, such as `${SEARCH_KEY}`)
        error toolgate.yaml:1:36 `duckduckgo` takes no `key` (remove it, or choose another `provider`)
        error toolgate.yaml:1:41 `ftp://s.test` does not start with `https://` or `http://` (write a complete URL, such as `https://localhost:8080/mcp`)
        error toolgate.yaml:1:49 `max_results` is more than 20 (search engines return no more per search)
        ");
    }
}
