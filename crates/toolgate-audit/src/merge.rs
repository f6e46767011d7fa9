//! The lines of a log over all its files, in the order of their numbers.
//!
//! A clock that jumped puts later numbers into the file of an earlier day, so files are merged. Within a file
//! numbers rise, and a file is opened only when its numbers are due: who asks for the last lines does not
//! touch the files before. Invariant: what is not wanted is not copied.

use std::io;
use std::path::{Path, PathBuf};

use fs_err::File;
use jiff::civil::Date;

use crate::chain::Line;
use crate::folder;
use crate::scan::{Backward, Forward};

/// Which way to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    OldestFirst,
    NewestFirst,
}

/// Says whether a line is wanted; gets the file, the number of the line in it, and the line.
type Wanted<'a> = Box<dyn FnMut(Date, u64, &[u8]) -> bool + Send + 'a>;

/// A line with where it was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) day: Date,
    /// Counted from 1; 0 where lines are read from the end.
    pub(crate) number: u64,
    pub(crate) seq: u64,
    pub(crate) line: Vec<u8>,
}

pub(crate) struct Merge<'a> {
    order: Order,
    wanted: Wanted<'a>,
    /// The next one due is the last.
    waiting: Vec<Waiting>,
    active: Vec<Active>,
}

struct Waiting {
    day: Date,
    path: PathBuf,
    /// Where its numbers begin, seen in the order of the merge.
    seq: u64,
}

struct Active {
    lines: Lines,
    next: Found,
}

enum Lines {
    Forward(Forward),
    Backward(Backward),
}

impl<'a> Merge<'a> {
    pub(crate) fn new(
        folder: &Path,
        days: impl IntoIterator<Item = Date>,
        order: Order,
        wanted: impl FnMut(Date, u64, &[u8]) -> bool + Send + 'a,
    ) -> io::Result<Self> {
        let mut waiting = Vec::new();
        for day in days {
            let path = folder::path(folder, day);
            let seq = match order {
                Order::OldestFirst => first(&path),
                Order::NewestFirst => last(&path),
            };
            match seq {
                Ok(seq) => waiting.push(Waiting { day, path, seq: seq.unwrap_or(0) }),
                // Removed as too old in this moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        waiting.sort_by_key(|file| match order {
            Order::OldestFirst => u64::MAX - file.seq,
            Order::NewestFirst => file.seq,
        });
        Ok(Self { order, wanted: Box::new(wanted), waiting, active: Vec::new() })
    }

    /// The next line that is wanted.
    pub(crate) fn next(&mut self) -> io::Result<Option<Found>> {
        loop {
            let order = self.order;
            let before = |a: u64, b: u64| if order == Order::OldestFirst { a < b } else { a > b };
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

    fn activate(&mut self, file: &Waiting) -> io::Result<()> {
        let opened = match File::open(&file.path) {
            // Removed as too old in this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let mut lines = match self.order {
            Order::OldestFirst => Lines::Forward(Forward::new(opened, 0)?),
            Order::NewestFirst => {
                let length = opened.metadata()?.len();
                Lines::Backward(Backward::new(opened, length)?)
            }
        };
        let start = Found { day: file.day, number: 0, seq: 0, line: Vec::new() };
        if let Some(next) = advance(&mut lines, &start, &mut self.wanted)? {
            self.active.push(Active { lines, next });
        }
        Ok(())
    }
}

/// The next line of a file that is wanted.
fn advance(lines: &mut Lines, last: &Found, wanted: &mut Wanted<'_>) -> io::Result<Option<Found>> {
    let day = last.day;
    let mut number = last.number;
    loop {
        let line = match lines {
            Lines::Forward(lines) => {
                number += 1;
                lines.line()?
            }
            Lines::Backward(lines) => lines.line()?,
        };
        let Some(line) = line else { return Ok(None) };
        if wanted(day, number, line)
            && let Some(looked) = Line::look(line)
        {
            return Ok(Some(Found { day, number, seq: looked.seq, line: line.to_vec() }));
        }
    }
}

fn first(path: &Path) -> io::Result<Option<u64>> {
    let mut lines = Forward::new(File::open(path)?, 0)?;
    while let Some(line) = lines.line()? {
        if let Some(line) = Line::look(line) {
            return Ok(Some(line.seq));
        }
    }
    Ok(None)
}

fn last(path: &Path) -> io::Result<Option<u64>> {
    Ok(folder::end(&File::open(path)?)?.last.map(|last| last.head.seq))
}
