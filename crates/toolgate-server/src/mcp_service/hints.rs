//! Hints in the results of tools, in the amount that the project or the profile wants.
//!
//! Invariant: unless all hints are wanted, they are not computed, and a result grows by at most [`MAX_BRIEF_BYTES`].

use serde::Serialize;
use toolgate_json::quote;
use toolgate_runtime::{ActionableHints, CallOutcome, Runtime};
use toolgate_types::call::ResultMetadata;
use toolgate_types::hints::AgentHints;
use toolgate_types::profile::HintsMode;
use toolgate_types::{CallError, Caller};

use super::profile::RoutedCall;

/// Longest addition to a result in the mode `brief`.
const MAX_BRIEF_BYTES: usize = 200;
/// The part of it around the hints.
const BRIEF_FRAME: &str = r#","_meta":{"toolgate/result":{}}"#;
/// Usual size of all hints and metadata, in bytes.
const FULL_CAPACITY: usize = 1_792;

/// Hints to add to a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResultHints {
    None,
    /// A JSON object for `_meta`.
    Brief(String),
    /// A line of text.
    Text(String),
    /// A JSON object for `_meta`. The value that the tool set under the same key is added to it.
    Full(String),
}

impl ResultHints {
    /// Renders the hints of a call.
    pub(super) fn render(
        runtime: &Runtime,
        caller: &Caller,
        routed: &RoutedCall,
        called: &CallOutcome,
    ) -> Self {
        match routed.hints {
            HintsMode::Off => Self::None,
            HintsMode::Full => {
                let mut hints = runtime.agent_hints(caller, called);
                if let Some(view) = routed.view() {
                    view.rename_hints(&mut hints);
                }
                Self::Full(full_json(&hints, called))
            }
            mode => {
                let Some(mut hints) = runtime.actionable_hints(caller, called) else { return Self::None };
                if let Some(view) = routed.view() {
                    view.rename_actions(&mut hints.actions);
                }
                let rendered = match mode {
                    HintsMode::Text => text_line(&hints).map(Self::Text),
                    _ => brief_json(&hints).map(Self::Brief),
                };
                rendered.unwrap_or(Self::None)
            }
        }
    }
}

fn full_json(agent_hints: &AgentHints, called: &CallOutcome) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct FullHints<'a> {
        agent_hints: &'a AgentHints,
        metadata: ResultMetadata,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a CallError>,
    }
    let hints = FullHints { agent_hints, metadata: called.metadata(), error: called.result.error.as_ref() };
    let mut out = Vec::with_capacity(FULL_CAPACITY);
    serde_json::to_writer(&mut out, &hints).expect("hints have a JSON form");
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Renders hints as a JSON object. Members that would exceed the limit are left out, the least useful first.
fn brief_json(hints: &ActionableHints<'_>) -> Option<String> {
    let member = |name: &str, value: &str| {
        let mut out = format!("\"{name}\":");
        quote(value, &mut out);
        out
    };
    let members = |with_reason: bool| {
        let next = hints.actions.first().map(|next| match with_reason {
            true => next.json_members().into_owned(),
            false => member("next", &next.action),
        });
        let retry = hints.retry_after.map(|after| format!("\"retryAfterMs\":{}", after.as_millis()));
        let uri = hints.stored_result.map(|uri| member("uri", uri));
        let id = hints.correlation_id.map(|id| member("correlationId", id));
        [uri, retry, next, id].into_iter().flatten().collect::<Vec<_>>()
    };
    let length = |members: &[String]| members.iter().map(|member| member.len() + 1).sum::<usize>();
    let room = MAX_BRIEF_BYTES - BRIEF_FRAME.len();
    let mut shown = members(true);
    if length(&shown) > room {
        shown = members(false);
    }
    while length(&shown) > room {
        shown.pop();
    }
    (!shown.is_empty()).then(|| format!("{{{}}}", shown.join(",")))
}

/// Renders hints as one line of text.
fn text_line(hints: &ActionableHints<'_>) -> Option<String> {
    let mut notes = Vec::new();
    if let Some(next) = hints.actions.first() {
        notes.push(format!("next: {} ({})", next.action, next.reason));
    }
    notes.extend(hints.stored_result.map(|uri| format!("full result: {uri}")));
    notes.extend(hints.retry_after.map(|after| format!("retry after {} s", after.as_secs_f64().ceil())));
    notes.extend(hints.correlation_id.map(|id| format!("correlation id: {id}")));
    (!notes.is_empty()).then(|| format!("[{}]", notes.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use toolgate_runtime::SuggestedAction;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";
    const URI: &str = "toolgate://results/0123456789abcdef0123456789abcdef";

    fn action<'a>(action: &'a str, reason: &'a str) -> SuggestedAction<'a> {
        SuggestedAction { action: action.into(), reason: reason.into(), members: None }
    }

    fn check(hints: &ActionableHints<'_>) -> String {
        let (brief, text) = (brief_json(hints), text_line(hints));
        if let Some(brief) = &brief {
            assert!(brief.len() - 2 + BRIEF_FRAME.len() <= MAX_BRIEF_BYTES, "{}: {brief}", brief.len());
            assert!(serde_json::from_str::<Value>(brief).unwrap().is_object(), "{brief}");
        }
        assert!(!text.as_ref().is_some_and(|text| text.contains('\n')), "{text:?}");
        format!("{} {}", brief.unwrap_or_default(), text.unwrap_or_default())
    }

    #[test]
    fn renders_what_can_be_acted_on() {
        let none = || ActionableHints {
            actions: Vec::new(),
            stored_result: None,
            retry_after: None,
            correlation_id: None,
        };
        assert_eq!(check(&none()), " ");
        let stored = ActionableHints {
            actions: vec![action("read_result", "read the rest of the result"), action("other", "x")],
            stored_result: Some(URI),
            ..none()
        };
        let limited = ActionableHints {
            actions: vec![action("wait-and-retry", "call again later")],
            retry_after: Some(Duration::from_millis(1_500)),
            correlation_id: Some(ID),
            ..none()
        };
        insta::assert_snapshot!([check(&stored), check(&limited)].join("\n"), @r#"
        {"uri":"toolgate://results/0123456789abcdef0123456789abcdef","next":"read_result","reason":"read the rest of the result"} [next: read_result (read the rest of the result); full result: toolgate://results/0123456789abcdef0123456789abcdef]
        {"retryAfterMs":1500,"next":"wait-and-retry","reason":"call again later","correlationId":"0123456789abcdef0123456789abcdef"} [next: wait-and-retry (call again later); retry after 2 s; correlation id: 0123456789abcdef0123456789abcdef]
        "#);
    }

    /// Long members are left out: first the reason, then the correlation id, then the action.
    #[test]
    fn leaves_out_what_does_not_fit() {
        let hints = |name: &str, id: &str| {
            let reason = "tell the operator: the same call would fail in the same way";
            let hints = ActionableHints {
                actions: vec![action(name, reason)],
                stored_result: None,
                retry_after: Some(Duration::from_secs(1)),
                correlation_id: Some(id),
            };
            check(&hints);
            let brief: Value = serde_json::from_str(&brief_json(&hints).unwrap()).unwrap();
            brief.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(hints("report-problem", ID), "retryAfterMs next reason correlationId");
        assert_eq!(hints("report-problem", &"x".repeat(100)), "retryAfterMs next correlationId");
        assert_eq!(hints("report-problem", &"x".repeat(128)), "retryAfterMs next");
        assert_eq!(hints(&"x".repeat(128), ID), "retryAfterMs next");
        assert_eq!(hints(&"\"".repeat(128), ID), "retryAfterMs");
    }
}
