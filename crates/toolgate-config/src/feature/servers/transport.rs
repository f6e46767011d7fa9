//! The transport of a server: a child process or a URL.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use encoding_rs::Encoding;
use toolgate_redact::looks_secret;
use toolgate_types::secret::MASK;
use toolgate_types::server::{
    FallbackCommand, OutputEncoding, RemoteTransport, StdioTransport, Transport, UpstreamTls,
};
use toolgate_types::{ConfigString, HumanDuration};

use super::ServerFile;
use super::oauth::resolve_oauth;
use super::tls::resolve_tls;
use crate::context::{Context, FileOwner, FileVariable};
use crate::feature::checks::{check_url, resolve_env, resolve_headers};
use crate::keys::{choice, into_values, read_by_parsing};
use crate::problem::Problem;
use crate::source::Span;

choice! {
    /// Transport of an MCP server.
    enum TransportName as "a transport" {
        /// A child process.
        Stdio = "stdio",
        /// HTTP with server-sent events, of the first protocol revision (deprecated).
        Sse = "sse",
        /// A WebSocket.
        Websocket = "websocket" | "ws",
        /// Streamable HTTP.
        Http = "http" | "streamable_http" | "streamable-http" | "streamableHttp",
    }
}

/// Encoding of a child process's output, by any of its names in the Encoding Standard, or by that of Python.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodingName(OutputEncoding);

/// The encoding is not known.
#[derive(Debug, thiserror::Error)]
#[error("use a name of the Encoding Standard, such as `utf-8`, `windows-1252`, `shift_jis` or `gb18030`")]
pub(crate) struct UnknownEncoding;

impl FromStr for EncodingName {
    type Err = UnknownEncoding;

    fn from_str(text: &str) -> Result<Self, UnknownEncoding> {
        let known = |label: &str| Encoding::for_label_no_replacement(label.as_bytes());
        // Python writes `latin-1`, `utf_8` and `cp932`.
        let python = || match text.to_ascii_lowercase().as_str() {
            "latin-1" | "latin_1" => Some(encoding_rs::WINDOWS_1252),
            "cp932" => Some(encoding_rs::SHIFT_JIS),
            "cp936" => Some(encoding_rs::GBK),
            "cp949" => Some(encoding_rs::EUC_KR),
            "cp950" => Some(encoding_rs::BIG5),
            other => known(&other.replace('_', "-")),
        };
        let encoding = known(text).or_else(python).ok_or(UnknownEncoding)?;
        Ok(Self(if encoding == encoding_rs::UTF_8 {
            OutputEncoding::Utf8
        } else {
            OutputEncoding::Named(encoding.name())
        }))
    }
}

read_by_parsing! {
    EncodingName: "an encoding", { "type": "string", "examples": ["utf-8", "windows-1252", "shift_jis"] };
}

pub(super) fn resolve_transport(
    file: &mut ServerFile,
    env_file: HashMap<String, FileVariable>,
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
    env_file: HashMap<String, FileVariable>,
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
            ("allow_networks", file.allow_networks.as_ref().map(|at| at.key_span)),
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
    let encoding = file.encoding.take().map_or(OutputEncoding::Utf8, |at| at.value.0);
    Some(StdioTransport { command, args, env, cwd, encoding, fallback })
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
        ("placement", file.placement.as_ref().map(|at| at.key_span)),
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
        allow_networks: into_values(file.allow_networks.take()),
        terminate_on_close: file.terminate_on_close.take().is_none_or(|at| at.value),
        may_be_sse: kind == TransportName::Http && file.transport.is_none(),
    })
}

/// Returns true if one of the keys is present. Its value is then invalid and already reported, not missing.
fn has_invalid_key(file: &ServerFile, keys: &[&str]) -> bool {
    file.present_keys.iter().any(|given| keys.contains(given))
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
