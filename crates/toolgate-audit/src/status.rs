//! The state of a log: how much it holds, and where it ends.
//!
//! Invariant: reads the first and the last line of each file only.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

use crate::chain::RecordLine;
use crate::folder;
use crate::project::ProjectLog;
use crate::scan::ForwardLines;

/// The records of one writer.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriterStatus {
    /// Number of the writer: the name of its folder.
    pub writer: usize,
    pub records: u64,
    pub bytes: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    pub last_hash: Option<String>,
    pub last_time: Option<Timestamp>,
}

/// Bytes of one day, over all writers.
#[derive(Debug, Clone, Serialize)]
pub struct DayStatus {
    pub day: String,
    pub bytes: u64,
}

/// The state of a project's log.
#[derive(Debug, Clone, Default)]
pub struct LogStatus {
    pub writers: Vec<WriterStatus>,
    /// Oldest first.
    pub days: Vec<DayStatus>,
}

impl ProjectLog {
    /// Reads how much the log holds, and where it ends.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn status(&self) -> io::Result<LogStatus> {
        let mut days = BTreeMap::new();
        let mut status = LogStatus::default();
        for folder in self.folders() {
            let name = folder.file_name().and_then(|name| name.to_str()?.parse().ok());
            let writer = writer_status(&folder, &mut days)?;
            status.writers.push(WriterStatus { writer: name.unwrap_or_default(), ..writer });
        }
        status.days =
            days.into_iter().map(|(day, bytes)| DayStatus { day: format!("{day}"), bytes }).collect();
        Ok(status)
    }
}

fn writer_status(folder: &Path, days: &mut BTreeMap<jiff::civil::Date, u64>) -> io::Result<WriterStatus> {
    let mut status = WriterStatus { first_seq: u64::MAX, ..WriterStatus::default() };
    for day in folder::list_days(folder)? {
        let file = match folder::open_for_reading(&folder::day_path(folder, day)) {
            // Removed by retention in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let length = file.metadata()?.len();
        status.bytes += length;
        *days.entry(day).or_default() += length;
        if let Some(last) = folder::find_end(&file)?.last
            && last.head.seq > status.last_seq
        {
            status.last_seq = last.head.seq;
            status.last_hash = Some(String::from_utf8_lossy(&last.head.hash).into_owned());
            status.last_time = last.time;
        }
        let mut lines = ForwardLines::new(file, 0)?;
        while let Some(line) = lines.line()? {
            if let Some(line) = RecordLine::parse(line) {
                status.first_seq = status.first_seq.min(line.seq);
                break;
            }
        }
    }
    status.first_seq = status.first_seq.min(status.last_seq);
    // Numbers have no gaps, except where retention removed files in between.
    status.records = if status.last_seq == 0 { 0 } else { status.last_seq - status.first_seq + 1 };
    Ok(status)
}
