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
        /// configuration, and strings that look like credentials. Needs more evidence than the redaction of the
        /// log does, because it refuses the call.
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

#[cfg(test)]
mod tests {
    use toolgate_types::Secret;

    use crate::LoadOutcome;
    use crate::test_support::{loaded, messages};

    fn egress(text: &str, variables: &[(&str, &str)]) -> LoadOutcome {
        loaded(&[("toolgate.yaml", &format!("egress:\n{text}"))], variables)
    }

    #[test]
    fn canaries_and_secrets() {
        let loaded = egress(
            "  canaries: [the blue heron, \"${CANARY}\"]\n  secrets: true\n",
            &[("CANARY", "12345678")],
        );
        let egress = &loaded.config.as_ref().unwrap().egress;
        let canaries: Vec<_> = egress.canaries.iter().map(Secret::expose).collect();
        assert_eq!((canaries, egress.secrets), (vec!["the blue heron", "12345678"], true));
        assert_eq!(messages(&loaded), "");
        let shown = format!("{:?}{}", loaded.config, serde_json::to_string(&loaded.config).unwrap());
        assert!(!shown.contains("heron") && !shown.contains("12345678"), "{shown}");
    }

    #[test]
    fn egress_is_off_by_default() {
        let loaded = egress("  canaries: []\n", &[]);
        assert!(loaded.config.as_ref().unwrap().egress.is_off());
        assert!(serde_json::to_value(&loaded.config).unwrap().get("egress").is_none());
    }

    /// Canaries are hidden in every message and everywhere in the file.
    #[test]
    fn never_shows_canaries() {
        for (text, variables) in [
            ("  canaries: [{the blue heron: the blue heron}]\n", [("A", "a")]),
            ("  canaries: the blue heron\n", [("A", "a")]),
            ("  canaries: [the blue heron, \"${NONE}\"]\n", [("A", "a")]),
            ("  {canaries: [the blue heron], secretss: true}\n", [("A", "a")]),
            ("  canaries: [the blue heron]\nname: the blue heron\nnam: the blue heron\n", [("A", "a")]),
            ("  {}\n", [("TOOLGATE__EGRESS__CANARIES__X", "the blue heron")]),
        ] {
            let loaded = egress(text, &variables);
            let shown = format!("{}{}", loaded.report.render(), messages(&loaded));
            assert!(loaded.config.is_none() && !shown.contains("heron"), "{shown}");
        }
        let short = egress("  canaries: [heron]\n", &[]);
        insta::assert_snapshot!(messages(&short), @"error toolgate.yaml:2:14 a canary has fewer than 8 characters in egress (a short string occurs in calls by chance; use a longer one)");
        assert!(!short.report.render().contains("heron"));
    }
}
