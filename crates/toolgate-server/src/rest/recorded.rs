//! Recorded calls for endpoints that compare many of them: bounded in number and time.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use tokio::time::Instant;
use toolgate_audit::{CallFilter, LogReader, LoggedCall, ProjectLog};

/// Recorded calls that one request looks at, and the time it has.
const MAX_CALLS: usize = 200_000;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Passes recorded calls to `work`, the newest of each process first. Returns true if none was left out.
pub(super) fn with_recorded_calls<T>(
    log: &ProjectLog,
    filter: CallFilter,
    keep_going: &dyn Fn() -> bool,
    work: impl FnOnce(&mut dyn Iterator<Item = io::Result<LoggedCall>>) -> io::Result<T>,
) -> io::Result<(T, bool)> {
    let filter = CallFilter { newest_first: true, ..filter };
    let (started, seen, is_complete) = (Instant::now(), Cell::new(0_usize), Cell::new(true));
    let readers: Vec<_> = log.folders().into_iter().map(LogReader::new).collect();
    let queries = readers.iter().map(|reader| reader.query(filter.clone()));
    let queries = queries.collect::<io::Result<Vec<_>>>()?;
    let mut calls = queries.into_iter().flatten().take_while(|_| {
        seen.set(seen.get() + 1);
        let goes_on = keep_going() && seen.get() <= MAX_CALLS && started.elapsed() < MAX_TIME;
        is_complete.set(goes_on);
        goes_on
    });
    let done = work(&mut calls)?;
    Ok((done, is_complete.get()))
}
