//! `cluster`: several replicas that share their state in PostgreSQL.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;
use toolgate_types::server::{AuthMode, ToolMode, Transport};
use toolgate_types::{ConfigString, HumanDuration, Secret, ToolLimits};

use crate::context::Context;
use crate::feature::checks::resolve_file;
use crate::keys::{Spanned, into_value, keys};
use crate::node::Node;
use crate::resolve::ConfigBuilder;
use crate::source::Span;

/// Shortest `secret`: as long as the keys that are derived from it.
const MIN_SECRET_BYTES: usize = 32;
/// Longest name of a replica.
const MAX_NAME_BYTES: usize = 63;

keys! {
    /// Several replicas of `toolgate serve` that behave as one gateway. They share their state in a PostgreSQL database,
    /// version 14 or newer. See docs/cluster.md.
    struct ClusterFile as "cluster" {
        /// Connection string, such as `${DATABASE_URL}`: `postgres://USER:PASSWORD@HOST/DATABASE`. It may name several
        /// hosts; the one that accepts writes is used. TLS is required, unless the database is on this machine or the
        /// string has `sslmode=disable` or `sslmode=prefer`.
        database: ConfigString; required,
        /// Secret of the cluster, the same at every replica, such as `${CLUSTER_SECRET}`: at least 32 characters, from
        /// `openssl rand -hex 32`. Keys that the replicas share are encrypted with it.
        secret: ConfigString; required,
        /// Name of this replica, unique in the cluster. Default: the name of the machine.
        name: ConfigString,
        /// PEM file with the certificate authority of the database, relative to the project folder. Default: the
        /// authorities of the system.
        ca: ConfigString,
        /// Time that stored keys count while the database cannot be reached: a revocation cannot arrive then. Keys of
        /// the configuration always count.
        stale_keys: HumanDuration = "5m",
    }
}

/// Checked settings of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterConfig {
    /// Connection string.
    pub database: Secret,
    /// Secret that the keys of the cluster are derived from.
    pub secret: Secret,
    /// Name of this replica. `None`: the name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// File with the certificate authority of the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Time that stored keys count without the database.
    pub stale_keys: HumanDuration,
}

/// Registers the connection string and the secret as secrets.
pub(crate) fn add_cluster_secrets(cluster: &Node, cx: &mut Context<'_>) {
    for key in ["database", "secret"] {
        if let Some(value) = cluster.get(key) {
            cx.add_secret_values("secret", value);
        }
    }
}

impl ConfigBuilder {
    pub(crate) fn set_cluster(&mut self, file: Spanned<ClusterFile>, cx: &mut Context<'_>) {
        let Spanned { value: file, key_span, .. } = file;
        self.record_origins("cluster", file.value_spans());
        let (Some(database), Some(secret)) = (file.database, file.secret) else { return };
        for text in [&database, &secret] {
            cx.hide(text.value.expose());
        }
        let is_url = |url: &str| url.starts_with("postgres://") || url.starts_with("postgresql://");
        if !is_url(database.value.expose()) && !cx.awaits_input(&database.value) {
            let message =
                format!("`database` is not the URL of a PostgreSQL database{}", cx.location_suffix());
            cx.error(database.span, message, "write it as `postgres://USER:PASSWORD@HOST/DATABASE`");
        }
        if secret.value.expose().len() < MIN_SECRET_BYTES && !cx.awaits_input(&secret.value) {
            let message =
                format!("`secret` has less than {MIN_SECRET_BYTES} characters{}", cx.location_suffix());
            cx.error(secret.span, message, "use the output of `openssl rand -hex 32` at every replica");
        }
        let name = file.name.map(|at| (at.value.expose().to_owned(), at.span));
        let is_name = |name: &str| {
            (1..=MAX_NAME_BYTES).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        if let Some((name, span)) = name.as_ref().filter(|(name, _)| !is_name(name)) {
            let message = format!("`{name}` is not the name of a replica{}", cx.location_suffix());
            cx.error(*span, message, "use 1 to 63 letters, digits and `. _ -`");
        }
        let config = ClusterConfig {
            database: Secret::new(database.value.expose()),
            secret: Secret::new(secret.value.expose()),
            name: name.map(|(name, _)| name),
            ca: file.ca.as_ref().and_then(|path| resolve_file("ca", path, cx)),
            stale_keys: into_value(file.stale_keys).unwrap_or(HumanDuration::from_secs(300)),
        };
        self.cluster = Some((config, key_span));
    }

    /// Reports settings whose effect the replicas of a cluster do not share yet: each would have a limit or a state of its
    /// own.
    pub(crate) fn check_cluster(&self, cx: &mut Context<'_>) {
        let Some((_, cluster)) = &self.cluster else {
            return;
        };
        for (server, span) in &self.servers {
            let name = &server.name;
            if matches!(server.transport, Transport::Stdio(_)) && server.connections.placement.is_none() {
                let message = format!("MCP server `{name}` has no `placement`, which a cluster needs");
                let hint =
                    "write `placement: each` if its processes at different replicas need no common state";
                cx.error(*span, message, hint);
            }
            let has_oauth = matches!(&server.transport, Transport::Http(remote) | Transport::Sse(remote) if remote.oauth.is_some());
            if server.auth.mode == AuthMode::Caller || server.auth.credential.is_some() || has_oauth {
                let message =
                    format!("the credentials of MCP server `{name}` are not shared by a cluster yet");
                let hint = "remove `auth`, `credential` and `oauth`, and put a token into `headers` or `env`";
                cx.error(*span, message, hint);
            }
            if let ToolMode::Dynamic { default_tool_config } = &server.mode {
                let what = format!("`default_tool_config` of MCP server `{name}`");
                check_limits(&what, *default_tool_config, false, *span, cx);
            }
        }
        for tool in &self.tools {
            let what = format!("tool `{}`", tool.value.name);
            check_limits(&what, tool.value.limits, true, tool.span, cx);
        }
        for settings in &self.settings {
            let is_own = self.tool_at.contains_key(&settings.value.name);
            let what = format!("tool `{}`", settings.value.name);
            if !is_own {
                check_limits(&what, settings.value.limits, false, settings.span, cx);
            }
        }
        if self.results.is_some() {
            let message = "stored results are not shared by a cluster yet";
            cx.error(*cluster, message, "remove `results`: results are then returned inline");
        }
        if self.serve.requests_per_caller.is_some() || self.serve.requests_per_address.is_some() {
            let message = "limits of requests would hold for each replica of a cluster alone";
            let hint = "remove `serve.rate_limit`, and limit requests in the balancer";
            cx.error(*cluster, message, hint);
        }
        let asks = self.policy.iter().flatten().any(|policy| policy.rules.asks());
        if asks || self.builtins.human_input.is_some() {
            let message = "approvals and questions to people are not shared by a cluster yet";
            cx.error(*cluster, message, "remove `human_input`, and rules with `@ask`");
        }
    }
}

/// Reports limits of concurrent calls that would hold per replica only.
fn check_limits(what: &str, limits: ToolLimits, is_script: bool, span: Span, cx: &mut Context<'_>) {
    let ToolLimits { max_instances, parallel_capable, .. } = limits;
    if !parallel_capable.unwrap_or(!is_script) {
        let message = format!("{what} runs one call at a time, which a cluster does not ensure yet");
        cx.error(span, message, "write `parallel_capable: true` if calls may run at the same time");
    }
    if let Some(most) = max_instances.map(NonZeroU32::get) {
        let message =
            format!("`max_instances: {most}` of {what} would hold for each replica of a cluster alone");
        cx.error(span, message, "remove it: each replica then runs at most 5 calls of a tool at a time");
    }
}

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn project(text: &str) -> LoadOutcome {
        let variables = [("DB", "postgres://u:pass-word@db/x"), ("SECRET", SECRET)];
        loaded(&[("toolgate.yaml", text), ("policy.cedar", ""), ("ca.pem", "")], &variables)
    }

    fn cluster(more: &str) -> String {
        format!("cluster: {{database: '${{DB}}', secret: '${{SECRET}}'{more}}}\n")
    }

    #[test]
    fn values_and_mistakes() {
        let of = |text: &str| config(&project(text)).get("cluster").map(ToString::to_string);
        assert_eq!(of("name: x"), None);
        let text = of(&cluster(", name: a, ca: ca.pem, stale_keys: 1m")).unwrap();
        assert!(text.starts_with(r#"{"database":"***","secret":"***","name":"a","ca":""#), "{text}");
        for (more, message) in [
            (", name: 'a b'", "`a b` is not the name of a replica"),
            (", ca: gone.pem", "there is no file `gone.pem` for `ca`"),
        ] {
            let found = messages(&project(&cluster(more)));
            assert!(found.contains(message), "{more}: {found}");
        }
        let short = messages(&project("cluster: {database: 'mysql://pass-word@db', secret: short-secret}"));
        assert!(short.contains("not the URL of a PostgreSQL database"), "{short}");
        assert!(short.contains("less than 32 characters"), "{short}");
        let missing = messages(&project("cluster: {}"));
        assert!(missing.contains("`database`") && missing.contains("`secret`"), "{missing}");
    }

    /// Nothing that should hold for all replicas holds for each of them alone.
    #[test]
    fn refuses_what_is_not_shared() {
        let server = |more: &str| {
            format!(
                "toolbox: {{mcps: [{{name: s, command: x, mode: dynamic, default_tool_config: {{}}{more}}}]}}\n"
            )
        };
        let placed = |more: &str| server(&format!(", placement: each{more}"));
        let remote = |more: &str| {
            format!(
                "toolbox: {{mcps: [{{name: s, url: 'https://h', mode: dynamic, default_tool_config: {{}}{more}}}]}}\n"
            )
        };
        assert_eq!(messages(&project(&(cluster("") + &placed("") + "policy: policy.cedar"))), "");
        assert_eq!(messages(&project(&server(""))), "", "without a cluster");
        for (text, message) in [
            (server(""), "MCP server `s` has no `placement`"),
            (remote(", auth: caller"), "the credentials of MCP server `s` are not shared"),
            (remote(", oauth: {client_id: x}"), "the credentials of MCP server `s` are not shared"),
            (placed("").replace("{}", "{max_instances: 3}"), "`max_instances: 3` of `default_tool_config`"),
            (placed("").replace("{}", "{parallel_capable: false}"), "runs one call at a time"),
            ("results: {}".to_owned(), "stored results are not shared"),
            ("serve: {rate_limit: {per_caller: 9}}".to_owned(), "limits of requests would hold"),
            ("human_input: {}".to_owned(), "approvals and questions to people are not shared"),
        ] {
            let found = messages(&project(&(cluster("") + &text)));
            assert!(found.contains(message), "{text}: {found}");
        }
        let asking = [
            ("toolgate.yaml", cluster("")),
            ("policy.cedar", "@ask(\"Sure?\") forbid (principal, action, resource);".to_owned()),
        ];
        let asking = asking.each_ref().map(|(name, text)| (*name, text.as_str()));
        let found = messages(&loaded(&asking, &[("DB", "postgres://db/x"), ("SECRET", SECRET)]));
        assert!(found.contains("approvals and questions"), "{found}");
    }
}
