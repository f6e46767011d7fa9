//! Resolves entries of MCP servers.

use std::collections::BTreeMap;

use toolgate_redact::looks_secret;
use toolgate_types::secret::MASK;
use toolgate_types::server::{
    FallbackCommand, OutputEncoding, RemoteTransport, StartupMode, StdioTransport, ToolFilter, ToolMode,
    Transport, UpstreamTls,
};
use toolgate_types::{ConfigString, HumanDuration, Secret, ServerName, ServerSpec, ToolLimits};
use url::Url;

use crate::context::{Context, FileOwner};
use crate::file::{
    EncodingName, ModeName, OutputValidationName, ServerEntry, ServerFile, StartupName, TransportName,
};
use crate::keys::{NamedMap, Spanned};
use crate::problem::Problem;
use crate::resolve::oauth::resolve_oauth;
use crate::resolve::tls::resolve_tls;
use crate::resolve::{ConfigBuilder, into_value, into_values};
use crate::source::Span;

/// Defaults that depend on the file, so that each file keeps the defaults of the program it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerDefaults {
    startup: StartupMode,
    mode_required: bool,
    /// `None`: the default, which is longer for programs that may download a package first.
    timeout: Option<HumanDuration>,
    request_timeout: HumanDuration,
}

impl ServerDefaults {
    /// `mcp.json`.
    pub(crate) const REGISTRY: Self = Self {
        startup: StartupMode::Required,
        mode_required: false,
        timeout: None,
        request_timeout: HumanDuration::from_secs(60),
    };
    /// `toolbox.mcps`.
    pub(crate) const TOOLBOX: Self = Self { mode_required: true, ..Self::REGISTRY };
    /// `type: mcp` in `agent.yaml`.
    pub(crate) const AGENT: Self = Self { startup: StartupMode::Lazy, ..Self::REGISTRY };
    /// goose continues without an extension that fails.
    pub(crate) const GOOSE: Self = Self {
        startup: StartupMode::Optional,
        request_timeout: HumanDuration::from_secs(300),
        ..Self::REGISTRY
    };
    /// Codex also continues without a server, unless it is `required`.
    pub(crate) const CODEX: Self = Self { timeout: Some(HumanDuration::from_secs(30)), ..Self::GOOSE };
}

impl ConfigBuilder {
    /// Adds a server, or reports its problems.
    pub(crate) fn add_server(
        &mut self,
        entry: ServerEntry,
        name: Spanned<ServerName>,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) {
        cx.labels.push(format!("MCP server `{}`", name.value));
        self.build_server(entry, name, rules, cx);
        cx.labels.pop();
    }

    fn build_server(
        &mut self,
        entry: ServerEntry,
        Spanned { value: name, span, .. }: Spanned<ServerName>,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) {
        let ServerEntry { mut file, env_file } = entry;
        if file.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            return cx.push(Problem::note(span, format!("MCP server `{name}` is not enabled")));
        }
        // `command` and `args` derived from `server` have its location as their origin.
        if let Some(package) = &file.server {
            let keys = ["command", "args"].map(|key| (key, package.span));
            self.record_origins(&format!("servers.{name}"), keys.to_vec());
        }
        self.record_origins(&format!("servers.{name}"), file.value_spans());
        let mode = self.resolve_mode(&mut file, &name, span, rules, cx);
        let Some(transport) = resolve_transport(&mut file, env_file, span, cx) else { return };
        let downloads = matches!(&transport, Transport::Stdio(stdio) if stdio.may_download());
        let Some(mode) = mode else { return };
        let strict_output = is_strict_output(file.output_validation.as_ref(), &mode, cx);
        let spec = ServerSpec {
            description: into_value(file.description),
            transport,
            startup: file.startup.map_or(rules.startup, |at| match at.value {
                StartupName::Required => StartupMode::Required,
                StartupName::Optional => StartupMode::Optional,
                StartupName::Lazy => StartupMode::Lazy,
            }),
            mode,
            tools: ToolFilter {
                allow: into_values(file.tool_allowlist),
                deny: into_values(file.tool_denylist).unwrap_or_default(),
            },
            trusted: file.trusted.is_some_and(|at| at.value),
            approved: file.approved.is_none_or(|at| at.value),
            strict_output,
            load_tools: file.load_tools.is_none_or(|at| at.value),
            load_prompts: file.load_prompts.is_none_or(|at| at.value),
            prompts: into_values(file.prompts),
            timeout: into_value(file.timeout)
                .or(rules.timeout)
                .unwrap_or(HumanDuration::from_secs(if downloads { 60 } else { 10 })),
            request_timeout: into_value(file.request_timeout).unwrap_or(rules.request_timeout),
            config: file.config.map(|at| Secret::new(at.value.0.to_json().get())),
            name,
        };
        self.servers.push((spec, span));
    }

    fn resolve_mode(
        &mut self,
        file: &mut ServerFile,
        name: &ServerName,
        span: Span,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) -> Option<ToolMode> {
        let defaults = into_value(file.default_tool_config.take());
        if let Some(defaults) = &defaults {
            self.record_origins(&format!("servers.{name}.default_tool_config"), defaults.value_spans());
        }
        let limits = defaults.map(|file| ToolLimits {
            max_instances: into_value(file.max_instances),
            timeout: into_value(file.timeout),
            parallel_capable: into_value(file.parallel_capable),
        });
        match (file.mode.as_ref().map(|at| at.value), limits) {
            (Some(ModeName::Strict), _) => Some(ToolMode::Strict),
            (Some(ModeName::Dynamic), Some(default_tool_config)) => {
                Some(ToolMode::Dynamic { default_tool_config })
            }
            // Present but invalid: the problem is already reported.
            (Some(ModeName::Dynamic), None) if file.present_keys.contains(&"default_tool_config") => None,
            (Some(ModeName::Dynamic), None) => {
                let place = file.mode.as_ref().map_or(span, |at| at.span);
                let message = format!(
                    "MCP server '{name}' is configured with mode='dynamic' but missing required field \
                     'default_tool_config'"
                );
                cx.error(place, message, "add `default_tool_config: { max_instances: 10, timeout: 30s }`");
                None
            }
            // Also present but invalid.
            (None, _) if file.present_keys.contains(&"mode") => None,
            (None, _) if rules.mode_required => {
                let message = format!("missing key `mode` in MCP server `{name}`");
                let hint = "write `mode: strict`, or `mode: dynamic` with `default_tool_config`";
                cx.error(span, message, hint);
                None
            }
            (None, limits) => Some(ToolMode::Dynamic { default_tool_config: limits.unwrap_or_default() }),
        }
    }
}

/// Returns true if results that do not match their schema are rejected. With `mode: strict`, tools must keep to the
/// schemas they were configured with.
fn is_strict_output(
    written: Option<&Spanned<OutputValidationName>>,
    mode: &ToolMode,
    cx: &mut Context<'_>,
) -> bool {
    let strict = matches!(mode, ToolMode::Strict);
    match written {
        Some(at) if at.value == OutputValidationName::Warn && strict => {
            let message =
                format!("`output_validation: warn` does nothing with `mode: strict`{}", cx.location_suffix());
            cx.push(Problem::warning(at.span, message).hint("remove it, or use `mode: dynamic`"));
            true
        }
        Some(at) => strict || at.value == OutputValidationName::Strict,
        None => strict,
    }
}

fn resolve_transport(
    file: &mut ServerFile,
    env_file: std::collections::HashMap<String, crate::context::FileVariable>,
    span: Span,
    cx: &mut Context<'_>,
) -> Option<Transport> {
    let program = file.command.is_some() || file.server.is_some();
    let named = file.transport.as_ref().map(|at| at.value);
    let kind = match named {
        Some(kind) => kind,
        None if program => TransportName::Stdio,
        None => match file.url.as_ref().map(|url| url.value.expose()) {
            Some(url) if url.starts_with("ws:") || url.starts_with("wss:") => TransportName::Websocket,
            Some(_) => TransportName::Http,
            None if has_invalid_key(file, &["command", "server", "url", "transport"]) => return None,
            None => {
                let message = format!("nothing to connect to{}", cx.location_suffix());
                cx.error(span, message, "give it a `command`, a `server` package or a `url`");
                return None;
            }
        },
    };
    if kind == TransportName::Stdio {
        return resolve_stdio(file, env_file, span, cx).map(Transport::Stdio);
    }
    let remote = resolve_remote(file, kind, span, cx)?;
    Some(match kind {
        TransportName::Sse => Transport::Sse(remote),
        TransportName::Websocket => Transport::Websocket(remote),
        _ => Transport::Http(remote),
    })
}

fn resolve_stdio(
    file: &mut ServerFile,
    env_file: std::collections::HashMap<String, crate::context::FileVariable>,
    span: Span,
    cx: &mut Context<'_>,
) -> Option<StdioTransport> {
    report_unsupported_keys(
        "a `stdio` server",
        &[
            ("url", file.url.as_ref().map(|at| at.key_span)),
            ("headers", file.headers.as_ref().map(|at| at.key_span)),
            ("oauth", file.oauth.as_ref().map(|at| at.key_span)),
            ("tls", file.tls.as_ref().map(|at| at.key_span)),
            ("sse_read_timeout", file.sse_read_timeout.as_ref().map(|at| at.key_span)),
            ("terminate_on_close", file.terminate_on_close.as_ref().map(|at| at.key_span)),
        ],
        cx,
    );
    let mut args = into_values(file.args.take()).unwrap_or_default();
    hide_flag_values(&mut args);
    let mut fallback = None;
    let command = match (file.command.take(), file.server.take()) {
        (Some(command), None) => command.value,
        (None, Some(package)) if package.value.expose().starts_with('@') => {
            args.splice(0..0, [ConfigString::plain("-y"), package.value]);
            ConfigString::plain("npx")
        }
        (None, Some(package)) => {
            args.insert(0, package.value);
            // `uvx` or `pipx` is chosen at startup, so that one file works on machines with either.
            let args = std::iter::once(ConfigString::plain("run")).chain(args.iter().cloned()).collect();
            fallback = Some(FallbackCommand { command: ConfigString::plain("pipx"), args });
            ConfigString::plain("uvx")
        }
        (Some(_), Some(package)) => {
            let message = format!("`command` and `server` do not go together{}", cx.location_suffix());
            cx.error(package.key_span, message, "keep one of the two");
            return None;
        }
        (None, None) if has_invalid_key(file, &["command", "server"]) => return None,
        (None, None) => {
            let message = format!("missing key `command`{}", cx.location_suffix());
            cx.error(span, message, "a `stdio` server needs a `command`, or a `server` package");
            return None;
        }
    };
    if command.expose().trim().is_empty() && !cx.awaits_input(&command) {
        cx.error(span, format!("`command` is empty{}", cx.location_suffix()), "name the program to start");
        return None;
    }
    if std::iter::once(&command).chain(&args).any(|word| word.expose().contains('\0')) {
        let message = format!("the command line holds a NUL character{}", cx.location_suffix());
        cx.error(span, message, "programs cannot receive NUL characters");
    }
    let mut env: BTreeMap<String, Option<ConfigString>> = env_file
        .into_iter()
        .map(|(name, variable)| (name, Some(ConfigString::hidden(variable.value))))
        .collect();
    env.extend(resolve_env(file.env.take(), cx));
    let cwd = file.cwd.take().map_or_else(|| cx.project.clone(), |at| cx.project.join(at.value));
    let encoding = match file.encoding.take().map(|at| at.value) {
        Some(EncodingName::Latin1) => OutputEncoding::Latin1,
        Some(EncodingName::Utf8) | None => OutputEncoding::Utf8,
    };
    Some(StdioTransport { command, args, env, cwd, encoding, fallback })
}

/// Resolves the environment variables of a program.
pub(super) fn resolve_env(
    file: Option<Spanned<NamedMap<Option<ConfigString>>>>,
    cx: &mut Context<'_>,
) -> BTreeMap<String, Option<ConfigString>> {
    let mut env = BTreeMap::new();
    for (name, at) in file.into_iter().flat_map(|at| at.value.0) {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("`{name}` cannot name a variable{}", cx.location_suffix());
            cx.error(at.key_span, message, "names have no `=` in them");
            continue;
        }
        if at.value.as_ref().is_some_and(|text| text.expose().contains('\0')) {
            let message = format!("the variable `{name}` holds a NUL character{}", cx.location_suffix());
            cx.error(at.span, message, "programs cannot receive NUL characters");
            continue;
        }
        env.insert(name, at.value.map(|text| ConfigString::hidden(text.expose())));
    }
    env
}

fn resolve_remote(
    file: &mut ServerFile,
    kind: TransportName,
    span: Span,
    cx: &mut Context<'_>,
) -> Option<RemoteTransport> {
    let (label, schemes): (&str, &[&str]) = match kind {
        TransportName::Sse => ("an `sse` server", &["http", "https"]),
        TransportName::Websocket => ("a `websocket` server", &["ws", "wss"]),
        TransportName::Http | TransportName::Stdio => ("an `http` server", &["http", "https"]),
    };
    let mut unfit = vec![
        ("command", file.command.as_ref().map(|at| at.key_span)),
        ("server", file.server.as_ref().map(|at| at.key_span)),
        ("args", file.args.as_ref().map(|at| at.key_span)),
        ("env", file.env.as_ref().map(|at| at.key_span)),
        ("env_file", file.env_file.as_ref().map(|at| at.key_span)),
        ("cwd", file.cwd.as_ref().map(|at| at.key_span)),
        ("encoding", file.encoding.as_ref().map(|at| at.key_span)),
        ("config", file.config.as_ref().map(|at| at.key_span)),
    ];
    if kind == TransportName::Websocket {
        unfit.push(("oauth", file.oauth.as_ref().map(|at| at.key_span)));
        unfit.push(("sse_read_timeout", file.sse_read_timeout.as_ref().map(|at| at.key_span)));
    }
    if kind != TransportName::Http {
        unfit.push(("terminate_on_close", file.terminate_on_close.as_ref().map(|at| at.key_span)));
    }
    report_unsupported_keys(label, &unfit, cx);
    let Some(url) = file.url.take() else {
        if has_invalid_key(file, &["url"]) {
            return None;
        }
        cx.error(
            span,
            format!("missing key `url`{}", cx.location_suffix()),
            format!("{label} needs a `url`"),
        );
        return None;
    };
    if !cx.awaits_input(&url.value) {
        check_url(&url, schemes, cx)?;
    }
    let headers = resolve_headers(file.headers.take(), cx);
    let oauth = match file.oauth.take() {
        Some(written) => Some(resolve_oauth(written, cx)?),
        None => None,
    };
    let tls = match file.tls.take() {
        Some(written) => resolve_tls(written, &url.value, cx)?,
        None => UpstreamTls::default(),
    };
    Some(RemoteTransport {
        url: url.value,
        headers,
        tls,
        sse_read_timeout: file.sse_read_timeout.take().map_or(HumanDuration::from_secs(300), |at| at.value),
        oauth,
        terminate_on_close: file.terminate_on_close.take().is_none_or(|at| at.value),
    })
}

/// Returns true if one of the keys is present. Its value is then invalid and already reported, not missing.
fn has_invalid_key(file: &ServerFile, keys: &[&str]) -> bool {
    file.present_keys.iter().any(|given| keys.contains(given))
}

/// Returns the valid headers and reports the others.
pub(super) fn resolve_headers(
    written: Option<Spanned<NamedMap<ConfigString>>>,
    cx: &mut Context<'_>,
) -> BTreeMap<String, ConfigString> {
    let mut headers = BTreeMap::new();
    for (name, at) in written.into_iter().flat_map(|at| at.value.0) {
        let good_name = !name.is_empty() && name.bytes().all(is_header_byte);
        if !good_name {
            let message = format!("`{name}` is not the name of a header{}", cx.location_suffix());
            cx.error(at.key_span, message, "names are letters, digits and `-`");
            continue;
        }
        if at.value.expose().chars().any(|c| c.is_control() && c != '\t') {
            let message = format!("the header `{name}` holds a control character{}", cx.location_suffix());
            cx.error(at.span, message, "a header is one line of text");
            continue;
        }
        headers.insert(name, ConfigString::hidden(at.value.expose()));
    }
    headers
}

pub(super) fn check_url(url: &Spanned<ConfigString>, schemes: &[&str], cx: &mut Context<'_>) -> Option<()> {
    let shown = url.value.redacted();
    let example = format!("write a complete URL, such as `{}://localhost:8080/mcp`", schemes[0]);
    match Url::parse(url.value.expose()) {
        Ok(parsed) if !schemes.contains(&parsed.scheme()) => {
            let message = format!(
                "`{shown}` does not start with `{}://`{}",
                schemes.join("://` or `"),
                cx.location_suffix()
            );
            cx.error(url.span, message, example);
            None
        }
        // The parser takes `https:///mcp` for the host `mcp`, which is never intended.
        Ok(parsed)
            if parsed.host_str().is_some_and(|host| !host.is_empty())
                && !url.value.expose().contains(":///") =>
        {
            Some(())
        }
        Ok(_) => {
            cx.error(url.span, format!("`{shown}` names no host{}", cx.location_suffix()), example);
            None
        }
        Err(error) => {
            let message = format!("`{shown}` is not a URL{}: {error}", cx.location_suffix());
            cx.error(url.span, message, example);
            None
        }
    }
}

/// Reports keys that the transport does not support: errors in our files, warnings in those of other programs.
fn report_unsupported_keys(label: &str, keys: &[(&str, Option<Span>)], cx: &mut Context<'_>) {
    for (key, span) in keys {
        let Some(span) = *span else { continue };
        let message = format!("`{key}` does not fit {label}{}", cx.location_suffix());
        cx.push(match cx.file_owner {
            FileOwner::Toolgate => Problem::error(span, message).hint("remove it, or change `transport`"),
            FileOwner::OtherProgram => Problem::warning(span, message).hint("it is not used"),
        });
    }
}

/// Masks the argument after a secret flag, such as `abc` in `--token abc`.
fn hide_flag_values(args: &mut [ConfigString]) {
    for at in 1..args.len() {
        let flag = args[at - 1].expose();
        let written = args[at].redacted().contains("${");
        if flag.starts_with('-')
            && !flag.contains('=')
            && looks_secret(flag.trim_start_matches('-'))
            && !written
        {
            args[at] = ConfigString::new(args[at].expose(), MASK);
        }
    }
}

fn is_header_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
