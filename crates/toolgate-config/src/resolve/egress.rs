//! Resolves `egress`: strings that must not be sent to MCP servers.

use toolgate_types::Secret;
use toolgate_types::egress::MIN_CANARY_LENGTH;

use crate::context::Context;
use crate::file::EgressFile;
use crate::resolve::ConfigBuilder;

impl ConfigBuilder {
    pub(crate) fn set_egress(&mut self, file: EgressFile, cx: &mut Context<'_>) {
        self.record_origins("egress", file.value_spans());
        self.egress.secrets = file.secrets.is_some_and(|at| at.value);
        for canary in file.canaries.into_iter().flat_map(|at| at.value) {
            let text = canary.value.expose();
            cx.hide(text);
            if text.chars().count() < MIN_CANARY_LENGTH {
                let message = format!("a canary has fewer than {MIN_CANARY_LENGTH} characters in egress");
                cx.error(canary.span, message, "a short string occurs in calls by chance; use a longer one");
            } else {
                self.egress.canaries.push(Secret::new(text));
            }
        }
    }
}
