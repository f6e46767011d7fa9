//! The two records of a call, begin and end, and their rendering as JSON.
//!
//! Invariant: the members of a line are in the order of `docs/log.md`, absent members are omitted, and every string
//! passes through the redactor: there is no other way into a line.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use toolgate_json::{RawJson, quote};
use toolgate_redact::KnownSecrets;
use toolgate_types::call::Stage;
use toolgate_types::{CallError, ErrorCode, ExecutionState, Secret};

use crate::chain;
use crate::fields::SecretFields;
use crate::redact::{CallRedaction, Redactor, named_secrets};

/// Maximum number of causes of an error that are recorded.
const MAX_CAUSES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny,
    /// No decision was made because the tool does not exist.
    Undecided,
}

impl Decision {
    /// Returns the name used in records.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Undecided => "undecided",
        }
    }
}

/// The begin record of a call, written once it has been decided.
#[derive(Debug, Clone)]
pub struct CallBegin<'a> {
    /// Unique call id.
    pub call: &'a str,
    pub caller: &'a str,
    /// Tool name as the caller requested it.
    pub tool: &'a str,
    pub session: Option<&'a str>,
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

/// Time spent in one pipeline stage.
#[derive(Debug, Clone)]
pub struct StageTime<'a> {
    pub stage: Stage,
    pub micros: u64,
    /// Decision made in the stage, such as a cache miss.
    pub note: Option<&'a str>,
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
    pub stages: &'a [StageTime<'a>],
    /// Result of the tool, including an error that the tool itself reports.
    pub output: Option<&'a RawJson>,
    /// Parts of the output that are secret according to the tool's schema.
    pub secret: Option<&'a SecretFields>,
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
    /// Returns the end of a call whose caller disconnected.
    pub fn abandoned(error: &'a CallError, took: Duration) -> Self {
        let (status, error) = (CallStatus::Abandoned, Some(error.into()));
        Self { status, error, attempts: 0, cached: false, took, stages: &[], output: None, secret: None }
    }
}

/// Members that both records of a call start with, redacted once.
#[derive(Debug, Clone)]
pub(crate) struct CallPrefix {
    text: String,
    /// Values of the secret arguments, to be masked in both records.
    secrets: KnownSecrets,
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
        let mut secrets = named_secrets(arguments);
        if let Some(secret) = begin.secret {
            secrets.extend(secret.secret_values(arguments));
        }
        let secrets = KnownSecrets::new(&secrets);
        let mut text = String::with_capacity(128);
        self.redactor.write(&secrets, &mut text, |line, out| {
            member(r#","call":"#, begin.call, line, out);
            member(r#","caller":"#, begin.caller, line, out);
            member(r#","tool":"#, begin.tool, line, out);
            if let Some(session) = begin.session {
                member(r#","session":"#, session, line, out);
            }
        });
        CallPrefix { text, secrets }
    }

    pub(crate) fn begin(&self, prefix: &CallPrefix, begin: &CallBegin<'_>) -> String {
        let body = RecordBody { name: "arguments", json: begin.arguments, secret: begin.secret };
        self.line(r#""kind":"begin""#, prefix, &prefix.secrets, Some(body), |line, out| {
            member(r#","correlation":"#, begin.correlation, line, out);
            out.push_str(r#","correlation_from_client":"#);
            out.push_str(if begin.correlation_from_client { "true" } else { "false" });
            member(r#","trace":"#, begin.trace, line, out);
            for (name, value) in [(r#","server":"#, begin.server), (r#","definition":"#, begin.definition)] {
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
            if let Some(asked) = begin.asked {
                member(r#","asked":"#, asked, line, out);
            }
        })
    }

    pub(crate) fn end(&self, prefix: &CallPrefix, end: &CallEnd<'_>) -> String {
        let mut secrets = Cow::Borrowed(&prefix.secrets);
        if let (Some(secret), Some(output)) = (end.secret, end.output)
            && !secret.is_empty()
        {
            secrets = prefix.secrets.with(&secret.secret_values(output.as_str())).map_or(secrets, Cow::Owned);
        }
        let body = end.output.map(|json| RecordBody { name: "output", json, secret: end.secret });
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
                chain::write_digits(stage.micros, &mut |digit| out.push(char::from(digit)));
                if let Some(note) = stage.note {
                    out.push(',');
                    line.write_string(note, out);
                }
                out.push(']');
            }
            out.push(']');
        })
    }

    pub(crate) fn event(&self, event: &LogEvent<'_>) -> String {
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
        out
    }

    /// Renders a record of a call: the shared prefix, the members added by `fields`, and the body.
    fn line(
        &self,
        kind: &str,
        prefix: &CallPrefix,
        secrets: &KnownSecrets,
        body: Option<RecordBody<'_>>,
        fields: impl Fn(CallRedaction<'_>, &mut String),
    ) -> String {
        let length = body.as_ref().map_or(0, |body| body.json.bytes().len());
        let mut out = if length > self.max_body { self.take_spare() } else { String::new() };
        out.reserve(TYPICAL_SIZE + length);
        out.push_str(kind);
        out.push_str(&prefix.text);
        let start = self.redactor.write(secrets, &mut out, |line, out| {
            fields(line, out);
            let start = out.len();
            if let Some(RecordBody { name, json, secret }) = &body {
                key(name, out);
                line.json(json.as_str(), secret.unwrap_or(&self.nothing), out);
            }
            start
        });
        match body {
            Some(body) => self.truncate_body(out, start, body.name),
            None => out,
        }
    }

    /// Truncates the body, the last member of a line, to `max_body` bytes and adds length and hash of the rest.
    /// Truncation comes after redaction, because half a secret would not be recognised.
    fn truncate_body(&self, mut line: String, start: usize, name: &str) -> String {
        let json = &line[start + name.len() + KEY..];
        if json.len() <= self.max_body {
            return line;
        }
        let (head, rest) = json.split_at(json.floor_char_boundary(self.max_body));
        // Quoting adds escapes: leave a little more room than most heads need.
        let mut out = String::with_capacity(TYPICAL_SIZE + start + head.len() + head.len() / 16);
        out.push_str(&line[..start]);
        out.push_str(",\"");
        out.push_str(name);
        out.push_str(r#"_cut":{"head":"#);
        quote(head, &mut out);
        number(r#","length":"#, json.len() as u64, &mut out);
        let hash = chain::hex(&Sha256::digest(rest));
        write_constant(r#","sha256":"#, std::str::from_utf8(&hash).unwrap_or_default(), &mut out);
        out.push('}');
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

/// Typical size of a record without its body.
const TYPICAL_SIZE: usize = 512;

/// Arguments or output of a call.
struct RecordBody<'a> {
    name: &'static str,
    json: &'a RawJson,
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

/// Adds a member with one of our own constants, which needs no redaction.
fn write_constant(key: &str, value: &str, out: &mut String) {
    out.push_str(key);
    out.push('"');
    out.push_str(value);
    out.push('"');
}

fn number(key: &str, number: u64, out: &mut String) {
    out.push_str(key);
    chain::write_digits(number, &mut |digit| out.push(char::from(digit)));
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
            renderer.begin(&prefix, &begin),
            r#""kind":"begin","call":"c1","caller":"ann","tool":"github.search","session":"s1","correlation":"r1","correlation_from_client":true,"trace":"t1","server":"github","decision":"allow","rules":["reads"],"asked":"bob","arguments":{"q":"x","token":"***"}"#
        );
        let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, "saw hunter22")
            .with_outcome(ExecutionState::Unknown)
            .with_source(std::io::Error::other("password: abc1"));
        let stages = [
            StageTime { stage: Stage::Resolve, micros: 3, note: None },
            StageTime { stage: Stage::Cache, micros: 4, note: Some("miss") },
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
        };
        assert_eq!(
            renderer.end(&prefix, &end),
            r#""kind":"end","call":"c1","caller":"ann","tool":"github.search","session":"s1","status":"error","error":{"code":"timeout","stage":"invoke","outcome":"unknown","message":"saw ***","cause":"password: ***"},"attempts":2,"cached":false,"micros":7000,"stages":[["resolve",3],["cache",4,"miss"]]"#
        );
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
        };
        let lines = renderer.begin(&prefix, &begin(&arguments, &[])) + &renderer.end(&prefix, &end);
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
        let stages = [StageTime { stage: Stage::Resolve, micros: 3, note: Some(text) }];
        let end = CallEnd {
            status: CallStatus::Error,
            error: Some(error),
            attempts: 1,
            cached: false,
            took: Duration::ZERO,
            stages: &stages,
            output: Some(&arguments),
            secret: None,
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
            let lines = [renderer.begin(&prefix, &begin), renderer.end(&prefix, &end)];
            for line in &lines {
                assert!(!line.contains("swordfish"), "{line}");
            }
            for line in lines.iter().chain(&[renderer.event(&start), renderer.event(&changed)]) {
                for secret in ["hunter22", "sk-abc", "ACME-7"] {
                    assert!(!line.contains(secret), "{secret} is in {line}");
                }
                assert!(serde_json::from_str::<serde_json::Value>(&format!("{{{line}}}")).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn long_body_is_truncated_after_redaction() {
        let arguments = RawJson::from_trusted(r#"["ää","hunter22","b"]"#.to_owned());
        let renderer = renderer(4);
        let prefix = CallPrefix { text: String::new(), secrets: KnownSecrets::default() };
        let body = RecordBody { name: "arguments", json: &arguments, secret: None };
        let out = renderer.line("", &prefix, &KnownSecrets::default(), Some(body), |_, _| {});
        let rest = chain::hex(&Sha256::digest("ä\",\"***\",\"b\"]"));
        let rest = std::str::from_utf8(&rest).unwrap();
        assert_eq!(out, format!(r#","arguments_cut":{{"head":"[\"ä","length":18,"sha256":"{rest}"}}"#));
    }
}
