//! The ends of recent calls, newest first, for figures.
//!
//! Invariant: bodies are not parsed.

use std::collections::HashMap;
use std::io;

use jiff::Timestamp;

use super::{LineMerge, LogReader, ReadOrder};
use crate::chain::{self, RecordLine};
use crate::terms::record_members;

/// Maximum number of calls that wait for their begin. Ends of others have no server.
const MAX_AWAITED: usize = 10_000;

/// The end of a call, with the server of its begin.
#[derive(Debug)]
pub(crate) struct EndFigures<'a> {
    pub(crate) ended: Timestamp,
    pub(crate) caller: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) server: &'a str,
    pub(crate) status: &'a str,
    pub(crate) code: Option<&'a str>,
    pub(crate) attempts: u32,
    pub(crate) cached: bool,
    pub(crate) micros: u64,
}

impl LogReader {
    /// Passes the ends of a time range to `take`, but not those of lists. Stops when `go_on` returns false.
    pub(crate) fn recent_ends(
        &self,
        since: Timestamp,
        until: Timestamp,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(EndFigures<'_>),
    ) -> io::Result<()> {
        let (first, last) = (chain::format_timestamp(since), chain::format_timestamp(until));
        let days = self.days()?.into_iter().filter(|day| *day >= chain::utc_day(since));
        let mut merge = LineMerge::new(&self.folder, days, ReadOrder::NewestFirst, |_, _, line| {
            RecordLine::parse(line).is_some_and(|line| line.time >= &*first && line.time < &*last)
        })?;
        let mut awaited: HashMap<Vec<u8>, (Timestamp, Vec<u8>)> = HashMap::new();
        while let Some(found) = merge.next()? {
            if !go_on() {
                break;
            }
            let Some(record) = RecordLine::parse(&found.line) else { continue };
            let mut members = record_members(record.members());
            let (Some((b"kind", kind)), Some((b"call", call))) = (members.next(), members.next()) else {
                continue;
            };
            if kind == b"\"end\"" {
                let (Some(ended), head) = (record.timestamp(), head(record.members())) else { continue };
                if awaited.len() < MAX_AWAITED {
                    awaited.insert(call.to_vec(), (ended, head.to_vec()));
                } else {
                    take_end(ended, head, "", take);
                }
            } else if kind == b"\"begin\""
                && let Some((ended, end)) = awaited.remove(call)
            {
                let server = members.find(|(name, _)| *name == b"server").map(|(_, server)| text(server));
                take_end(ended, &end, server.unwrap_or_default(), take);
            }
        }
        for (ended, end) in awaited.values() {
            take_end(*ended, end, "", take);
        }
        Ok(())
    }
}

/// Returns the members before the stages and the output: those can be large.
fn head(members: &[u8]) -> &[u8] {
    &members[..memchr::memmem::find(members, br#","stages":"#).unwrap_or(members.len())]
}

fn take_end(ended: Timestamp, members: &[u8], server: &str, take: &mut dyn FnMut(EndFigures<'_>)) {
    let mut end = EndFigures {
        ended,
        caller: "",
        tool: "",
        server,
        status: "",
        code: None,
        attempts: 0,
        cached: false,
        micros: 0,
    };
    for (name, value) in record_members(members) {
        match name {
            b"caller" => end.caller = text(value),
            b"tool" => end.tool = text(value),
            b"operation" if value == b"\"list\"" => return,
            b"status" => end.status = text(value),
            b"error" => {
                end.code = crate::terms::error_code(value).and_then(|code| std::str::from_utf8(code).ok())
            }
            b"attempts" => end.attempts = text(value).parse().unwrap_or_default(),
            b"cached" => end.cached = value == b"true",
            b"micros" => end.micros = text(value).parse().unwrap_or_default(),
            _ => {}
        }
    }
    take(end);
}

/// Returns a value without its quotation marks. Names with escapes stay escaped.
fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap_or_default().trim_matches('"')
}
