//! `egress`: strings that must not be sent to MCP servers.

use toolgate_types::egress::MIN_CANARY_LENGTH;
use toolgate_types::{ConfigString, Secret};

use crate::context::Context;
use crate::keys::{Spanned, keys};
use crate::node::Node;
use crate::resolve::ConfigBuilder;

keys! {
    /// Strings that must not be sent to MCP servers. A call whose arguments contain one is refused.
    struct EgressFile as "egress" {
        /// Canary strings. Plant them in places no tool should read: a call that contains one reveals that a tool
        /// did. At least 8 characters each; never shown.
        canaries: Vec<Spanned<ConfigString>>,
        /// Also refuses calls that contain secrets: values of variables, headers and other secrets of this
        /// configuration, and strings that look like credentials.
        secrets: bool = "false",
    }
}

/// Registers the canaries as secrets.
pub(crate) fn add_canary_secrets(egress: &Node, cx: &mut Context<'_>) {
    if let Some(canaries) = egress.get("canaries") {
        cx.add_secret_values("secret", canaries);
    }
}

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
