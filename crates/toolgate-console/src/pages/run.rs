//! The parts of the page of an agent run: the spending against its budgets, and the entries of its journal.

use serde_json::Value as Json;

use crate::rest::Run;
use crate::text::{cut, inline, pretty};

/// Longest text of an entry.
const MAX_TEXT: usize = 4_000;
/// Width of the bar of a budget.
const BAR_WIDTH: f64 = 40.0;

/// A row of the table of budgets.
pub(super) struct BudgetRow {
    pub(super) name: &'static str,
    pub(super) spent: String,
    pub(super) limit: String,
    pub(super) width: Option<String>,
}

/// An entry of the journal.
pub(super) struct TimelineEntry {
    /// Kind of the entry, in words.
    pub(super) label: &'static str,
    /// Tool of a result.
    pub(super) tool: String,
    pub(super) text: String,
    /// Calls that the model asks for: tool and arguments.
    pub(super) calls: Vec<(String, String)>,
    pub(super) failed: bool,
    /// Finds the call in the execution log.
    pub(super) correlation: Option<String>,
}

impl Run {
    pub(super) fn is_active(&self) -> bool {
        self.state == "running"
    }

    fn tokens(&self) -> u64 {
        let number = |name: &str| self.usage[name].as_u64().unwrap_or_default();
        number("input_tokens") + number("output_tokens")
    }

    /// The spending in a few words.
    pub(super) fn spending(&self) -> String {
        let mut parts = vec![format!("{} turns", self.turns), format!("{} calls", self.calls)];
        if self.tokens() > 0 {
            parts.push(format!("{} tokens", self.tokens()));
        }
        parts.join(", ")
    }

    pub(super) fn spent_of_budgets(&self) -> Vec<BudgetRow> {
        let row = |name: &'static str, spent: f64, shown: String| {
            let limit = &self.budgets[name];
            let share = limit.as_f64().filter(|limit| *limit > 0.0).map(|limit| spent / limit);
            BudgetRow {
                name,
                spent: shown,
                limit: if limit.is_null() { "no limit".to_owned() } else { inline(limit, 40) },
                width: share.map(|share| format!("{:.1}", (share * BAR_WIDTH).clamp(0.0, BAR_WIDTH))),
            }
        };
        let whole = |name: &'static str, spent: u64| row(name, spent as f64, spent.to_string());
        let mut rows =
            vec![whole("calls", self.calls), whole("writes", self.writes), whole("tokens", self.tokens())];
        rows.extend(self.cost.map(|cost| row("cost", cost, format!("{cost:.4}"))));
        rows.push(row("time", 0.0, self.took()));
        rows
    }

    /// The time of the run, once it has ended.
    fn took(&self) -> String {
        let ended = self.entries.last().filter(|entry| entry["kind"] == "ended");
        let took = ended.and_then(|entry| entry["took_ms"].as_f64());
        took.map_or_else(|| "–".to_owned(), |millis| crate::text::millis(millis.max(0.0) as u64))
    }

    /// The entries of the journal that say something to a person.
    pub(super) fn timeline(&self) -> Vec<TimelineEntry> {
        self.entries.iter().filter_map(entry).collect()
    }
}

fn entry(entry: &Json) -> Option<TimelineEntry> {
    let word = |name: &str| entry[name].as_str().unwrap_or_default();
    let plain = |label: &'static str, text: String| TimelineEntry {
        label,
        tool: String::new(),
        text: cut(text, MAX_TEXT),
        calls: Vec::new(),
        failed: false,
        correlation: None,
    };
    Some(match word("kind") {
        "asked" => plain("task", text_of(&entry["parts"])),
        "said" => {
            let calls = entry["calls"].as_array().into_iter().flatten();
            let arguments = |call: &Json| match &call["arguments"]["unusable"] {
                Json::Null => pretty(&call["arguments"]["object"]),
                why => inline(why, 300),
            };
            let call = |call: &Json| (inline(&call["name"], 120), cut(arguments(call), MAX_TEXT));
            TimelineEntry { calls: calls.map(call).collect(), ..plain("model", word("text").to_owned()) }
        }
        "result" => TimelineEntry {
            tool: inline(&entry["output"]["name"], 120),
            failed: entry["output"]["failed"] == true,
            correlation: entry["correlation_id"].as_str().map(str::to_owned),
            ..plain("result", text_of(&entry["output"]["parts"]))
        },
        "found" => plain("tools found", inline(&entry["tools"], 300)),
        "resumed" => plain("resumed", String::new()),
        "ended" => {
            let text = [word("reason"), word("error"), word("hint")];
            let text = text.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
            TimelineEntry { failed: !word("error").is_empty(), ..plain("end", text) }
        }
        // The intent of a call is in the reply before it.
        _ => return None,
    })
}

/// The text of content; other parts are named.
fn text_of(parts: &Json) -> String {
    let text = |part: &Json| match part["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("({})", inline(&part["mime"], 80)),
    };
    parts.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_run_shows_its_budgets_and_its_journal() {
    let run: Run = serde_json::from_value(serde_json::json!({
        "run": "r", "state": "running", "turns": 2, "calls": 3, "writes": 1,
        "usage": { "input_tokens": 400, "cached_tokens": 0, "output_tokens": 100 },
        "budgets": { "calls": 12, "writes": 2, "tokens": 1000, "time": "30m" },
        "entries": [
            { "kind": "begun", "run": "r" },
            { "kind": "asked", "parts": [{ "type": "text", "text": "Do it" }, { "type": "image", "mime": "image/png" }] },
            { "kind": "said", "text": "So.", "calls": [{ "name": "echo", "arguments": { "object": { "a": 1 } } }] },
            { "kind": "intent", "id": "c" },
            { "kind": "result", "output": { "name": "echo", "failed": true, "parts": [] }, "correlation_id": "x" },
            { "kind": "ended", "reason": "budget", "took_ms": 1500.5 },
        ],
    }))
    .expect("a run");
    let rows: Vec<_> = run
        .spent_of_budgets()
        .iter()
        .map(|row| format!("{} {} of {} {:?}", row.name, row.spent, row.limit, row.width))
        .collect();
    assert_eq!(
        rows,
        [
            "calls 3 of 12 Some(\"10.0\")",
            "writes 1 of 2 Some(\"20.0\")",
            "tokens 500 of 1000 Some(\"20.0\")",
            "time 1.50 s of 30m None",
        ]
    );
    assert_eq!(run.spending(), "2 turns, 3 calls, 500 tokens");
    let lines: Vec<_> = run
        .timeline()
        .iter()
        .map(|entry| format!("{} {} {:?} {}", entry.label, entry.tool, entry.text, entry.calls.len()))
        .collect();
    assert_eq!(
        lines,
        ["task  \"Do it\\n(image/png)\" 0", "model  \"So.\" 1", "result echo \"\" 0", "end  \"budget\" 0"]
    );
    assert_eq!(run.timeline()[1].calls[0], ("echo".to_owned(), "{\n  \"a\": 1\n}".to_owned()));
}
