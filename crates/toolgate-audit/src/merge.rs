//! Merges the lines of all files of a log in the order of their sequence numbers.
//!
//! If the clock jumps, later records land in the file of an earlier day, so files are merged. Sequence numbers rise
//! within a file, and a file is opened only when its records are due: reading the last records does not touch older
//! files. Invariant: lines that the predicate rejects are not copied.

use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;

use crate::chain::RecordLine;
use crate::folder;
use crate::scan::{BackwardLines, ForwardLines};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOrder {
    OldestFirst,
    NewestFirst,
}

/// Selects lines; gets the file's day, the line number in it, and the line.
type LinePredicate<'a> = Box<dyn FnMut(Date, u64, &[u8]) -> bool + Send + 'a>;

/// A selected line and its position.
#[derive(Debug)]
pub(crate) struct MergedLine {
    pub(crate) day: Date,
    /// Line number, starting at 1; 0 if read from the end.
    pub(crate) number: u64,
    pub(crate) seq: u64,
    pub(crate) line: Vec<u8>,
}

pub(crate) struct LineMerge<'a> {
    order: ReadOrder,
    wanted: LinePredicate<'a>,
    /// Files not opened yet; the next one due is the last.
    waiting: Vec<PendingFile>,
    active: Vec<ActiveFile>,
}

struct PendingFile {
    day: Date,
    path: PathBuf,
    /// Sequence number of the first record in reading order.
    seq: u64,
}

struct ActiveFile {
    lines: LineReader,
    next: MergedLine,
}

enum LineReader {
    Forward(ForwardLines),
    Backward(BackwardLines),
}

impl<'a> LineMerge<'a> {
    pub(crate) fn new(
        folder: &Path,
        days: impl IntoIterator<Item = Date>,
        order: ReadOrder,
        wanted: impl FnMut(Date, u64, &[u8]) -> bool + Send + 'a,
    ) -> io::Result<Self> {
        let mut waiting = Vec::new();
        for day in days {
            let path = folder::day_path(folder, day);
            let seq = match order {
                ReadOrder::OldestFirst => first_seq(&path),
                ReadOrder::NewestFirst => last_seq(&path),
            };
            match seq {
                Ok(seq) => waiting.push(PendingFile { day, path, seq: seq.unwrap_or(0) }),
                // Removed by retention in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        waiting.sort_by_key(|file| match order {
            ReadOrder::OldestFirst => u64::MAX - file.seq,
            ReadOrder::NewestFirst => file.seq,
        });
        Ok(Self { order, wanted: Box::new(wanted), waiting, active: Vec::new() })
    }

    /// Returns the next selected line.
    pub(crate) fn next(&mut self) -> io::Result<Option<MergedLine>> {
        loop {
            let order = self.order;
            let before = |a: u64, b: u64| if order == ReadOrder::OldestFirst { a < b } else { a > b };
            let due = (0..self.active.len())
                .reduce(|a, b| if before(self.active[b].next.seq, self.active[a].next.seq) { b } else { a });
            let file_due = self
                .waiting
                .last()
                .is_some_and(|file| due.is_none_or(|due| !before(self.active[due].next.seq, file.seq)));
            if file_due {
                let file = self.waiting.pop().expect("there is one that is due");
                self.activate(&file)?;
                continue;
            }
            let Some(due) = due else { return Ok(None) };
            let active = &mut self.active[due];
            return Ok(Some(match advance(&mut active.lines, &active.next, &mut self.wanted)? {
                Some(next) => std::mem::replace(&mut active.next, next),
                None => self.active.swap_remove(due).next,
            }));
        }
    }

    fn activate(&mut self, file: &PendingFile) -> io::Result<()> {
        let opened = match folder::open_for_reading(&file.path) {
            // Removed by retention in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let mut lines = match self.order {
            ReadOrder::OldestFirst => LineReader::Forward(ForwardLines::new(opened, 0)?),
            ReadOrder::NewestFirst => {
                let length = opened.metadata()?.len();
                LineReader::Backward(BackwardLines::new(opened, length)?)
            }
        };
        let start = MergedLine { day: file.day, number: 0, seq: 0, line: Vec::new() };
        if let Some(next) = advance(&mut lines, &start, &mut self.wanted)? {
            self.active.push(ActiveFile { lines, next });
        }
        Ok(())
    }
}

/// Returns the next selected line of a file.
fn advance(
    lines: &mut LineReader,
    last: &MergedLine,
    wanted: &mut LinePredicate<'_>,
) -> io::Result<Option<MergedLine>> {
    let day = last.day;
    let mut number = last.number;
    loop {
        let line = match lines {
            LineReader::Forward(lines) => {
                number += 1;
                lines.line()?
            }
            LineReader::Backward(lines) => lines.line()?,
        };
        let Some(line) = line else { return Ok(None) };
        if wanted(day, number, line)
            && let Some(looked) = RecordLine::parse(line)
        {
            return Ok(Some(MergedLine { day, number, seq: looked.seq, line: line.to_vec() }));
        }
    }
}

fn first_seq(path: &Path) -> io::Result<Option<u64>> {
    let mut lines = ForwardLines::new(folder::open_for_reading(path)?, 0)?;
    while let Some(line) = lines.line()? {
        if let Some(line) = RecordLine::parse(line) {
            return Ok(Some(line.seq));
        }
    }
    Ok(None)
}

fn last_seq(path: &Path) -> io::Result<Option<u64>> {
    Ok(folder::find_end(&folder::open_for_reading(path)?)?.last.map(|last| last.head.seq))
}
