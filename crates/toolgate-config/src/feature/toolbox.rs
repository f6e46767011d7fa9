//! `toolbox`: limits over all tools, and the lists of tool settings and MCP servers.

use std::num::NonZeroU32;

use toolgate_types::{ByteSize, HumanDuration, OnCollision};

use crate::context::Context;
use crate::feature::profiles::HintsName;
use crate::feature::servers::{ServerDefaults, ServerEntry};
use crate::feature::tool_settings::ToolSettingsFile;
use crate::keys::{Spanned, choice, into_values, keys};
use crate::resolve::ConfigBuilder;

keys! {
    /// Limits, tools and MCP servers.
    struct ToolboxFile as "toolbox" {
        /// Maximum number of concurrent calls, over all tools.
        max_concurrent: NonZeroU32 = "64",
        /// Timeout of a call if neither its tool nor its server sets one.
        default_timeout: HumanDuration = "30s",
        /// Maximum size of the result of one call.
        max_output: ByteSize = "4MiB",
        /// Tools with the same name. `qualify`: the project's own tools win, then servers in order; others are listed
        /// as `{server}__{tool}`. `last_wins`: the last one wins. `error`: Toolgate does not start. A server's tool
        /// can always be called as `{server}__{tool}`.
        on_collision: CollisionName = "qualify",
        /// Time that content of an untrusted server taints a caller that has no session: over REST, and for MCP clients
        /// of revision 2026-07-28. With a session, the taint lasts as long as the session. Rules see it as
        /// `context.tainted`.
        taint_window: HumanDuration = "1h",
        /// Hints in results over MCP. `brief`: in `_meta`, only those that the client can act on, in at most 200 bytes, and
        /// nothing otherwise. `text`: the same as one line of text, for models. `full`: all hints and metadata, in
        /// `_meta`. `off`: none. Results over REST and with `--json` always have all of them. See docs/hints.md.
        hints: HintsName = "brief",
        /// Settings for single tools, of this project or of a server.
        tools: Vec<Spanned<ToolSettingsFile>>,
        /// MCP servers.
        mcps: Vec<Spanned<ServerEntry>>,
    }
}

choice! {
    /// Resolution of name collisions between tools.
    enum CollisionName as "a collision rule" {
        /// The project's own tools win, then servers in order; later ones are listed as `{server}__{tool}`.
        Qualify = "qualify",
        /// The last one wins.
        LastWins = "last_wins",
        /// A collision is an error and Toolgate does not start.
        Error = "error",
    }
}

impl ConfigBuilder {
    pub(crate) fn add_toolbox(
        &mut self,
        toolbox: ToolboxFile,
        servers: ServerDefaults,
        cx: &mut Context<'_>,
    ) {
        let mut written = toolbox.value_spans();
        written.retain(|(key, _)| !matches!(*key, "tools" | "mcps" | "hints"));
        self.record_origins("limits", written);
        let limits = &mut self.limits;
        limits.max_concurrent = toolbox.max_concurrent.map_or(limits.max_concurrent, |at| at.value);
        limits.default_timeout = toolbox.default_timeout.map_or(limits.default_timeout, |at| at.value);
        limits.max_output = toolbox.max_output.map_or(limits.max_output, |at| at.value);
        limits.on_collision = toolbox.on_collision.map_or(limits.on_collision, |at| match at.value {
            CollisionName::Qualify => OnCollision::Qualify,
            CollisionName::LastWins => OnCollision::LastWins,
            CollisionName::Error => OnCollision::Error,
        });
        limits.taint_window = toolbox.taint_window.map_or(limits.taint_window, |at| at.value);
        for settings in into_values(toolbox.tools).unwrap_or_default() {
            self.add_settings(settings, cx);
        }
        for entry in into_values(toolbox.mcps).unwrap_or_default() {
            self.add_named_server(entry, servers, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::test_support::{config, errors, loaded};

    #[test]
    fn values_and_defaults() {
        let limits = |text: &str| config(&loaded(&[("toolgate.yaml", text)], &[]))["limits"].clone();
        let text = "toolbox: {max_concurrent: 7, default_timeout: 11s, max_output: 1MiB, on_collision: error, taint_window: 5m}";
        insta::assert_snapshot!(limits(text), @r#"{"max_concurrent":7,"default_timeout":"11s","max_output":"1MiB","on_collision":"error","taint_window":"5m"}"#);
        insta::assert_snapshot!(limits("name: x"), @r#"{"max_concurrent":64,"default_timeout":"30s","max_output":"4MiB","on_collision":"qualify","taint_window":"1h"}"#);
    }

    #[test]
    fn limits_must_be_positive() {
        let messages = |key: &str, value: &str| {
            errors(&loaded(&[("toolgate.yaml", &format!("toolbox: {{{key}: {value}}}"))], &[]))
        };
        for value in ["0", "-1", "1.5", "many", "4294967296", "[1]"] {
            assert_eq!(messages("max_concurrent", value).len(), 1, "{value}");
        }
        for value in ["0", "-5s", "soon", "P1Y", "[1]", "11 years"] {
            assert_eq!(messages("default_timeout", value).len(), 1, "{value}");
        }
        assert_eq!(messages("taint_window", "0").len(), 1);
        for value in ["0", "4k", "-1"] {
            assert_eq!(messages("max_output", value).len(), 1, "{value}");
        }
        assert_eq!(
            messages("default_timeout", "-5s"),
            ["toolgate.yaml:1:28 `-5s` is not a duration in toolbox (a duration cannot be negative)"]
        );
    }
}
