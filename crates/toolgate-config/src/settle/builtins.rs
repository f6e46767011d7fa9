//! The tools that Toolgate brings along: each is there where its key is.

use std::num::NonZeroU32;

use toolgate_types::builtins::{CodeExecution, HumanInput, Provider, WebSearch};
use toolgate_types::{ByteSize, HumanDuration, Secret, Text};

use crate::context::Context;
use crate::file::{CodeExecutionFile, HumanInputFile, ProviderName, WebSearchFile};
use crate::keys::At;
use crate::settle::Draft;
use crate::settle::server::check_url;

/// Processes of code where nothing else is said.
const MOST_PROCESSES: NonZeroU32 = NonZeroU32::new(32).expect("it is not zero");
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

impl Draft {
    pub(crate) fn code_execution(&mut self, file: CodeExecutionFile, cx: &mut Context<'_>) {
        self.origins("code_execution", file.written());
        let mut read = Vec::new();
        for At { value, span, .. } in file.read.into_iter().flat_map(|at| at.value) {
            let path = cx.project.join(&value);
            if !path.exists() {
                let message = format!("`{value}` does not exist{}", cx.whereabouts());
                cx.error(span, message, "make it, or take it off the list");
            }
            read.push(path);
        }
        if !file.enabled.is_some_and(|at| at.value) {
            return;
        }
        // One that is a path is seen from the project, like every other.
        let python = file.python.map_or_else(|| Text::plain("python3"), |at| at.value);
        let python = if python.expose().contains('/') {
            Text::plain(cx.project.join(python.expose()).to_string_lossy())
        } else {
            python
        };
        let size = |at: Option<At<ByteSize>>, mib| at.map_or(ByteSize::from_mib(mib), |at| at.value);
        self.builtins.code_execution = Some(CodeExecution {
            sandbox: file.sandbox.is_none_or(|at| at.value),
            timeout: file.timeout.map_or(HumanDuration::from_secs(30), |at| at.value),
            max_memory: size(file.max_memory, 512),
            max_output: size(file.max_output, 1),
            max_processes: file.max_processes.map_or(MOST_PROCESSES, |at| at.value),
            max_disk: size(file.max_disk, 64),
            python,
            read,
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
