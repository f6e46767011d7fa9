//! `serve`: listener, authentication and limits of the gateway.

pub(crate) mod jwt;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::num::NonZeroU32;

use toolgate_types::network::Network;
use toolgate_types::serve::{AnonymousAccess, HostName};
use toolgate_types::tool::RateLimit;
use toolgate_types::{ByteSize, ConfigString, HumanDuration};

use self::jwt::JwtFile;
use self::tls::ServeTlsFile;
use crate::context::Context;
use crate::feature::checks::check_url;
use crate::keys::{Spanned, choice, into_value, into_values, keys, read_by_parsing};
use crate::resolve::ConfigBuilder;

keys! {
    /// Settings of `toolgate serve`.
    struct ServeFile as "serve" {
        /// IP address and port to listen on. The default accepts connections from this machine only;
        /// `0.0.0.0` accepts connections from the whole network.
        listen: SocketAddr = "127.0.0.1:7332",
        /// Host names of the gateway, such as `tools.example.com`, in addition to `localhost` and the listen
        /// address. Requests for other host names are refused.
        hosts: Vec<Spanned<HostName>>,
        /// Maximum size of a request body.
        max_body: ByteSize = "4MiB",
        /// Maximum number of concurrent connections; lower if the process may open fewer files.
        max_connections: NonZeroU32 = "2000",
        /// Maximum number of concurrent connections from one IP address.
        max_connections_per_address: NonZeroU32 = "1000",
        /// Maximum number of concurrent event streams and WebSockets of one caller. Further ones get 429.
        max_streams_per_caller: NonZeroU32 = "256",
        /// Reverse proxies in front of the gateway, as addresses or networks, such as `10.1.2.3` or `10.1.0.0/16`. The
        /// address of a client is taken from `Forwarded` or `X-Forwarded-For` of these peers only: the right-most
        /// address that is not one of these. It is used for rate limits, wrong keys and log lines.
        trusted_proxies: Vec<Spanned<Network>>,
        /// Networks of MCP servers that may be registered over HTTP, in addition to the public internet, such
        /// as `10.1.0.0/16`. Does not apply to servers configured in the project's files.
        allow_networks: Vec<Spanned<Network>>,
        /// Programs that MCP servers registered over HTTP may run on this machine, as written in `command`.
        /// Default: any program. Does not apply to servers configured in the project's files.
        allow_commands: Vec<Spanned<String>>,
        /// Certificate of the gateway. Without this key TLS is off.
        tls: ServeTlsFile,
        /// Public URL of the gateway, such as `https://tools.example.com`, used in login instructions to clients.
        /// Default: the host of each request.
        url: ConfigString,
        /// Token issuers whose JWTs authenticate callers.
        jwt: Vec<Spanned<JwtFile>>,
        /// Accepts unauthenticated requests as the caller `anonymous`: from this machine only and not through a proxy
        /// (`loopback`), or from any address (`everywhere`). A request that passed a proxy is accepted only with
        /// `everywhere`, and only if the proxy is in `trusted_proxies`.
        anonymous: AnonymousName = "loopback",
        /// Rate limits of requests.
        rate_limit: ServeRateLimitFile,
    }
}

choice! {
    /// Origin of unauthenticated requests that are accepted.
    enum AnonymousName as "an `anonymous` mode" {
        /// This machine only, without a proxy in between.
        Loopback = "loopback",
        /// Any address.
        Everywhere = "everywhere",
    }
}

keys! {
    /// Limits on requests per window, of any kind. Requests over the limit get 429. No window of this length has more,
    /// wherever it starts. Each message on a WebSocket and each member of a JSON-RPC batch counts.
    struct ServeRateLimitFile as "serve rate_limit" {
        /// Maximum number of requests from one IP address, or one IPv6 /64 prefix.
        per_address: NonZeroU32,
        /// Maximum number of requests of one caller.
        per_caller: NonZeroU32,
        /// Length of the window.
        window: HumanDuration = "1m",
    }
}

read_by_parsing! {
    SocketAddr: "an IP address with a port", { "type": "string", "examples": ["127.0.0.1:7332", "[::1]:7332"] };
    HostName: "a host name", { "type": "string", "pattern": "^[A-Za-z0-9.-]{1,253}$" };
}

impl ConfigBuilder {
    pub(crate) fn set_serve(&mut self, file: ServeFile, cx: &mut Context<'_>) {
        self.record_origins("serve", file.value_spans());
        let mut rules = std::mem::take(&mut self.serve);
        rules.listen = file.listen.map_or(rules.listen, |at| at.value);
        rules.hosts = into_values(file.hosts).unwrap_or_default();
        rules.max_body = file.max_body.map_or(rules.max_body, |at| at.value);
        rules.max_connections = file.max_connections.map_or(rules.max_connections, |at| at.value);
        rules.max_connections_per_address =
            file.max_connections_per_address.map_or(rules.max_connections_per_address, |at| at.value);
        rules.max_streams_per_caller =
            file.max_streams_per_caller.map_or(rules.max_streams_per_caller, |at| at.value);
        rules.trusted_proxies = into_values(file.trusted_proxies).unwrap_or_default();
        rules.allow_networks = into_values(file.allow_networks).unwrap_or_default();
        rules.allow_commands = into_values(file.allow_commands);
        rules.tls = file.tls.and_then(|at| tls::resolve_serve_tls(at.value, cx));
        rules.anonymous = match file.anonymous {
            Some(Spanned { value: AnonymousName::Everywhere, .. }) => AnonymousAccess::Everywhere,
            Some(Spanned { value: AnonymousName::Loopback, .. }) | None => AnonymousAccess::Loopback,
        };
        rules.url = file.url.and_then(|at| {
            check_url(&at, &["https", "http"], cx)?;
            Some(at.value.expose().trim_end_matches('/').to_owned())
        });
        if let Some(ServeRateLimitFile { per_address, per_caller, window, .. }) = into_value(file.rate_limit)
        {
            let window = window.map_or(HumanDuration::from_secs(60), |at| at.value);
            let limit = |most: Spanned<NonZeroU32>| RateLimit { max_calls: most.value, window };
            (rules.requests_per_address, rules.requests_per_caller) =
                (per_address.map(limit), per_caller.map(limit));
        }
        for Spanned { value: file, span, .. } in file.jwt.into_iter().flat_map(|at| at.value) {
            let Some(issuer) = jwt::resolve_issuer(file, self, cx) else { continue };
            if rules.jwt.iter().any(|other| other.issuer == issuer.issuer) {
                let message = format!("issuer `{}` is named twice", issuer.issuer);
                cx.error(span, message, "keep one of the two");
            }
            rules.jwt.push(issuer);
        }
        self.serve = rules;
    }
}

#[cfg(test)]
mod tests {
    use crate::test_support::{config, loaded, messages};

    #[test]
    fn reads_serve_settings() {
        let text = "serve: {listen: \"[::1]:80\", hosts: [Tools.example.com], max_body: 1MiB, max_connections: 7, max_connections_per_address: 3, max_streams_per_caller: 2, trusted_proxies: [10.1.2.3, \"fd00::/8\"]}\n";
        let loaded = loaded(&[("toolgate.yaml", text)], &[]);
        assert_eq!(messages(&loaded), "");
        insta::assert_snapshot!(config(&loaded)["serve"].to_string(), @r#"{"listen":"[::1]:80","hosts":["tools.example.com"],"max_body":"1MiB","max_connections":7,"max_connections_per_address":3,"max_streams_per_caller":2,"trusted_proxies":["10.1.2.3/32","fd00::/8"]}"#);
        assert_eq!(config(&loaded)["origins"]["serve.max_body"], "toolgate.yaml:1:67");
    }

    #[test]
    fn defaults() {
        let loaded = loaded(&[("toolgate.yaml", "serve: {}\n")], &[]);
        assert!(config(&loaded).get("serve").is_none(), "an empty section is the default");
        let serve = loaded.config.unwrap().serve;
        insta::assert_snapshot!(serde_json::to_string(&serve).unwrap(), @r#"{"listen":"127.0.0.1:7332","max_body":"4MiB","max_connections":2000,"max_connections_per_address":1000,"max_streams_per_caller":256}"#);
    }

    #[test]
    fn reports_mistakes_in_serve() {
        let text =
            "serve: {listen: localhost, hosts: [\"a:80\", \"*.b\"], max_connections: 0, max_connection: 1}\n";
        insta::assert_snapshot!(messages(&loaded(&[("toolgate.yaml", text)], &[])), @"
        error toolgate.yaml:1:17 `localhost` is not an IP address with a port in serve (invalid socket address syntax)
        error toolgate.yaml:1:36 `a:80` is not a host name in serve (a host has letters, digits, `.` and `-`, such as `tools.example.com`, and no port)
        error toolgate.yaml:1:44 `*.b` is not a host name in serve (a host has letters, digits, `.` and `-`, such as `tools.example.com`, and no port)
        error toolgate.yaml:1:69 `0` is not a positive whole number in serve (write a whole number from 1 on)
        error toolgate.yaml:1:72 unknown key `max_connection` in serve (did you mean `max_connections`?)
        ");
    }
}
