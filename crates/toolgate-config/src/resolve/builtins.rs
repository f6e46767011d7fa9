//! Resolves the built-in tools. Each is enabled by its key.

use std::num::NonZeroU32;

use toolgate_types::builtins::{CodeExecutionConfig, HumanInputConfig, SearchProvider, WebSearchConfig};
use toolgate_types::{ByteSize, ConfigString, HumanDuration, Secret};

use crate::context::Context;
use crate::file::{CodeExecutionFile, HumanInputFile, ProviderName, WebSearchFile};
use crate::keys::Spanned;
use crate::resolve::ConfigBuilder;
use crate::resolve::server::check_url;

/// Default of `max_processes`.
const DEFAULT_MAX_PROCESSES: NonZeroU32 = NonZeroU32::new(32).expect("it is not zero");
/// Maximum number of results that all supported search engines can return.
const MAX_SEARCH_RESULTS: u32 = 20;

impl ConfigBuilder {
    pub(crate) fn set_human_input(&mut self, file: HumanInputFile) {
        self.record_origins("human_input", file.value_spans());
        let timeout = file.timeout.map_or(HumanDuration::from_secs(600), |at| at.value);
        self.builtins.human_input = Some(HumanInputConfig { timeout });
    }

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

impl ConfigBuilder {
    pub(crate) fn set_code_execution(&mut self, file: CodeExecutionFile, cx: &mut Context<'_>) {
        self.record_origins("code_execution", file.value_spans());
        let mut read = Vec::new();
        for Spanned { value, span, .. } in file.read.into_iter().flat_map(|at| at.value) {
            let path = cx.project.join(&value);
            if !path.exists() {
                let message = format!("`{value}` does not exist{}", cx.location_suffix());
                cx.error(span, message, "create it, or remove it from the list");
            }
            read.push(path);
        }
        if !file.enabled.is_some_and(|at| at.value) {
            return;
        }
        // A path is relative to the project folder, like all paths.
        let python = file.python.map_or_else(|| ConfigString::plain("python3"), |at| at.value);
        let python = if python.expose().contains('/') {
            ConfigString::plain(cx.project.join(python.expose()).to_string_lossy())
        } else {
            python
        };
        let size = |at: Option<Spanned<ByteSize>>, mib| at.map_or(ByteSize::from_mib(mib), |at| at.value);
        self.builtins.code_execution = Some(CodeExecutionConfig {
            sandbox: file.sandbox.is_none_or(|at| at.value),
            timeout: file.timeout.map_or(HumanDuration::from_secs(30), |at| at.value),
            max_memory: size(file.max_memory, 512),
            max_output: size(file.max_output, 1),
            max_processes: file.max_processes.map_or(DEFAULT_MAX_PROCESSES, |at| at.value),
            max_disk: size(file.max_disk, 64),
            python,
            read,
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
