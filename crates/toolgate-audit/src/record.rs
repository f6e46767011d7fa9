//! What is written down of a call: how it began and how it ended.
//!
//! Invariant: the members of a line stand in the order of `docs/log.md`, absent ones are left out, and every
//! text in it went through the redactor: there is no other way into a body.

use std::borrow::Cow;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use toolgate_types::call::Stage;
use toolgate_types::json::{Raw, quote};
use toolgate_types::{CallError, ErrorCode, Outcome, Secret};

use crate::chain;
use crate::fields::SecretFields;
use crate::redact::{Redaction, Redactor};

/// How many causes of an error are written down.
const MOST_CAUSES: usize = 16;

/// How a call was decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may go on.
    Allow,
    /// It may not.
    Deny,
    /// It did not get so far: there is no such tool.
    Undecided,
}

impl Decision {
    /// Its name in a line.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Undecided => "undecided",
        }
    }
}

/// A call that was decided on.
#[derive(Debug, Clone)]
pub struct Begin<'a> {
    /// What tells the call from every other.
    pub call: &'a str,
    /// Who calls.
    pub caller: &'a str,
    /// The tool, by the name that was asked for.
    pub tool: &'a str,
    /// The session it is part of.
    pub session: Option<&'a str>,
    /// What links it with other calls.
    pub correlation: &'a str,
    /// Whether the client made up the correlation id.
    pub correlation_from_client: bool,
    /// The trace it is part of.
    pub trace: &'a str,
    /// The server that has the tool.
    pub server: Option<&'a str>,
    /// What tells this definition of the tool from any other.
    pub definition: Option<&'a str>,
    /// Whether it may go on.
    pub decision: Decision,
    /// The rules that decided, by their names.
    pub rules: &'a [String],
    /// Who was asked and said yes.
    pub asked: Option<&'a str>,
    /// The arguments.
    pub arguments: &'a Raw,
    /// Which of them are secret, as the tool's schema says; nor are they shown in its result.
    pub secret: Option<&'a SecretFields>,
}

/// How a call ended, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With a result.
    Success,
    /// With an error.
    Error,
    /// Nobody waited for its end.
    Abandoned,
}

impl Status {
    /// Its name in lines, filters and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Abandoned => "abandoned",
        }
    }
}

/// Why a call came to nothing.
#[derive(Debug, Clone)]
pub struct Failure<'a> {
    /// In one word.
    pub code: ErrorCode,
    /// Where on the road.
    pub stage: Stage,
    /// Whether the tool did something.
    pub outcome: Outcome,
    /// What the caller was told.
    pub message: &'a str,
    /// What the caller was not told.
    pub cause: Option<String>,
}

impl<'a> From<&'a CallError> for Failure<'a> {
    fn from(error: &'a CallError) -> Self {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let causes: Vec<_> = causes.take(MOST_CAUSES).map(ToString::to_string).collect();
        Self {
            code: error.code,
            stage: error.stage,
            outcome: error.outcome,
            message: &error.message,
            cause: (!causes.is_empty()).then(|| causes.join(": ")),
        }
    }
}

/// A stage that was passed.
#[derive(Debug, Clone)]
pub struct StageTime<'a> {
    /// The stage.
    pub stage: Stage,
    /// How long it took.
    pub micros: u64,
    /// What was decided there.
    pub note: Option<&'a str>,
}

/// A call that ended.
#[derive(Debug, Clone)]
pub struct End<'a> {
    /// In one word.
    pub status: Status,
    /// Why it came to nothing.
    pub error: Option<Failure<'a>>,
    /// How often the tool was tried.
    pub attempts: u32,
    /// Whether the result was known already.
    pub cached: bool,
    /// From the request to the result.
    pub took: Duration,
    /// The stages it passed, in order.
    pub stages: &'a [StageTime<'a>],
    /// What the tool gave, a tool's own error included.
    pub output: Option<&'a Raw>,
    /// Which parts of that are secret, as the tool's schema says.
    pub secret: Option<&'a SecretFields>,
}

/// Something that happened beside the calls.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A process began to write.
    Start {
        /// Its version.
        version: &'a str,
        /// What tells its policy from any other.
        policy: &'a str,
        /// Its configuration, without secrets; the hash of it is written down.
        config: &'a [u8],
    },
    /// A server describes a tool in another way than it did.
    DefinitionChanged {
        /// The server.
        server: &'a str,
        /// The tool, by its name there.
        tool: &'a str,
        /// What told its definition from any other.
        was: &'a str,
        /// What does now.
        is: &'a str,
        /// How bad the change is.
        class: &'a str,
        /// Whether the tool is held back for it.
        held_back: bool,
    },
}

impl<'a> End<'a> {
    /// A call whose caller left.
    pub fn abandoned(error: &'a CallError, took: Duration) -> Self {
        let (status, error) = (Status::Abandoned, Some(error.into()));
        Self { status, error, attempts: 0, cached: false, took, stages: &[], output: None, secret: None }
    }
}

/// What both lines of a call begin with, redacted once.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    text: String,
    /// What of the call's arguments is secret.
    secrets: Vec<Secret>,
}

/// Makes the bodies of lines.
pub(crate) struct Renderer {
    redactor: Redactor,
    max_body: usize,
    nothing: SecretFields,
    /// The room of the last line that was cut, for the next long one: the system takes its time to give so much anew.
    spare: Mutex<String>,
}

impl Renderer {
    /// Hides these as well, from now on.
    pub(crate) fn learn(&self, secrets: &[Secret]) {
        self.redactor.learn(secrets);
    }

    pub(crate) fn new(redactor: Redactor, max_body: usize) -> Self {
        Self { redactor, max_body, nothing: SecretFields::default(), spare: Mutex::default() }
    }

    pub(crate) fn masked(&self, text: &str) -> String {
        self.redactor.masked(text)
    }

    pub(crate) fn ids(&self, begin: &Begin<'_>) -> Ids {
        let secrets = begin.secret.map(|secret| secret.texts(begin.arguments.get())).unwrap_or_default();
        let mut text = String::with_capacity(128);
        self.redactor.write(&secrets, &mut text, |line, out| {
            member(r#","call":"#, begin.call, line, out);
            member(r#","caller":"#, begin.caller, line, out);
            member(r#","tool":"#, begin.tool, line, out);
            if let Some(session) = begin.session {
                member(r#","session":"#, session, line, out);
            }
        });
        Ids { text, secrets }
    }

    pub(crate) fn begin(&self, ids: &Ids, begin: &Begin<'_>) -> String {
        let body = Body { name: "arguments", json: begin.arguments, secret: begin.secret };
        self.line(r#""kind":"begin""#, ids, &ids.secrets, Some(body), |line, out| {
            member(r#","correlation":"#, begin.correlation, line, out);
            out.push_str(r#","correlation_from_client":"#);
            out.push_str(if begin.correlation_from_client { "true" } else { "false" });
            member(r#","trace":"#, begin.trace, line, out);
            for (name, value) in [(r#","server":"#, begin.server), (r#","definition":"#, begin.definition)] {
                if let Some(value) = value {
                    member(name, value, line, out);
                }
            }
            word(r#","decision":"#, begin.decision.label(), out);
            out.push_str(r#","rules":["#);
            for (index, rule) in begin.rules.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line.text(rule, out);
            }
            out.push(']');
            if let Some(asked) = begin.asked {
                member(r#","asked":"#, asked, line, out);
            }
        })
    }

    pub(crate) fn end(&self, ids: &Ids, end: &End<'_>) -> String {
        let mut secrets = Cow::Borrowed(&ids.secrets[..]);
        if let (Some(secret), Some(output)) = (end.secret, end.output)
            && !secret.is_empty()
        {
            secrets.to_mut().extend(secret.texts(output.get()));
        }
        let body = end.output.map(|json| Body { name: "output", json, secret: end.secret });
        self.line(r#""kind":"end""#, ids, &secrets, body, |line, out| {
            word(r#","status":"#, end.status.label(), out);
            if let Some(error) = &end.error {
                out.push_str(r#","error":{"code":""#);
                out.push_str(error.code.label());
                out.push('"');
                word(r#","stage":"#, error.stage.label(), out);
                word(r#","outcome":"#, outcome(error.outcome), out);
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
                chain::digits(stage.micros, &mut |digit| out.push(char::from(digit)));
                if let Some(note) = stage.note {
                    out.push(',');
                    line.text(note, out);
                }
                out.push(']');
            }
            out.push(']');
        })
    }

    /// Something that happened beside the calls.
    pub(crate) fn event(&self, event: &Event<'_>) -> String {
        let mut out = String::with_capacity(256);
        self.redactor.write(&[], &mut out, |line, out| match *event {
            Event::Start { version, policy, config } => {
                out.push_str(r#""kind":"start""#);
                member(r#","version":"#, version, line, out);
                member(r#","policy":"#, policy, line, out);
                let hash = chain::hex(&Sha256::digest(config));
                word(r#","config":"#, std::str::from_utf8(&hash).unwrap_or_default(), out);
                number(r#","process":"#, u64::from(std::process::id()), out);
            }
            Event::DefinitionChanged { server, tool, was, is, class, held_back } => {
                out.push_str(r#""kind":"definition_changed""#);
                for (name, text) in
                    [("server", server), ("tool", tool), ("was", was), ("is", is), ("class", class)]
                {
                    key(name, out);
                    line.text(text, out);
                }
                out.push_str(if held_back { r#","held_back":true"# } else { r#","held_back":false"# });
            }
        });
        out
    }

    /// A line of a call: what it begins with, the members that `fields` adds, and a body.
    fn line(
        &self,
        kind: &str,
        ids: &Ids,
        secrets: &[Secret],
        body: Option<Body<'_>>,
        fields: impl Fn(Redaction<'_>, &mut String),
    ) -> String {
        let length = body.as_ref().map_or(0, |body| body.json.bytes().len());
        let mut out = if length > self.max_body { self.take_spare() } else { String::new() };
        out.reserve(SHORT + length);
        out.push_str(kind);
        out.push_str(&ids.text);
        let start = self.redactor.write(secrets, &mut out, |line, out| {
            fields(line, out);
            let start = out.len();
            if let Some(Body { name, json, secret }) = &body {
                key(name, out);
                line.json(json.get(), secret.unwrap_or(&self.nothing), out);
            }
            start
        });
        match body {
            Some(body) => self.bounded(out, start, body.name),
            None => out,
        }
    }

    /// A line whose last member is a body: all of it, or its head and what tells the rest from any other. It is cut
    /// after it was redacted: half of a secret would not be recognised.
    fn bounded(&self, mut line: String, start: usize, name: &str) -> String {
        let json = &line[start + name.len() + KEY..];
        if json.len() <= self.max_body {
            return line;
        }
        let (head, rest) = json.split_at(json.floor_char_boundary(self.max_body));
        // A little more than most heads take as a text.
        let mut out = String::with_capacity(SHORT + start + head.len() + head.len() / 16);
        out.push_str(&line[..start]);
        out.push_str(",\"");
        out.push_str(name);
        out.push_str(r#"_cut":{"head":"#);
        quote(head, &mut out);
        number(r#","length":"#, json.len() as u64, &mut out);
        let hash = chain::hex(&Sha256::digest(rest));
        word(r#","sha256":"#, std::str::from_utf8(&hash).unwrap_or_default(), &mut out);
        out.push('}');
        line.clear();
        // One large line should not hold its memory for ever.
        line.shrink_to(2 * self.max_body);
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = line;
        out
    }

    fn take_spare(&self) -> String {
        std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the members of a line take beside a body, as a rule.
const SHORT: usize = 512;

/// What a call was given, or gave.
struct Body<'a> {
    name: &'static str,
    json: &'a Raw,
    secret: Option<&'a SecretFields>,
}

/// A member with a text from outside; `key` is all that stands before it.
fn member(key: &str, text: &str, line: Redaction<'_>, out: &mut String) {
    out.push_str(key);
    line.text(text, out);
}

/// What [`key`] adds beside the name.
const KEY: usize = 4;

fn key(name: &str, out: &mut String) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
}

/// A member with a word of our own.
fn word(key: &str, word: &str, out: &mut String) {
    out.push_str(key);
    out.push('"');
    out.push_str(word);
    out.push('"');
}

fn number(key: &str, number: u64, out: &mut String) {
    out.push_str(key);
    chain::digits(number, &mut |digit| out.push(char::from(digit)));
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotStarted => "not_started",
        Outcome::Finished => "finished",
        Outcome::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin<'a>(arguments: &'a Raw, rules: &'a [String]) -> Begin<'a> {
        Begin {
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

    fn renderer(max_body: usize) -> Renderer {
        Renderer::new(Redactor::new(vec![Secret::new("hunter22")], Vec::new()), max_body)
    }

    #[test]
    fn a_call_in_two_bodies() {
        let arguments = Raw::trusted(r#"{ "q": "x", "token": "abc" }"#.to_owned());
        let rules = ["reads".to_owned()];
        let begin = begin(&arguments, &rules);
        let renderer = renderer(1000);
        let ids = renderer.ids(&begin);
        assert_eq!(
            renderer.begin(&ids, &begin),
            r#""kind":"begin","call":"c1","caller":"ann","tool":"github.search","session":"s1","correlation":"r1","correlation_from_client":true,"trace":"t1","server":"github","decision":"allow","rules":["reads"],"asked":"bob","arguments":{"q":"x","token":"***"}"#
        );
        let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, "saw hunter22")
            .with_outcome(Outcome::Unknown)
            .because(std::io::Error::other("password: abc"));
        let stages = [
            StageTime { stage: Stage::Resolve, micros: 3, note: None },
            StageTime { stage: Stage::Cache, micros: 4, note: Some("miss") },
        ];
        let end = End {
            status: Status::Error,
            error: Some((&error).into()),
            attempts: 2,
            cached: false,
            took: Duration::from_millis(7),
            stages: &stages,
            output: None,
            secret: None,
        };
        assert_eq!(
            renderer.end(&ids, &end),
            r#""kind":"end","call":"c1","caller":"ann","tool":"github.search","session":"s1","status":"error","error":{"code":"timeout","stage":"invoke","outcome":"unknown","message":"saw ***","cause":"password: ***"},"attempts":2,"cached":false,"micros":7000,"stages":[["resolve",3],["cache",4,"miss"]]"#
        );
    }

    /// A field that is forgotten shows here: each of them holds a secret of every kind.
    #[test]
    fn no_field_shows_a_secret() {
        let text = "hunter22 sk-abcdefghijklmnop1234 ACME-7 swordfish";
        let bodies = format!(r#"{{"pin":"swordfish","text":"{text}","{text}":["{text}"]}}"#);
        let (arguments, rules) = (Raw::trusted(bodies), [text.to_owned()]);
        let fields = SecretFields::of(&serde_json::json!({ "properties": { "pin": { "x-secret": true } } }));
        let begin = Begin {
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
        let error = Failure {
            code: ErrorCode::Timeout,
            stage: Stage::Invoke,
            outcome: Outcome::Unknown,
            message: text,
            cause: Some(text.to_owned()),
        };
        let stages = [StageTime { stage: Stage::Resolve, micros: 3, note: Some(text) }];
        let end = End {
            status: Status::Error,
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
            let renderer = Renderer::new(Redactor::new(vec![Secret::new("hunter22")], patterns), max_body);
            let ids = renderer.ids(&begin);
            let start = Event::Start { version: text, policy: text, config: text.as_bytes() };
            let changed = Event::DefinitionChanged {
                server: text,
                tool: text,
                was: text,
                is: text,
                class: text,
                held_back: true,
            };
            let lines = [renderer.begin(&ids, &begin), renderer.end(&ids, &end)];
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
    fn a_long_body_is_cut_after_it_was_redacted() {
        let arguments = Raw::trusted(r#"["ää","hunter22","b"]"#.to_owned());
        let renderer = renderer(4);
        let ids = Ids { text: String::new(), secrets: Vec::new() };
        let body = Body { name: "arguments", json: &arguments, secret: None };
        let out = renderer.line("", &ids, &[], Some(body), |_, _| {});
        let rest = chain::hex(&Sha256::digest("ä\",\"***\",\"b\"]"));
        let rest = std::str::from_utf8(&rest).unwrap();
        assert_eq!(out, format!(r#","arguments_cut":{{"head":"[\"ä","length":18,"sha256":"{rest}"}}"#));
    }
}
