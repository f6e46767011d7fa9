//! The two records of a call, begin and end, and their rendering as JSON.
//!
//! Invariant: the members of a line are in the order of `docs/reference/records.md`, absent members are omitted, and every string
//! passes through the redactor: there is no other way into a line.

use std::borrow::Cow;
use std::error::Error;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use toolgate_json::{RawJson, escape};
use toolgate_redact::KnownSecrets;
use toolgate_types::call::{OperationKind, Stage};
use toolgate_types::{CallError, Caller, ErrorCode, ExecutionState, Group, Secret, UpstreamIdentity};

use crate::chain::{self, HashFunction};
use crate::fields::SecretFields;
use crate::part_buffer::{MIN_SHARED_BYTES, PartBuffer, SharedPart};
use crate::redact::{CallRedaction, Redactor, UnchangedString, named_secrets};

/// Maximum number of causes of an error that are recorded.
const MAX_CAUSES: usize = 16;
/// Bytes of arguments recorded for a call that was refused. Most arguments fit, so that `policy test` can replay the
/// decision, and a refused call takes little more space than its other members do.
const MAX_REFUSED_BODY: usize = 1 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny,
    /// Denied, because the call needed approval and did not get it.
    NotApproved,
    /// No decision was made because the tool does not exist.
    Undecided,
}

impl Decision {
    /// Returns the name used in records.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny | Self::NotApproved => "deny",
            Self::Undecided => "undecided",
        }
    }
}

/// The identity behind a call, besides the id of its caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallIdentity<'a> {
    /// Person responsible for the caller.
    pub person: Option<&'a str>,
    /// Groups of the caller when the call was decided.
    pub groups: &'a [Arc<Group>],
    /// Name of the credential that authenticated the caller.
    pub credential: Option<&'a str>,
    /// Secrets of the caller, to be masked in the records of this call.
    pub secrets: Option<&'a Arc<KnownSecrets>>,
}

impl<'a> From<&'a Caller> for CallIdentity<'a> {
    fn from(caller: &'a Caller) -> Self {
        Self {
            person: caller.person.as_deref(),
            groups: &caller.groups,
            credential: caller.credential.as_deref(),
            secrets: None,
        }
    }
}

/// The begin record of a call, written once it has been decided.
#[derive(Debug, Clone)]
pub struct CallBegin<'a> {
    /// Unique call id.
    pub call: &'a str,
    pub caller: &'a str,
    pub identity: CallIdentity<'a>,
    pub operation: OperationKind,
    /// Tool name as the caller requested it. For other operations, the URI or the name of the prompt.
    pub tool: &'a str,
    pub session: Option<&'a str>,
    /// End user, as the caller names it.
    pub user: Option<&'a str>,
    /// Version of the calling agent, as the caller names it.
    pub agent_version: Option<&'a str>,
    /// Correlation id that links related calls.
    pub correlation: &'a str,
    /// True if the client supplied the correlation id.
    pub correlation_from_client: bool,
    pub trace: &'a str,
    /// Server that offers the tool.
    pub server: Option<&'a str>,
    /// Hash of the tool definition.
    pub definition: Option<&'a str>,
    pub decision: Decision,
    /// Names of the policy rules that decided.
    pub rules: &'a [String],
    /// Person who approved the call.
    pub asked: Option<&'a str>,
    /// Person that refused to approve the call.
    pub refused_by: Option<&'a str>,
    /// True if untrusted content had reached the session before the decision.
    pub tainted: bool,
    /// True if the tool is deprecated.
    pub deprecated: bool,
    pub arguments: &'a RawJson,
    /// Arguments that are secret according to the tool's schema. Their values are masked in the output too.
    pub secret: Option<&'a SecretFields>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    Success,
    Error,
    /// The caller disconnected before the call ended.
    Abandoned,
}

impl CallStatus {
    /// Returns the name used in records, filters and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Abandoned => "abandoned",
        }
    }
}

/// The error of a failed call.
#[derive(Debug, Clone)]
pub struct CallFailure<'a> {
    pub code: ErrorCode,
    /// Pipeline stage that failed.
    pub stage: Stage,
    /// Tells if the tool had any effect.
    pub outcome: ExecutionState,
    /// Message sent to the caller.
    pub message: &'a str,
    /// Error chain for the log only; not sent to the caller.
    pub cause: Option<String>,
}

impl<'a> From<&'a CallError> for CallFailure<'a> {
    fn from(error: &'a CallError) -> Self {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let causes: Vec<_> = causes.take(MAX_CAUSES).map(ToString::to_string).collect();
        Self {
            code: error.code,
            stage: error.stage,
            outcome: error.outcome,
            message: &error.message,
            cause: (!causes.is_empty()).then(|| causes.join(": ")),
        }
    }
}

/// A completed pipeline stage, and the time spent in it.
#[derive(Debug, Clone)]
pub struct StageTime {
    pub stage: Stage,
    pub took: Duration,
    /// Decision made in the stage, such as a cache miss.
    pub note: Option<Cow<'static, str>>,
}

impl StageTime {
    /// Returns the time in whole microseconds.
    pub fn micros(&self) -> u64 {
        u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX)
    }
}

/// The end record of a call.
#[derive(Debug, Clone)]
pub struct CallEnd<'a> {
    pub status: CallStatus,
    pub error: Option<CallFailure<'a>>,
    /// Number of times the tool was invoked.
    pub attempts: u32,
    /// True if the result came from the cache.
    pub cached: bool,
    /// Time from the request to the result.
    pub took: Duration,
    /// Stages the call passed, in order.
    pub stages: &'a [StageTime],
    /// Result of the tool, including an error that the tool itself reports.
    pub output: Option<&'a RawJson>,
    /// Parts of the output that are secret according to the tool's schema.
    pub secret: Option<&'a SecretFields>,
    /// Identity under which the server was called.
    pub upstream: Option<&'a UpstreamIdentity>,
}

/// A recorded event that does not belong to a call.
#[derive(Debug, Clone, Copy)]
pub enum LogEvent<'a> {
    /// A process opened the log.
    Start {
        version: &'a str,
        /// Hash of the active policy.
        policy: &'a str,
        /// Configuration without secrets; only its hash is recorded.
        config: &'a [u8],
    },
    /// A changed configuration was taken over.
    Reloaded {
        /// Hash of the active policy.
        policy: &'a str,
        /// Configuration without secrets; only its hash is recorded.
        config: &'a [u8],
    },
    /// A changed configuration was rejected.
    ReloadRejected { reason: &'a str },
    /// A server changed the definition of a tool.
    DefinitionChanged {
        server: &'a str,
        /// Tool name on that server.
        tool: &'a str,
        /// Hash of the previous definition.
        was: &'a str,
        /// Hash of the new definition.
        is: &'a str,
        /// Severity of the change.
        class: &'a str,
        /// True if the tool is quarantined because of the change.
        held_back: bool,
    },
}

impl<'a> CallEnd<'a> {
    /// Returns true if the call ended before it was sent, and without a result from the cache.
    pub(crate) fn is_refused(&self) -> bool {
        self.status != CallStatus::Success && self.attempts == 0 && !self.cached
    }

    /// Returns the end of a call whose caller disconnected.
    pub fn abandoned(error: &'a CallError, took: Duration) -> Self {
        let (status, error) = (CallStatus::Abandoned, Some(error.into()));
        let (stages, attempts) = (&[], 0);
        Self {
            status,
            error,
            attempts,
            cached: false,
            took,
            stages,
            output: None,
            secret: None,
            upstream: None,
        }
    }
}

/// Members that both records of a call start with, redacted once.
#[derive(Debug, Clone)]
pub(crate) struct CallPrefix {
    /// The arguments as recorded, if they are plain, and after them the members.
    text: String,
    /// Length of the plain arguments.
    plain: Option<usize>,
    /// Values of the secret arguments and secrets of the caller, to be masked in both records.
    secrets: Arc<KnownSecrets>,
}

/// Most calls have no secrets.
static NO_SECRETS: LazyLock<Arc<KnownSecrets>> = LazyLock::new(Arc::default);

impl CallPrefix {
    fn members(&self) -> &str {
        &self.text[self.plain.unwrap_or_default()..]
    }

    fn plain_arguments(&self) -> Option<&str> {
        self.plain.map(|length| &self.text[..length])
    }

    /// Masks these secrets too in the end record.
    pub(crate) fn add_secrets(&mut self, more: &KnownSecrets) {
        if let Some(all) = self.secrets.union(more) {
            self.secrets = Arc::new(all);
        }
    }
}

/// Renders records as JSON, without sequence number, time and hash.
pub(crate) struct RecordRenderer {
    redactor: Redactor,
    max_body: usize,
    nothing: SecretFields,
    /// Buffer of the last truncated record, reused for the next long one: allocating so much anew is slow.
    spare: Mutex<String>,
}

impl RecordRenderer {
    /// Masks these secrets too from now on.
    pub(crate) fn add_secrets(&self, secrets: &[Secret]) {
        self.redactor.add_secrets(secrets);
    }

    pub(crate) fn new(redactor: Redactor, max_body: usize) -> Self {
        Self { redactor, max_body, nothing: SecretFields::default(), spare: Mutex::default() }
    }

    pub(crate) fn mask(&self, text: &str) -> String {
        self.redactor.mask(text)
    }

    pub(crate) fn prefix(&self, begin: &CallBegin<'_>) -> CallPrefix {
        let arguments = begin.arguments.as_str();
        let mut text = String::with_capacity(TYPICAL_PREFIX_SIZE + arguments.len().min(MIN_SHARED_BYTES));
        let fields = begin.secret.unwrap_or(&self.nothing);
        let is_plain = self.redactor.copy_plain(arguments, fields, self.max_body, &mut text);
        let plain = is_plain.then_some(text.len());
        let mut secrets = if is_plain { Vec::new() } else { named_secrets(arguments) };
        if let Some(secret) = begin.secret {
            secrets.extend(secret.secret_values(arguments));
        }
        // Nothing is copied for most calls: preparing secrets takes time.
        let own = begin.identity.secrets.unwrap_or(&NO_SECRETS);
        let secrets = own.with(&secrets).map_or_else(|| Arc::clone(own), Arc::new);
        self.redactor.write(&secrets, &mut text, |line, out| {
            member(r#","call":"#, begin.call, line, out);
            member(r#","caller":"#, begin.caller, line, out);
            member(r#","tool":"#, begin.tool, line, out);
            // Most operations are tool calls, so their kind is left out.
            if begin.operation != OperationKind::Tool {
                write_constant(r#","operation":"#, begin.operation.label(), out);
            }
            if let Some(session) = begin.session {
                member(r#","session":"#, session, line, out);
            }
        });
        CallPrefix { text, plain, secrets }
    }

    pub(crate) fn begin(&self, prefix: &CallPrefix, begin: &CallBegin<'_>) -> PartBuffer {
        let plain = prefix.plain_arguments();
        let body = RecordBody { name: "arguments", json: begin.arguments, plain, secret: begin.secret };
        self.begin_line(prefix, begin, Some(body))
    }

    /// Renders the begin record of a call that ended before it was sent. Of long arguments, it has only length and hash.
    pub(crate) fn refused(&self, prefix: &CallPrefix, begin: &CallBegin<'_>) -> PartBuffer {
        let arguments = begin.arguments.as_str();
        if arguments.len() <= MAX_REFUSED_BODY {
            return self.begin(prefix, begin);
        }
        let mut line = self.begin_line(prefix, begin, None);
        let mut out = String::with_capacity(TRUNCATION_SIZE);
        write_truncated("arguments", &[], arguments, &mut out);
        line.extend(out.as_bytes());
        line
    }

    fn begin_line(
        &self,
        prefix: &CallPrefix,
        begin: &CallBegin<'_>,
        body: Option<RecordBody<'_>>,
    ) -> PartBuffer {
        self.line(r#""kind":"begin""#, prefix, &prefix.secrets, body, |line, out| {
            member(r#","correlation":"#, begin.correlation, line, out);
            out.push_str(r#","correlation_from_client":"#);
            out.push_str(if begin.correlation_from_client { "true" } else { "false" });
            member(r#","trace":"#, begin.trace, line, out);
            for (name, value) in [
                (r#","user":"#, begin.user),
                (r#","agent_version":"#, begin.agent_version),
                (r#","server":"#, begin.server),
                (r#","definition":"#, begin.definition),
            ] {
                if let Some(value) = value {
                    member(name, value, line, out);
                }
            }
            write_constant(r#","decision":"#, begin.decision.label(), out);
            out.push_str(r#","rules":["#);
            for (index, rule) in begin.rules.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line.write_string(rule, out);
            }
            out.push(']');
            if begin.decision == Decision::NotApproved {
                out.push_str(r#","not_approved":true"#);
            }
            if let Some(asked) = begin.asked {
                member(r#","asked":"#, asked, line, out);
            }
            if begin.tainted {
                out.push_str(r#","tainted":true"#);
            }
            let CallIdentity { person, groups, credential, .. } = begin.identity;
            if let Some(person) = person {
                member(r#","person":"#, person, line, out);
            }
            for (index, group) in groups.iter().enumerate() {
                member(if index == 0 { r#","groups":["# } else { "," }, group.name.as_str(), line, out);
            }
            if !groups.is_empty() {
                out.push(']');
            }
            for (name, value) in [(r#","credential":"#, credential), (r#","refused_by":"#, begin.refused_by)]
            {
                if let Some(value) = value {
                    member(name, value, line, out);
                }
            }
            if begin.deprecated {
                out.push_str(r#","deprecated":true"#);
            }
        })
    }

    pub(crate) fn end(&self, prefix: &CallPrefix, end: &CallEnd<'_>) -> PartBuffer {
        let mut secrets = Cow::Borrowed(&*prefix.secrets);
        if let (Some(secret), Some(output)) = (end.secret, end.output)
            && !secret.is_empty()
        {
            secrets = prefix.secrets.with(&secret.secret_values(output.as_str())).map_or(secrets, Cow::Owned);
        }
        let body =
            end.output.map(|json| RecordBody { name: "output", json, plain: None, secret: end.secret });
        self.line(r#""kind":"end""#, prefix, &secrets, body, |line, out| {
            write_constant(r#","status":"#, end.status.label(), out);
            if let Some(error) = &end.error {
                out.push_str(r#","error":{"code":""#);
                out.push_str(error.code.label());
                out.push('"');
                write_constant(r#","stage":"#, error.stage.label(), out);
                write_constant(r#","outcome":"#, outcome(error.outcome), out);
                member(r#","message":"#, error.message, line, out);
                if let Some(cause) = &error.cause {
                    member(r#","cause":"#, cause, line, out);
                }
                out.push('}');
            }
            number(r#","attempts":"#, u64::from(end.attempts), out);
            out.push_str(if end.cached { r#","cached":true"# } else { r#","cached":false"# });
            number(r#","micros":"#, u64::try_from(end.took.as_micros()).unwrap_or(u64::MAX), out);
            out.push_str(r#","stages":["#);
            for (index, stage) in end.stages.iter().enumerate() {
                out.push_str(if index > 0 { ",[\"" } else { "[\"" });
                out.push_str(stage.stage.label());
                out.push_str("\",");
                out.push_str(chain::decimal(stage.micros(), &mut [0; chain::MAX_DIGITS]));
                if let Some(note) = &stage.note {
                    out.push(',');
                    line.write_string(note, out);
                }
                out.push(']');
            }
            out.push(']');
            if let Some(UpstreamIdentity { credential, account }) = end.upstream {
                member(r#","upstream_credential":"#, credential, line, out);
                if let Some(account) = account {
                    member(r#","upstream_account":"#, account, line, out);
                }
            }
        })
    }

    pub(crate) fn event(&self, event: &LogEvent<'_>) -> PartBuffer {
        let mut out = String::with_capacity(256);
        self.redactor.write(&KnownSecrets::default(), &mut out, |line, out| match *event {
            LogEvent::Start { version, policy, config } => {
                out.push_str(r#""kind":"start""#);
                member(r#","version":"#, version, line, out);
                member(r#","policy":"#, policy, line, out);
                let hash = chain::hex(&Sha256::digest(config));
                write_constant(r#","config":"#, std::str::from_utf8(&hash).unwrap_or_default(), out);
                number(r#","process":"#, u64::from(std::process::id()), out);
            }
            LogEvent::Reloaded { policy, config } => {
                out.push_str(r#""kind":"reloaded""#);
                member(r#","policy":"#, policy, line, out);
                let hash = chain::hex(&Sha256::digest(config));
                write_constant(r#","config":"#, std::str::from_utf8(&hash).unwrap_or_default(), out);
            }
            LogEvent::ReloadRejected { reason } => {
                out.push_str(r#""kind":"reload_rejected""#);
                member(r#","reason":"#, reason, line, out);
            }
            LogEvent::DefinitionChanged { server, tool, was, is, class, held_back } => {
                out.push_str(r#""kind":"definition_changed""#);
                for (name, text) in
                    [("server", server), ("tool", tool), ("was", was), ("is", is), ("class", class)]
                {
                    key(name, out);
                    line.write_string(text, out);
                }
                out.push_str(if held_back { r#","held_back":true"# } else { r#","held_back":false"# });
            }
        });
        out.into()
    }

    /// Renders a record of a call: the shared prefix, the members added by `fields`, and the body.
    fn line(
        &self,
        kind: &str,
        prefix: &CallPrefix,
        secrets: &KnownSecrets,
        body: Option<RecordBody<'_>>,
        fields: impl Fn(CallRedaction<'_>, &mut String),
    ) -> PartBuffer {
        let length = body.as_ref().map_or(0, |body| body.json.bytes().len());
        let mut out = if length > self.max_body { self.take_spare() } else { String::new() };
        // Most of a long body is one string, and that is not copied.
        out.reserve(TYPICAL_SIZE + length.min(2 * MIN_SHARED_BYTES));
        out.push_str(kind);
        out.push_str(prefix.members());
        let (start, cut, unchanged) = self.redactor.write(secrets, &mut out, |line, out| {
            fields(line, out);
            let start = out.len();
            let mut unchanged = Vec::new();
            let cut = body.as_ref().and_then(|RecordBody { name, json, plain, secret }| {
                key(name, out);
                if let Some(plain) = plain.filter(|_| line.is_fast()) {
                    out.push_str(plain);
                    return None;
                }
                let secret = secret.unwrap_or(&self.nothing);
                let value = (json.as_str(), json.long_strings());
                line.json_head(value, secret, self.max_body, Some(&mut unchanged), out)
            });
            (start, cut, unchanged)
        });
        match (body, cut) {
            (Some(body), Some(cut)) => self.truncate_body(out, start, cut, &body, &unchanged).into(),
            (Some(body), None) if !unchanged.is_empty() => {
                let json = body.json;
                let shared = unchanged.into_iter().map(|UnchangedString { after, range }| SharedPart {
                    after,
                    bytes: json.bytes().slice(range),
                });
                PartBuffer::new(out, shared.collect())
            }
            _ => out.into(),
        }
    }

    /// Truncates the body, the last member of a line, and adds its length and hash.
    fn truncate_body(
        &self,
        mut line: String,
        start: usize,
        cut: usize,
        body: &RecordBody<'_>,
        unchanged: &[UnchangedString],
    ) -> String {
        let mut from = start + body.name.len() + KEY;
        let mut left = cut.saturating_sub(from);
        let mut parts = Vec::with_capacity(2 * unchanged.len() + 1);
        for UnchangedString { after, range } in unchanged {
            parts.extend([&line[from..*after], &body.json.as_str()[range.clone()]]);
            from = *after;
        }
        parts.push(&line[from..]);
        for part in &mut parts {
            *part = &part[..part.floor_char_boundary(left)];
            left -= part.len();
        }
        // Quoting adds escapes: leave a little more room than most heads need.
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut out = String::with_capacity(TYPICAL_SIZE + start + length + length / 16);
        out.push_str(&line[..start]);
        write_truncated(body.name, &parts, body.json.as_str(), &mut out);
        line.clear();
        // Free the memory of an unusually large line.
        line.shrink_to(2 * self.max_body);
        *self.spare.lock() = line;
        out
    }

    fn take_spare(&self) -> String {
        std::mem::take(&mut *self.spare.lock())
    }
}

/// Size of the members of a truncated body without its head.
const TRUNCATION_SIZE: usize = 160;
/// Typical size of the members that both records of a call start with.
const TYPICAL_PREFIX_SIZE: usize = 192;
/// Typical size of a record without its body.
const TYPICAL_SIZE: usize = 512;

/// Arguments or output of a call.
struct RecordBody<'a> {
    name: &'static str,
    json: &'a RawJson,
    /// The text to record unless a known secret occurs in it.
    plain: Option<&'a str>,
    secret: Option<&'a SecretFields>,
}

/// Adds a member with a string from outside; `key` is everything before the value.
fn member(key: &str, text: &str, line: CallRedaction<'_>, out: &mut String) {
    out.push_str(key);
    line.write_string(text, out);
}

/// Bytes that [`key`] adds besides the name.
const KEY: usize = 4;

fn key(name: &str, out: &mut String) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
}

/// Adds the redacted head of a body, and length and hash of the body as received.
fn write_truncated(name: &str, head: &[&str], body: &str, out: &mut String) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str(r#"_cut":{"head":""#);
    head.iter().for_each(|part| escape(part, out));
    number(r#"","length":"#, body.len() as u64, out);
    let function = HashFunction::for_length(body.len());
    let hash = function.digest([body.as_bytes()]);
    let name = match function {
        HashFunction::Sha256 => r#","sha256":"#,
        HashFunction::Blake3 => r#","blake3":"#,
    };
    write_constant(name, std::str::from_utf8(&hash).unwrap_or_default(), out);
    out.push('}');
}

/// Adds a member with one of our own constants, which needs no redaction.
fn write_constant(key: &str, value: &str, out: &mut String) {
    out.push_str(key);
    out.push('"');
    out.push_str(value);
    out.push('"');
}

fn number(key: &str, number: u64, out: &mut String) {
    out.push_str(key);
    out.push_str(chain::decimal(number, &mut [0; chain::MAX_DIGITS]));
}

fn outcome(outcome: ExecutionState) -> &'static str {
    match outcome {
        ExecutionState::NotStarted => "not_started",
        ExecutionState::Finished => "finished",
        ExecutionState::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin<'a>(arguments: &'a RawJson, rules: &'a [String]) -> CallBegin<'a> {
        CallBegin {
            operation: Default::default(),
            tainted: false,
            deprecated: true,
            user: Some("carl"),
            agent_version: Some("2.1"),
            call: "c1",
            caller: "ann",
            tool: "github.search",
            session: Some("s1"),
            correlation: "r1",
            correlation_from_client: true,
            trace: "t1",
            server: Some("github"),
            definition: None,
            decision: Decision::Allow,
            rules,
            asked: Some("bob"),
            refused_by: None,
            identity: Default::default(),
            arguments,
            secret: None,
        }
    }

    fn renderer(max_body: usize) -> RecordRenderer {
        RecordRenderer::new(Redactor::new(vec![Secret::new("hunter22")], Vec::new()), max_body)
    }

    #[test]
    fn renders_both_records_of_a_call() {
        let arguments = RawJson::from_trusted(r#"{ "q": "x", "token": "abc" }"#.to_owned());
        let rules = ["reads".to_owned()];
        let begin = begin(&arguments, &rules);
        let renderer = renderer(1000);
        let prefix = renderer.prefix(&begin);
        assert_eq!(
            renderer.begin(&prefix, &begin).to_text(),
            r#""kind":"begin","call":"c1","caller":"ann","tool":"github.search","session":"s1","correlation":"r1","correlation_from_client":true,"trace":"t1","user":"carl","agent_version":"2.1","server":"github","decision":"allow","rules":["reads"],"asked":"bob","deprecated":true,"arguments":{"q":"x","token":"***"}"#
        );
        let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, "saw hunter22")
            .with_outcome(ExecutionState::Unknown)
            .with_source(std::io::Error::other("password: abc1"));
        let stages = [
            StageTime { stage: Stage::Resolve, took: Duration::from_micros(3), note: None },
            StageTime { stage: Stage::Cache, took: Duration::from_micros(4), note: Some("miss".into()) },
        ];
        let end = CallEnd {
            status: CallStatus::Error,
            error: Some((&error).into()),
            attempts: 2,
            cached: false,
            took: Duration::from_millis(7),
            stages: &stages,
            output: None,
            secret: None,
            upstream: None,
        };
        assert_eq!(
            renderer.end(&prefix, &end).to_text(),
            r#""kind":"end","call":"c1","caller":"ann","tool":"github.search","session":"s1","status":"error","error":{"code":"timeout","stage":"invoke","outcome":"unknown","message":"saw ***","cause":"password: ***"},"attempts":2,"cached":false,"micros":7000,"stages":[["resolve",3],["cache",4,"miss"]]"#
        );
    }

    #[test]
    fn records_say_for_whom_a_call_was_made() {
        let arguments = RawJson::from_trusted("{}".to_owned());
        let group = |name: &str| Arc::new(Group { name: name.parse().unwrap(), permissions: Vec::new() });
        let ann = Caller {
            groups: vec![group("ops"), group("dev")],
            person: Some("ann@example.com".into()),
            credential: Some("key/laptop".into()),
            ..Caller::new("ann".parse().unwrap(), Vec::new())
        };
        let begin = CallBegin {
            identity: (&ann).into(),
            decision: Decision::NotApproved,
            asked: None,
            refused_by: Some("bob"),
            ..begin(&arguments, &[])
        };
        let renderer = renderer(1000);
        let prefix = renderer.prefix(&begin);
        let line = renderer.begin(&prefix, &begin).to_text();
        let members = r#""rules":[],"not_approved":true,"person":"ann@example.com","groups":["ops","dev"],"credential":"key/laptop","refused_by":"bob","#;
        assert!(line.contains(members), "{line}");
        let upstream =
            UpstreamIdentity { credential: "ann at github".into(), account: Some("ann-gh".into()) };
        let error = CallError::new(ErrorCode::Cancelled, Stage::Invoke, "gone");
        let end = CallEnd { upstream: Some(&upstream), ..CallEnd::abandoned(&error, Duration::ZERO) };
        let line = renderer.end(&prefix, &end).to_text();
        let tail = r#""stages":[],"upstream_credential":"ann at github","upstream_account":"ann-gh""#;
        assert!(line.ends_with(tail), "{line}");
    }

    /// A tool may echo a secret argument in its result and its error, as it is or encoded.
    #[test]
    fn secret_arguments_are_masked_in_the_whole_record() {
        let arguments = RawJson::from_trusted(
            r#"{"password":"correct horse","note":"correct horse, Y29ycmVjdCBob3JzZQ=="}"#.to_owned(),
        );
        let output = RawJson::from_trusted(r#"{"text":"got correct%20horse","n":1}"#.to_owned());
        let renderer = RecordRenderer::new(Redactor::new(Vec::new(), Vec::new()), 1000);
        let prefix = renderer.prefix(&begin(&arguments, &[]));
        let error = CallFailure {
            code: ErrorCode::Timeout,
            stage: Stage::Invoke,
            outcome: ExecutionState::Unknown,
            message: "no user with 636f727265637420686f727365",
            cause: Some("correct horse".to_owned()),
        };
        let end = CallEnd {
            status: CallStatus::Error,
            error: Some(error),
            attempts: 1,
            cached: false,
            took: Duration::ZERO,
            stages: &[],
            output: Some(&output),
            secret: None,
            upstream: None,
        };
        let lines = renderer.begin(&prefix, &begin(&arguments, &[])).to_text()
            + &renderer.end(&prefix, &end).to_text();
        for shown in ["correct", "horse", "Y29y", "636f"] {
            assert!(!lines.contains(shown), "{lines}");
        }
        assert!(lines.contains(r#""text":"got ***""#), "{lines}");
    }

    /// Puts a secret of every kind into every field, so a field that is not redacted fails the test.
    #[test]
    fn no_field_shows_a_secret() {
        let text = "hunter22 sk-abcdefghijklmnop1234 ACME-7 swordfish";
        let bodies = format!(r#"{{"pin":"swordfish","text":"{text}","{text}":["{text}"]}}"#);
        let (arguments, rules) = (RawJson::from_trusted(bodies), [text.to_owned()]);
        let fields =
            SecretFields::from_schema(&serde_json::json!({ "properties": { "pin": { "x-secret": true } } }));
        let begin = CallBegin {
            operation: Default::default(),
            tainted: false,
            deprecated: false,
            user: Some(text),
            agent_version: Some(text),
            call: text,
            caller: text,
            tool: text,
            session: Some(text),
            correlation: text,
            correlation_from_client: false,
            trace: text,
            server: Some(text),
            definition: Some(text),
            decision: Decision::Deny,
            rules: &rules,
            asked: Some(text),
            refused_by: Some(text),
            identity: CallIdentity { person: Some(text), groups: &[], credential: Some(text), secrets: None },
            arguments: &arguments,
            secret: Some(&fields),
        };
        let error = CallFailure {
            code: ErrorCode::Timeout,
            stage: Stage::Invoke,
            outcome: ExecutionState::Unknown,
            message: text,
            cause: Some(text.to_owned()),
        };
        let took = Duration::from_micros(3);
        let stages = [StageTime { stage: Stage::Resolve, took, note: Some(text.into()) }];
        let upstream = UpstreamIdentity { credential: text.into(), account: Some(text.into()) };
        let end = CallEnd {
            status: CallStatus::Error,
            error: Some(error),
            attempts: 1,
            cached: false,
            took: Duration::ZERO,
            stages: &stages,
            output: Some(&arguments),
            secret: None,
            upstream: Some(&upstream),
        };
        for max_body in [20, 1000] {
            let patterns = vec!["ACME-[0-9]".parse().unwrap()];
            let renderer =
                RecordRenderer::new(Redactor::new(vec![Secret::new("hunter22")], patterns), max_body);
            let prefix = renderer.prefix(&begin);
            let start = LogEvent::Start { version: text, policy: text, config: text.as_bytes() };
            let changed = LogEvent::DefinitionChanged {
                server: text,
                tool: text,
                was: text,
                is: text,
                class: text,
                held_back: true,
            };
            let reloaded = LogEvent::Reloaded { policy: text, config: text.as_bytes() };
            let rejected = LogEvent::ReloadRejected { reason: text };
            let events = [start, changed, reloaded, rejected].map(|event| renderer.event(&event).to_text());
            let lines = [renderer.begin(&prefix, &begin).to_text(), renderer.end(&prefix, &end).to_text()];
            for line in &lines {
                assert!(!line.contains("swordfish"), "{line}");
            }
            for line in lines.iter().chain(&events) {
                for secret in ["hunter22", "sk-abc", "ACME-7"] {
                    assert!(!line.contains(secret), "{secret} is in {line}");
                }
                assert!(serde_json::from_str::<serde_json::Value>(&format!("{{{line}}}")).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn refused_call_records_little_of_its_arguments() {
        let renderer = renderer(1 << 20);
        let line = |size: usize| {
            let arguments = RawJson::from_trusted(format!(r#"{{"text":"{}"}}"#, "x".repeat(size)));
            let begin = begin(&arguments, &[]);
            (renderer.refused(&renderer.prefix(&begin), &begin).to_text(), arguments)
        };
        let (short, arguments) = line(1_000);
        assert!(short.ends_with(&format!(r#","arguments":{}"#, arguments.as_str())));
        let (long, arguments) = line(1 << 20);
        let hash = chain::hex(blake3::hash(arguments.as_str().as_bytes()).as_bytes());
        let (hash, length) = (std::str::from_utf8(&hash).unwrap(), arguments.as_str().len());
        let cut = format!(r#","arguments_cut":{{"head":"","length":{length},"blake3":"{hash}"}}"#);
        assert!(long.ends_with(&cut) && long.len() < 1_000, "{long}");
    }

    /// Returns the head of a truncated body, or the whole body.
    fn head_of(renderer: &RecordRenderer, json: &str) -> String {
        head_of_json(renderer, RawJson::from_trusted(json.to_owned()))
    }

    fn head_of_json(renderer: &RecordRenderer, json: RawJson) -> String {
        let prefix = CallPrefix { text: String::new(), plain: None, secrets: Arc::default() };
        let body = RecordBody { name: "output", json: &json, plain: None, secret: None };
        let line = renderer.line("", &prefix, &KnownSecrets::default(), Some(body), |_, _| {}).to_text();
        let record: serde_json::Value = serde_json::from_str(&format!("{{{}}}", &line[1..])).unwrap();
        let Some(cut) = record.get("output_cut") else { return line[r#","output":"#.len()..].to_owned() };
        assert_eq!(cut["length"], json.as_str().len());
        let function = HashFunction::for_length(json.as_str().len());
        let hash = function.digest([json.as_str().as_bytes()]);
        let name = if function == HashFunction::Sha256 { "sha256" } else { "blake3" };
        assert_eq!(cut[name], std::str::from_utf8(&hash).unwrap());
        cut["head"].as_str().unwrap().to_owned()
    }

    #[test]
    fn long_body_is_truncated() {
        let json = r#"["ää","hunter22", "b"]"#;
        assert_eq!(head_of(&renderer(4), json), "[\"ä");
        assert_eq!(head_of(&renderer(11), json), r#"["ää","**"#);
        assert_eq!(head_of(&renderer(17), json), r#"["ää","***","b""#);
        // The limit is that of the redacted and compacted body.
        assert_eq!(head_of(&renderer(18), json), r#"["ää","***","b"]"#);
        let long = format!(r#"["{}"]"#, "x".repeat(1 << 20));
        for max_body in [0, 1, 2, 3, 1000, 20_000] {
            assert_eq!(head_of(&renderer(max_body), &long), long[..max_body]);
        }
    }

    /// A secret may be anywhere around the place where a body is truncated, and be followed by a long text or none.
    #[test]
    fn no_part_of_a_secret_survives_truncation() {
        let escaped: String = "hunter22".bytes().map(|byte| format!("\\u{byte:04x}")).collect();
        let key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC".repeat(3);
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----");
        // The text of a JSON string, and the secret in it.
        let cases = [
            ("hunter22".to_owned(), "hunter22"),
            (escaped.clone(), &escaped),
            ("%68unter22".to_owned(), "unter22"),
            ("aHVudGVyMjI".to_owned(), "aHVudGVyMjI"),
            ("sk-abcdefghijklmnop1234".to_owned(), "abcdefghijklmnop1234"),
            ("AKIAABCDEFGHIJKLMNOP".to_owned(), "ABCDEFGHIJKLMNOP"),
            ("password=kingfisher7".to_owned(), "kingfisher7"),
            ("Authorization: Bearer abcdefgh12345678".to_owned(), "abcdefgh12345678"),
            ("https://ann:kingfisher@x.test/".to_owned(), "kingfisher"),
            (pem.replace('\n', "\\n"), &key),
        ];
        let long = " and more words".repeat(600);
        for (text, secret) in &cases {
            for after in ["", " ", &long] {
                // A mask before the place makes the result shorter than the text.
                for before in ["", "password: correct-horse-battery-staple-1 \\u00e4\\ud83d\\ude00 "] {
                    let json = format!(r#"{{"a":"{before}x {text}{after}"}}"#);
                    let start = json.find(text.as_str()).unwrap().saturating_sub(60);
                    for max_body in start..start + text.len() + 66 {
                        check_head(&json, max_body, secret);
                    }
                }
            }
            // The secret straddles the end of the part that is searched.
            for length in (8100..8400).step_by(7) {
                let key = "a1".repeat(fastrand::usize(6..100));
                let json = format!(r#"["sk-{key} {} {text}{long}"]"#, "x".repeat(length));
                check_head(&json, 100, secret);
            }
        }
    }

    /// Checks that a truncated body is the start of the redacted one, and contains no part of a secret.
    fn check_head(json: &str, max_body: usize, secret: &str) {
        let head = head_of(&renderer(max_body), json);
        let whole = renderer(usize::MAX).redactor.json(json);
        assert!(whole.starts_with(&head) && head.len() <= max_body, "{max_body}: {head}");
        let mut parts = secret.as_bytes().windows(4);
        assert!(
            !parts.any(|part| memchr::memmem::find(head.as_bytes(), part).is_some()),
            "{max_body}: {head}"
        );
    }

    /// Patterns of the user can be of any length.
    #[test]
    fn long_match_of_a_pattern_is_masked_before_truncation() {
        let patterns = vec!["<key>.*</key>".parse().unwrap()];
        let renderer = RecordRenderer::new(Redactor::new(Vec::new(), patterns), 50);
        let json = format!(r#"["a <key>{}</key> b"]"#, "x".repeat(100_000));
        assert_eq!(head_of(&renderer, &json), r#"["a *** b"]"#);
    }

    /// A long string without secrets is not copied, and the record is the same as one that was.
    #[test]
    fn long_strings_are_shared() {
        let long = "word \\n".repeat(MIN_SHARED_BYTES);
        let render = |renderer: &RecordRenderer, json: &str| {
            let json = RawJson::from_trusted(json.to_owned());
            let prefix = CallPrefix { text: String::new(), plain: None, secrets: Arc::default() };
            let body = RecordBody { name: "output", json: &json, plain: None, secret: None };
            let line = renderer.line("", &prefix, &KnownSecrets::default(), Some(body), |_, _| {});
            let within = |part: &[u8]| json.bytes().as_ptr_range().contains(&part.as_ptr());
            let shared: usize = line.parts().filter(|part| within(part)).map(<[u8]>::len).sum();
            (line.to_text(), shared)
        };
        let check = |json: &str, shared: usize| {
            let renderer = renderer(1 << 20);
            let expected = format!(r#","output":{}"#, renderer.redactor.json(json));
            assert_eq!(render(&renderer, json), (expected, shared));
        };
        let quoted = long.len() + 2;
        check(&format!(r#"{{"a":[ "{long}" , 1, "{long}"],"password":"x"}}"#), 2 * quoted);
        // Strings with secrets, or under the name of one, are copied and masked.
        check(&format!(r#"{{"a":"{long}","b":"{long} hunter22"}}"#), 0);
        check(&format!(r#"{{"a":"{long}","b":"{long} sk-abcdefghijklmnop1234"}}"#), quoted);
        check(&format!(r#"{{"a":"{long}","password":"{long}"}}"#), quoted);
        check(&format!(r#"{{"a":"{long} \u00e4"}}"#), 0);
        // Masks make the value longer than the limit, although it was within it.
        let json = format!(r#"["{long}"{}]"#, r#",{"pin":1}"#.repeat(10_000));
        let renderer = renderer(json.len());
        assert!(render(&renderer, &json).0.contains("_cut"));
        assert_eq!(head_of(&renderer, &json), renderer.redactor.json(&json)[..json.len()]);
    }

    /// The ends of long strings come from the scan, or are searched for: the record is the same.
    #[test]
    fn scanned_strings_are_redacted_like_others() {
        const PARTS: [&str; 10] = [
            "some words ",
            "\\n",
            r#"\""#,
            r"\\",
            r"\u00e4",
            r"\ud83d\ude00",
            "ä",
            "sk-abcdefghijklmnop1234 ",
            "password: kingfisher7, ",
            "hunter22 ",
        ];
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..400 {
            // Escapes that need decoding are rare in half of the texts, secrets in all of them.
            let kinds = if random.bool() { 4 } else { 7 };
            let parts = random.usize(100..4_000);
            let mut text = String::new();
            for _ in 0..parts {
                let rare = random.usize(..500) == 0;
                text.push_str(PARTS[if rare { random.usize(..PARTS.len()) } else { random.usize(..kinds) }]);
            }
            let json = format!(r#"{{"a":"{text}","b":["{text}"]}}"#);
            let max_body = random.usize(..json.len() + 100);
            let renderer = renderer(max_body);
            let scanned = RawJson::new(json.clone().into(), Default::default()).unwrap();
            let (found, known) = (head_of(&renderer, &json), head_of_json(&renderer, scanned));
            // The place of the cut may differ by an escape if a secret was masked.
            assert!(found.starts_with(&known) || known.starts_with(&found), "{max_body}: {json}");
            assert!(found.len().abs_diff(known.len()) <= 16 && known.len() <= max_body, "{max_body}: {json}");
            assert!(!known.contains("hunter22") && !known.contains("klmnop"), "{max_body}: {json}");
        }
    }
}
