//! Entries of MCP servers become servers.

use std::collections::BTreeMap;

use toolgate_types::redact::looks_secret;
use toolgate_types::secret::MASK;
use toolgate_types::server::{
    Encoding, Fallback, Remote, Startup, Stdio, Tls, ToolFilter, ToolMode, Transport,
};
use toolgate_types::{HumanDuration, Secret, ServerName, ServerSpec, Text, ToolLimits};
use url::Url;

use crate::context::{Context, Whose};
use crate::file::{
    EncodingName, ModeName, OutputValidationName, ServerEntry, ServerFile, StartupName, TransportName,
};
use crate::keys::{At, Named};
use crate::problem::Problem;
use crate::settle::oauth::oauth;
use crate::settle::tls::tls;
use crate::settle::{Draft, value, values};
use crate::source::Span;

/// What differs between the files that servers stand in: each keeps the defaults of its program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerRules {
    startup: Startup,
    mode_required: bool,
    /// `None`: longer for a program that may have to be downloaded.
    timeout: Option<HumanDuration>,
    request_timeout: HumanDuration,
}

impl ServerRules {
    /// `mcp.json`.
    pub(crate) const REGISTRY: Self = Self {
        startup: Startup::Required,
        mode_required: false,
        timeout: None,
        request_timeout: HumanDuration::from_secs(60),
    };
    /// `toolbox.mcps`.
    pub(crate) const TOOLBOX: Self = Self { mode_required: true, ..Self::REGISTRY };
    /// `type: mcp` in `agent.yaml`.
    pub(crate) const AGENT: Self = Self { startup: Startup::Lazy, ..Self::REGISTRY };
    /// goose goes on without an extension that fails.
    pub(crate) const GOOSE: Self =
        Self { startup: Startup::Optional, request_timeout: HumanDuration::from_secs(300), ..Self::REGISTRY };
    /// So does Codex, where a server is not `required`.
    pub(crate) const CODEX: Self = Self { timeout: Some(HumanDuration::from_secs(30)), ..Self::GOOSE };
}

impl Draft {
    /// Takes one server over, or tells what is wrong with it.
    pub(crate) fn server(
        &mut self,
        entry: ServerEntry,
        name: At<ServerName>,
        rules: ServerRules,
        cx: &mut Context<'_>,
    ) {
        cx.labels.push(format!("MCP server `{}`", name.value));
        self.server_within(entry, name, rules, cx);
        cx.labels.pop();
    }

    fn server_within(
        &mut self,
        entry: ServerEntry,
        At { value: name, span, .. }: At<ServerName>,
        rules: ServerRules,
        cx: &mut Context<'_>,
    ) {
        let ServerEntry { mut file, env_file } = entry;
        if file.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            return cx.push(Problem::note(span, format!("MCP server `{name}` is not enabled")));
        }
        // What `server` stands for comes from there.
        if let Some(package) = &file.server {
            let keys = ["command", "args"].map(|key| (key, package.span));
            self.origins(&format!("servers.{name}"), keys.to_vec());
        }
        self.origins(&format!("servers.{name}"), file.written());
        let mode = self.mode(&mut file, &name, span, rules, cx);
        let Some(transport) = transport(&mut file, env_file, span, cx) else { return };
        let downloads = matches!(&transport, Transport::Stdio(stdio) if stdio.downloads());
        let Some(mode) = mode else { return };
        let strict_output = strict_output(file.output_validation.as_ref(), &mode, cx);
        let spec = ServerSpec {
            description: value(file.description),
            transport,
            startup: file.startup.map_or(rules.startup, |at| match at.value {
                StartupName::Required => Startup::Required,
                StartupName::Optional => Startup::Optional,
                StartupName::Lazy => Startup::Lazy,
            }),
            mode,
            tools: ToolFilter {
                allow: values(file.tool_allowlist),
                deny: values(file.tool_denylist).unwrap_or_default(),
            },
            trusted: file.trusted.is_some_and(|at| at.value),
            approved: file.approved.is_none_or(|at| at.value),
            strict_output,
            load_tools: file.load_tools.is_none_or(|at| at.value),
            load_prompts: file.load_prompts.is_none_or(|at| at.value),
            prompts: values(file.prompts),
            timeout: value(file.timeout)
                .or(rules.timeout)
                .unwrap_or(HumanDuration::from_secs(if downloads { 60 } else { 10 })),
            request_timeout: value(file.request_timeout).unwrap_or(rules.request_timeout),
            config: file.config.map(|at| Secret::new(at.value.0.to_json().get())),
            name,
        };
        self.servers.push((spec, span));
    }

    fn mode(
        &mut self,
        file: &mut ServerFile,
        name: &ServerName,
        span: Span,
        rules: ServerRules,
        cx: &mut Context<'_>,
    ) -> Option<ToolMode> {
        let defaults = value(file.default_tool_config.take());
        if let Some(defaults) = &defaults {
            self.origins(&format!("servers.{name}.default_tool_config"), defaults.written());
        }
        let limits = defaults.map(|file| ToolLimits {
            max_instances: value(file.max_instances),
            timeout: value(file.timeout),
            parallel_capable: value(file.parallel_capable),
        });
        match (file.mode.as_ref().map(|at| at.value), limits) {
            (Some(ModeName::Strict), _) => Some(ToolMode::Strict),
            (Some(ModeName::Dynamic), Some(default_tool_config)) => {
                Some(ToolMode::Dynamic { default_tool_config })
            }
            // A default that was written and is wrong was told already; it reads as absent here.
            (Some(ModeName::Dynamic), None) if file.given.contains(&"default_tool_config") => None,
            (Some(ModeName::Dynamic), None) => {
                let place = file.mode.as_ref().map_or(span, |at| at.span);
                let message = format!(
                    "MCP server '{name}' is configured with mode='dynamic' but missing required field \
                     'default_tool_config'"
                );
                cx.error(place, message, "add `default_tool_config: { max_instances: 10, timeout: 30s }`");
                None
            }
            // So was a mode.
            (None, _) if file.given.contains(&"mode") => None,
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

/// Whether a result that does not fit is refused. A server of which only known tools are taken is held to
/// what they promised.
fn strict_output(written: Option<&At<OutputValidationName>>, mode: &ToolMode, cx: &mut Context<'_>) -> bool {
    let strict = matches!(mode, ToolMode::Strict);
    match written {
        Some(at) if at.value == OutputValidationName::Warn && strict => {
            let message =
                format!("`output_validation: warn` does nothing with `mode: strict`{}", cx.whereabouts());
            cx.push(Problem::warning(at.span, message).hint("remove it, or use `mode: dynamic`"));
            true
        }
        Some(at) => strict || at.value == OutputValidationName::Strict,
        None => strict,
    }
}

fn transport(
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
            None if told(file, &["command", "server", "url", "transport"]) => return None,
            None => {
                let message = format!("nothing to connect to{}", cx.whereabouts());
                cx.error(span, message, "give it a `command`, a `server` package or a `url`");
                return None;
            }
        },
    };
    if kind == TransportName::Stdio {
        return stdio(file, env_file, span, cx).map(Transport::Stdio);
    }
    let remote = remote(file, kind, span, cx)?;
    Some(match kind {
        TransportName::Sse => Transport::Sse(remote),
        TransportName::Websocket => Transport::Websocket(remote),
        _ => Transport::Http(remote),
    })
}

fn stdio(
    file: &mut ServerFile,
    env_file: std::collections::HashMap<String, crate::context::FileVariable>,
    span: Span,
    cx: &mut Context<'_>,
) -> Option<Stdio> {
    misfits(
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
    let mut args = values(file.args.take()).unwrap_or_default();
    hide_flag_values(&mut args);
    let mut fallback = None;
    let command = match (file.command.take(), file.server.take()) {
        (Some(command), None) => command.value,
        (None, Some(package)) if package.value.expose().starts_with('@') => {
            args.splice(0..0, [Text::plain("-y"), package.value]);
            Text::plain("npx")
        }
        (None, Some(package)) => {
            args.insert(0, package.value);
            // Which of the two is there is seen when it is started: the same file is good on both machines.
            let args = std::iter::once(Text::plain("run")).chain(args.iter().cloned()).collect();
            fallback = Some(Fallback { command: Text::plain("pipx"), args });
            Text::plain("uvx")
        }
        (Some(_), Some(package)) => {
            let message = format!("`command` and `server` do not go together{}", cx.whereabouts());
            cx.error(package.key_span, message, "keep one of the two");
            return None;
        }
        (None, None) if told(file, &["command", "server"]) => return None,
        (None, None) => {
            let message = format!("missing key `command`{}", cx.whereabouts());
            cx.error(span, message, "a `stdio` server needs a `command`, or a `server` package");
            return None;
        }
    };
    if command.expose().trim().is_empty() && !cx.waits(&command) {
        cx.error(span, format!("`command` is empty{}", cx.whereabouts()), "name the program to start");
        return None;
    }
    if std::iter::once(&command).chain(&args).any(|word| word.expose().contains('\0')) {
        let message = format!("the command line holds a NUL character{}", cx.whereabouts());
        cx.error(span, message, "no program can be given one");
    }
    let mut env: BTreeMap<String, Option<Text>> =
        env_file.into_iter().map(|(name, variable)| (name, Some(Text::hidden(variable.value)))).collect();
    env.extend(environment(file.env.take(), cx));
    let cwd = file.cwd.take().map_or_else(|| cx.project.clone(), |at| cx.project.join(at.value));
    let encoding = match file.encoding.take().map(|at| at.value) {
        Some(EncodingName::Latin1) => Encoding::Latin1,
        Some(EncodingName::Utf8) | None => Encoding::Utf8,
    };
    Some(Stdio { command, args, env, cwd, encoding, fallback })
}

/// Variables for a program.
pub(super) fn environment(
    file: Option<At<Named<Option<Text>>>>,
    cx: &mut Context<'_>,
) -> BTreeMap<String, Option<Text>> {
    let mut env = BTreeMap::new();
    for (name, at) in file.into_iter().flat_map(|at| at.value.0) {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("`{name}` cannot name a variable{}", cx.whereabouts());
            cx.error(at.key_span, message, "names have no `=` in them");
            continue;
        }
        if at.value.as_ref().is_some_and(|text| text.expose().contains('\0')) {
            let message = format!("the variable `{name}` holds a NUL character{}", cx.whereabouts());
            cx.error(at.span, message, "no program can be given one");
            continue;
        }
        env.insert(name, at.value.map(|text| Text::hidden(text.expose())));
    }
    env
}

fn remote(file: &mut ServerFile, kind: TransportName, span: Span, cx: &mut Context<'_>) -> Option<Remote> {
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
    misfits(label, &unfit, cx);
    let Some(url) = file.url.take() else {
        if told(file, &["url"]) {
            return None;
        }
        cx.error(span, format!("missing key `url`{}", cx.whereabouts()), format!("{label} needs a `url`"));
        return None;
    };
    if !cx.waits(&url.value) {
        check_url(&url, schemes, cx)?;
    }
    let headers = headers(file.headers.take(), cx);
    let oauth = match file.oauth.take() {
        Some(written) => Some(oauth(written, cx)?),
        None => None,
    };
    let tls = match file.tls.take() {
        Some(written) => tls(written, &url.value, cx)?,
        None => Tls::default(),
    };
    Some(Remote {
        url: url.value,
        headers,
        tls,
        sse_read_timeout: file.sse_read_timeout.take().map_or(HumanDuration::from_secs(300), |at| at.value),
        oauth,
        terminate_on_close: file.terminate_on_close.take().is_none_or(|at| at.value),
    })
}

/// Whether one of these keys was written and is wrong, which was told: it is not missing.
fn told(file: &ServerFile, keys: &[&str]) -> bool {
    file.given.iter().any(|given| keys.contains(given))
}

/// Headers that can be sent; what cannot is told.
pub(super) fn headers(written: Option<At<Named<Text>>>, cx: &mut Context<'_>) -> BTreeMap<String, Text> {
    let mut headers = BTreeMap::new();
    for (name, at) in written.into_iter().flat_map(|at| at.value.0) {
        let good_name = !name.is_empty() && name.bytes().all(is_header_byte);
        if !good_name {
            let message = format!("`{name}` is not the name of a header{}", cx.whereabouts());
            cx.error(at.key_span, message, "names are letters, digits and `-`");
            continue;
        }
        if at.value.expose().chars().any(|c| c.is_control() && c != '\t') {
            let message = format!("the header `{name}` holds a control character{}", cx.whereabouts());
            cx.error(at.span, message, "a header is one line of text");
            continue;
        }
        headers.insert(name, Text::hidden(at.value.expose()));
    }
    headers
}

pub(super) fn check_url(url: &At<Text>, schemes: &[&str], cx: &mut Context<'_>) -> Option<()> {
    let shown = url.value.shown();
    let example = format!("write a whole address, such as `{}://localhost:8080/mcp`", schemes[0]);
    match Url::parse(url.value.expose()) {
        Ok(parsed) if !schemes.contains(&parsed.scheme()) => {
            let message = format!(
                "`{shown}` does not start with `{}://`{}",
                schemes.join("://` or `"),
                cx.whereabouts()
            );
            cx.error(url.span, message, example);
            None
        }
        // The parser takes `https:///mcp` for the host `mcp`, which nobody means.
        Ok(parsed)
            if parsed.host_str().is_some_and(|host| !host.is_empty())
                && !url.value.expose().contains(":///") =>
        {
            Some(())
        }
        Ok(_) => {
            cx.error(url.span, format!("`{shown}` names no host{}", cx.whereabouts()), example);
            None
        }
        Err(error) => {
            let message = format!("`{shown}` is not a URL{}: {error}", cx.whereabouts());
            cx.error(url.span, message, example);
            None
        }
    }
}

/// Keys that the server's transport cannot use: an error in our files, a warning in others'.
fn misfits(label: &str, keys: &[(&str, Option<Span>)], cx: &mut Context<'_>) {
    for (key, span) in keys {
        let Some(span) = *span else { continue };
        let message = format!("`{key}` does not fit {label}{}", cx.whereabouts());
        cx.push(match cx.whose {
            Whose::Ours => Problem::error(span, message).hint("remove it, or change `transport`"),
            Whose::Others => Problem::warning(span, message).hint("it is not used"),
        });
    }
}

/// In `--token abc` it is the second word that must not be shown.
fn hide_flag_values(args: &mut [Text]) {
    for at in 1..args.len() {
        let flag = args[at - 1].expose();
        let written = args[at].shown().contains("${");
        if flag.starts_with('-')
            && !flag.contains('=')
            && looks_secret(flag.trim_start_matches('-'))
            && !written
        {
            args[at] = Text::new(args[at].expose(), MASK);
        }
    }
}

fn is_header_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
