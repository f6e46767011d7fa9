//! The tools that Toolgate brings along: each is there where its key is.

use toolgate_types::builtins::{HumanInput, Provider, WebSearch};
use toolgate_types::{HumanDuration, Secret, Text};

use crate::context::Context;
use crate::file::{HumanInputFile, ProviderName, WebSearchFile};
use crate::settle::Draft;
use crate::settle::server::check_url;

/// The most results that any of the search engines gives.
const MOST_RESULTS: u32 = 20;

impl Draft {
    pub(crate) fn human_input(&mut self, file: HumanInputFile) {
        self.origins("human_input", file.written());
        let timeout = file.timeout.map_or(HumanDuration::from_secs(600), |at| at.value);
        self.builtins.human_input = Some(HumanInput { timeout });
    }

    pub(crate) fn web_search(&mut self, file: WebSearchFile, cx: &mut Context<'_>) {
        self.origins("web_search", file.written());
        let Some(provider) = file.provider else { return };
        let (span, provider) = (provider.span, Provider::from(provider.value));
        let label = provider.label();
        let url = match (file.url, provider.place()) {
            (Some(url), _) => check_url(&url, &["https", "http"], cx).map(|()| url.value),
            (None, Some(place)) => Some(Text::plain(place)),
            (None, None) => {
                let hint = "give the address of an instance, such as `https://searx.example.com`";
                cx.error(span, format!("`{label}` needs `url`{}", cx.whereabouts()), hint);
                None
            }
        };
        match &file.key {
            None if provider.wants_key() => {
                let message = format!("`{label}` needs `key`{}", cx.whereabouts());
                cx.error(span, message, "give it as a variable, such as `${SEARCH_KEY}`");
                return;
            }
            Some(key) if !provider.wants_key() => {
                let message = format!("`{label}` takes no `key`{}", cx.whereabouts());
                cx.error(key.key_span, message, "remove it, or choose another `provider`");
                return;
            }
            Some(key) => cx.hide(key.value.expose()),
            None => {}
        }
        let most = file.max_results.as_ref().map_or(10, |at| at.value.get());
        if let Some(written) = file.max_results.filter(|_| most > MOST_RESULTS) {
            let message = format!("`max_results` is more than {MOST_RESULTS}{}", cx.whereabouts());
            cx.error(written.span, message, "no search engine gives more at once");
        }
        let Some(url) = url else { return };
        self.builtins.web_search = Some(WebSearch {
            provider,
            url,
            key: file.key.map(|key| Secret::new(key.value.expose())),
            max_results: most,
            timeout: file.timeout.map_or(HumanDuration::from_secs(15), |at| at.value),
        });
    }
}

impl From<ProviderName> for Provider {
    fn from(name: ProviderName) -> Self {
        match name {
            ProviderName::Searxng => Self::Searxng,
            ProviderName::Brave => Self::Brave,
            ProviderName::Tavily => Self::Tavily,
            ProviderName::Duckduckgo => Self::Duckduckgo,
        }
    }
}
