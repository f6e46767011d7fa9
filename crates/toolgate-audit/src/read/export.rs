//! Exports a log: its lines unchanged, or a CSV table with a row per call.
//!
//! Invariant: exported lines keep their hash chain, so a complete export can be verified elsewhere. No CSV cell is a
//! formula to a spreadsheet, because cells hold untrusted output of tools.

use std::io::{self, Write};

use crate::chain;
use crate::merge::{LineMerge, ReadOrder};
use crate::read::{CallFilter, LogReader, LoggedCall};

const COLUMNS: [&str; 31] = [
    "time",
    "call",
    "caller",
    "tool",
    "server",
    "decision",
    "rules",
    "asked",
    "status",
    "code",
    "stage",
    "outcome",
    "message",
    "attempts",
    "cached",
    "micros",
    "correlation",
    "trace",
    "arguments",
    "output",
    "kind",
    "tainted",
    "person",
    "groups",
    "credential",
    "refused_by",
    "upstream_credential",
    "upstream_account",
    "user",
    "agent_version",
    "deprecated",
];

impl LogReader {
    /// Writes the records of a time range as lines of JSON, unchanged and in order. Only `since` and `until` of the
    /// filter apply, to each record separately.
    pub fn export_lines(&self, filter: &CallFilter, out: &mut impl Write) -> io::Result<u64> {
        let only_time = CallFilter { since: filter.since, ..CallFilter::default() };
        let line_predicate = only_time.line_predicate();
        let until = filter.until.map(chain::format_timestamp);
        let mut merge =
            LineMerge::new(&self.folder, self.days()?, ReadOrder::OldestFirst, move |_, _, line| {
                let early = |until: &String| {
                    chain::RecordLine::parse(line).is_some_and(|line| line.time < until.as_str())
                };
                line_predicate(line) && until.as_ref().is_none_or(early)
            })?;
        let mut count = 0;
        while let Some(found) = merge.next()? {
            out.write_all(&found.line)?;
            out.write_all(b"\n")?;
            count += 1;
        }
        Ok(count)
    }

    /// Writes the calls that match a filter as CSV with a header row.
    pub fn export_csv(&self, filter: CallFilter, out: &mut impl Write) -> io::Result<u64> {
        row(COLUMNS.map(str::to_owned), out)?;
        let mut count = 0;
        for call in self.query(filter)? {
            row(cells(&call?), out)?;
            count += 1;
        }
        Ok(count)
    }
}

fn cells(call: &LoggedCall) -> [String; COLUMNS.len()] {
    let (begin, end) = (call.begin.as_ref(), call.end.as_ref());
    let error = end.and_then(|end| end.error.as_ref());
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    [
        chain::format_timestamp(call.time()),
        call.id().to_owned(),
        call.caller().to_owned(),
        call.tool().to_owned(),
        text(begin.and_then(|begin| begin.server.as_ref())),
        text(begin.map(|begin| &begin.decision)),
        begin.map(|begin| begin.rules.join(" ")).unwrap_or_default(),
        text(begin.and_then(|begin| begin.asked.as_ref())),
        call.status().to_owned(),
        text(error.map(|error| &error.code)),
        text(error.map(|error| &error.stage)),
        text(error.map(|error| &error.outcome)),
        text(error.map(|error| &error.message)),
        end.map(|end| end.attempts.to_string()).unwrap_or_default(),
        end.map(|end| end.cached.to_string()).unwrap_or_default(),
        end.map(|end| end.micros.to_string()).unwrap_or_default(),
        text(begin.map(|begin| &begin.correlation)),
        text(begin.map(|begin| &begin.trace)),
        begin
            .and_then(|begin| {
                let cut = || begin.arguments_cut.as_ref().map(|cut| cut.head.clone());
                begin.arguments.as_ref().map(|json| json.get().to_owned()).or_else(cut)
            })
            .unwrap_or_default(),
        end.and_then(|end| {
            let cut = || end.output_cut.as_ref().map(|cut| cut.head.clone());
            end.output.as_ref().map(|json| json.get().to_owned()).or_else(cut)
        })
        .unwrap_or_default(),
        call.operation().to_owned(),
        begin.map(|begin| begin.tainted.to_string()).unwrap_or_default(),
        text(begin.and_then(|begin| begin.person.as_ref())),
        begin.map(|begin| begin.groups.join(" ")).unwrap_or_default(),
        text(begin.and_then(|begin| begin.credential.as_ref())),
        text(begin.and_then(|begin| begin.refused_by.as_ref())),
        text(end.and_then(|end| end.upstream_credential.as_ref())),
        text(end.and_then(|end| end.upstream_account.as_ref())),
        text(begin.and_then(|begin| begin.user.as_ref())),
        text(begin.and_then(|begin| begin.agent_version.as_ref())),
        begin.map(|begin| begin.deprecated.to_string()).unwrap_or_default(),
    ]
}

fn row(cells: [String; COLUMNS.len()], out: &mut impl Write) -> io::Result<()> {
    let quoted = cells.map(|cell| {
        // A leading apostrophe keeps spreadsheets from evaluating the cell as a formula.
        let guard = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
        if guard.is_empty() && !cell.contains(['"', ',', '\n', '\r']) {
            cell
        } else {
            format!("\"{guard}{}\"", cell.replace('"', "\"\""))
        }
    });
    out.write_all(quoted.join(",").as_bytes())?;
    out.write_all(b"\r\n")
}
