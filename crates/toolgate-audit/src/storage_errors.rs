//! Storage errors of the execution log, counted for `/metrics`.
//!
//! Invariant: an error counts once, where the system call failed. Calls that are rejected afterwards, until the next
//! retry, are not errors of the storage.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// An operation of the log on its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageOperation {
    /// Opening, reading or appending to a file.
    Write,
    /// Making records durable.
    Sync,
    /// Reserving disk space for the ends of calls.
    Reserve,
    /// Removing an expired file.
    Remove,
}

impl StorageOperation {
    const ALL: [Self; 4] = [Self::Write, Self::Sync, Self::Reserve, Self::Remove];

    fn label(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Reserve => "reserve",
            Self::Remove => "remove",
        }
    }
}

/// Counters of one log since it was opened.
#[derive(Debug, Default)]
pub(crate) struct StorageErrors {
    errors: [AtomicU64; StorageOperation::ALL.len()],
    lost_records: AtomicU64,
}

impl StorageErrors {
    pub(crate) fn count(&self, operation: StorageOperation) {
        self.errors[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_lost(&self, records: usize) {
        self.lost_records.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Appends the counters in the Prometheus text format.
    pub(crate) fn render(&self, out: &mut String) {
        let name = "toolgate_log_errors_total";
        let _ = writeln!(out, "# HELP {name} Storage errors of the execution log.\n# TYPE {name} counter");
        for operation in StorageOperation::ALL {
            let count = self.errors[operation as usize].load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}{{operation=\"{}\"}} {count}", operation.label());
        }
        let name = "toolgate_log_lost_records_total";
        let help = "Records that the execution log could not write and had no memory to keep.";
        let lost = self.lost_records.load(Ordering::Relaxed);
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {lost}");
    }
}

#[test]
fn renders_prometheus_text() {
    let errors = StorageErrors::default();
    errors.count(StorageOperation::Sync);
    errors.count(StorageOperation::Sync);
    errors.count_lost(3);
    let mut text = String::new();
    errors.render(&mut text);
    let expected = r#"# HELP toolgate_log_errors_total Storage errors of the execution log.
# TYPE toolgate_log_errors_total counter
toolgate_log_errors_total{operation="write"} 0
toolgate_log_errors_total{operation="sync"} 2
toolgate_log_errors_total{operation="reserve"} 0
toolgate_log_errors_total{operation="remove"} 0
# HELP toolgate_log_lost_records_total Records that the execution log could not write and had no memory to keep.
# TYPE toolgate_log_lost_records_total counter
toolgate_log_lost_records_total 3
"#;
    assert_eq!(text, expected);
}
