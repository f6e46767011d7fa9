//! The members of records and the metrics, for the reference pages.
//!
//! Invariant: every member that a record can have is listed here, in the order of a line; a test renders records with all
//! of them and compares.

use std::fmt::Write as _;
use std::time::Duration;

use toolgate_types::ErrorCode;

use crate::metrics::Metrics;
use crate::record::CallStatus;
use crate::storage_errors::StorageErrors;

/// A table of members: their names, and their meaning.
type Members = &'static [(&'static str, &'static str)];

/// The members that every record begins with.
const FIRST: Members = &[
    (
        "seq",
        "sequence number of the record: 1, 2, 3, without gaps, over all files; it alone defines the order",
    ),
    ("time", "time of writing: UTC, to the microsecond, always 27 characters"),
    ("kind", "`begin` or `end`, or another kind described below"),
];
/// The members that both records of a call have next.
const CALL: Members = &[
    ("call", "id of the call, the same in both records"),
    ("caller", "the caller"),
    (
        "tool",
        "the tool; for other operations the URI of the resource, the name of the prompt, or the id of the task",
    ),
    (
        "operation",
        "`resource`, `prompt`, `completion`, `subscription`, `task` or `list`; omitted for a tool call",
    ),
    ("session", "the session of the call, if any"),
];
const BEGIN: Members = &[
    ("correlation", "correlation id that links related calls"),
    ("correlation_from_client", "true if the client supplied that id"),
    ("trace", "the trace of the call"),
    (
        "user",
        "the end user, as the caller names it in the context of a call over REST; Toolgate does not verify it",
    ),
    ("agent_version", "the version of the agent, as the caller names it"),
    ("server", "the server of the tool"),
    ("definition", "hash of the tool definition"),
    ("decision", "`allow`, `deny`, or `undecided` if there is no such tool"),
    (
        "rules",
        "names of the rules that decided; `permissions` if those decided, `(failed)` if a rule could not be evaluated",
    ),
    ("not_approved", "`true` if the call needed approval and did not get it"),
    ("asked", "the person who approved the call"),
    ("tainted", "`true` if untrusted content had reached the session before the decision"),
    (
        "person",
        "the person responsible for the caller: `person` of the caller, or the `person_claim` of its token",
    ),
    ("groups", "the groups of the caller when the call was decided"),
    (
        "credential",
        "the name of the credential that authenticated the caller: `key/NAME`, `token/ISSUER`, `certificate`, or `socket`",
    ),
    ("refused_by", "the person who refused to approve the call"),
    ("deprecated", "`true` if the tool is deprecated"),
    ("arguments", "the arguments; `arguments_cut` if they are longer than `audit.max_body`"),
];
const END: Members = &[
    ("status", "`success`, `error`, or `abandoned`: the caller disconnected before the end"),
    (
        "error",
        "`code`, `stage`, `outcome` (tells if the tool had an effect), `message`, and `cause`, which the caller did not see",
    ),
    ("attempts", "number of attempts"),
    ("cached", "true if the result came from the cache"),
    ("micros", "microseconds from the request to the result"),
    ("stages", "the stages of the pipeline, each as `[name, microseconds]` or `[name, microseconds, note]`"),
    ("upstream_credential", "the name of the credential that the server got, if it is that of the caller"),
    ("upstream_account", "the account at the server, if it is known"),
    ("output", "the output of the tool; `output_cut` if it is longer than `audit.max_body`"),
];
/// The other kinds of records, with their members after `kind`.
const EVENTS: [(&str, &str, Members); 4] = [
    (
        "start",
        "A process started to write.",
        &[
            ("version", "version of Toolgate"),
            ("policy", "hash of its policy"),
            ("config", "SHA-256 of its configuration as `toolgate check` shows it"),
            ("process", "process id"),
        ],
    ),
    (
        "reloaded",
        "A changed configuration was taken over.",
        &[("policy", "hash of its policy"), ("config", "its SHA-256, as in `start`")],
    ),
    (
        "reload_rejected",
        "A changed configuration was rejected as a whole.",
        &[("reason", "the mistakes in it")],
    ),
    (
        "definition_changed",
        "A server changed the definition of a tool.",
        &[
            ("server", "the server"),
            ("tool", "name of the tool on that server"),
            ("was", "hash of the definition before"),
            ("is", "hash of the definition now"),
            ("class", "class of the change (see [pins](../trust.md))"),
            ("held_back", "true if the tool is quarantined because of it"),
        ],
    ),
];

/// Returns the page of the records of the execution log.
pub fn records_page() -> String {
    let mut page = String::from(
        "# Log records\n\n<!-- Generated by `toolgate schema --reference=records` from \
         crates/toolgate-audit/src/reference.rs. -->\n\n\
         A record is a line of JSON in a file of the [execution log](../log.md). A call has two, `begin` and `end`. Members\n\
         are in this order; those that do not apply are omitted. Every record ends with `hash`, its link of the\n\
         [hash chain](../log.md#hash-chain).\n",
    );
    write_table("Every record", "", FIRST, &mut page);
    write_table("Both records of a call", "", CALL, &mut page);
    write_table("begin", "The call was decided.", BEGIN, &mut page);
    write_table("end", "The call ended.", END, &mut page);
    for (kind, about, members) in EVENTS {
        write_table(kind, about, members, &mut page);
    }
    page
}

fn write_table(title: &str, about: &str, members: Members, page: &mut String) {
    let _ = write!(page, "\n## {title}\n\n");
    if !about.is_empty() {
        let _ = write!(page, "{about}\n\n");
    }
    page.push_str("| Member | Meaning |\n| --- | --- |\n");
    for (name, about) in members {
        let _ = writeln!(page, "| `{name}` | {about} |");
    }
}

/// Renders every metric of calls and of the log, with samples, in the Prometheus text format.
pub fn example_metrics() -> String {
    let metrics = Metrics::default();
    metrics.tool("add", "calculator").record_end(Some(ErrorCode::Timeout), Duration::from_millis(1), false);
    metrics.record_caller("ann", "calculator", CallStatus::Success);
    let mut text = metrics.render();
    StorageErrors::default().render(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use toolgate_json::RawJson;
    use toolgate_types::call::{OperationKind, Stage};
    use toolgate_types::{CallError, Group, UpstreamIdentity};

    use super::*;
    use crate::record::{CallBegin, CallEnd, CallIdentity, Decision, LogEvent, RecordRenderer, StageTime};
    use crate::redact::Redactor;

    /// Checks that a record has these members, in this order.
    fn check(line: &str, tables: &[Members]) {
        let record: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&format!("{{{line}}}")).expect("a record");
        let listed = tables.iter().copied().flatten().map(|(name, _)| *name);
        let expected: Vec<_> = std::iter::once("kind").chain(listed).collect();
        // The map keeps the order of the line.
        assert_eq!(record.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_member_of_a_record_is_listed() {
        let renderer = RecordRenderer::new(Redactor::new(Vec::new(), Vec::new()), 1000);
        let json = RawJson::from_trusted("{}".to_owned());
        let group = Arc::new(Group { name: "ops".parse().expect("a name"), permissions: Vec::new() });
        let begin = CallBegin {
            call: "c1",
            caller: "ann",
            identity: CallIdentity {
                person: Some("ann"),
                groups: &[group],
                credential: Some("key/laptop"),
                secrets: None,
            },
            operation: OperationKind::Resource,
            tool: "file:///a",
            session: Some("s1"),
            user: Some("carl"),
            agent_version: Some("2.1"),
            correlation: "r1",
            correlation_from_client: true,
            trace: "t1",
            server: Some("files"),
            definition: Some("d1"),
            decision: Decision::NotApproved,
            rules: &["reads".to_owned()],
            asked: Some("bob"),
            refused_by: Some("bob"),
            tainted: true,
            deprecated: true,
            arguments: &json,
            secret: None,
        };
        let prefix = renderer.prefix(&begin);
        check(&renderer.begin(&prefix, &begin).to_text(), &[CALL, BEGIN]);
        let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, "too slow");
        let upstream = UpstreamIdentity { credential: "stored".into(), account: Some("ann".into()) };
        let end = CallEnd {
            status: CallStatus::Error,
            error: Some((&error).into()),
            attempts: 1,
            cached: false,
            took: Duration::from_millis(1),
            stages: &[StageTime { stage: Stage::Resolve, took: Duration::from_micros(3), note: None }],
            output: Some(&json),
            secret: None,
            upstream: Some(&upstream),
        };
        check(&renderer.end(&prefix, &end).to_text(), &[CALL, END]);
        let (server, tool, was, is, class) = ("files", "read", "a", "b", "breaking");
        let events = [
            LogEvent::Start { version: "1", policy: "p", config: b"" },
            LogEvent::Reloaded { policy: "p", config: b"" },
            LogEvent::ReloadRejected { reason: "a mistake" },
            LogEvent::DefinitionChanged { server, tool, was, is, class, held_back: true },
        ];
        for ((kind, _, members), event) in EVENTS.iter().zip(&events) {
            let line = renderer.event(event).to_text();
            assert!(line.starts_with(&format!("\"kind\":\"{kind}\"")), "{line}");
            check(&line, &[members]);
        }
    }
}
