//! A log for other programs: its lines as they are, or a table with a row per call.
//!
//! Invariant: lines keep their chain, so what was exported whole can be verified elsewhere. No cell of a table
//! is a formula to a spreadsheet: what tools say gets there.

use std::io::{self, Write};

use crate::chain;
use crate::merge::{Merge, Order};
use crate::read::{Call, Filter, Reader};

const COLUMNS: [&str; 20] = [
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
];

impl Reader {
    /// Writes the records of a time as lines of JSON, in their order, as they are. Of the filter only `since`
    /// and `until` count, and they count for each record by itself.
    pub fn export_lines(&self, filter: &Filter, out: &mut impl Write) -> io::Result<u64> {
        let only_time = Filter { since: filter.since, ..Filter::default() };
        let quick = only_time.quick();
        let until = filter.until.map(chain::stamp_text);
        let mut merge = Merge::new(&self.folder, self.days()?, Order::OldestFirst, move |_, _, line| {
            let early =
                |until: &String| chain::Line::look(line).is_some_and(|line| line.time < until.as_str());
            quick(line) && until.as_ref().is_none_or(early)
        })?;
        let mut count = 0;
        while let Some(found) = merge.next()? {
            out.write_all(&found.line)?;
            out.write_all(b"\n")?;
            count += 1;
        }
        Ok(count)
    }

    /// Writes the calls that pass a filter as a table with a heading.
    pub fn export_csv(&self, filter: Filter, out: &mut impl Write) -> io::Result<u64> {
        row(COLUMNS.map(str::to_owned), out)?;
        let mut count = 0;
        for call in self.query(filter)? {
            row(cells(&call?), out)?;
            count += 1;
        }
        Ok(count)
    }
}

fn cells(call: &Call) -> [String; COLUMNS.len()] {
    let (begin, end) = (call.begin.as_ref(), call.end.as_ref());
    let error = end.and_then(|end| end.error.as_ref());
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    [
        chain::stamp_text(call.time()),
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
    ]
}

fn row(cells: [String; COLUMNS.len()], out: &mut impl Write) -> io::Result<()> {
    let quoted = cells.map(|cell| {
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
