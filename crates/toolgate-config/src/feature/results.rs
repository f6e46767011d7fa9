//! `results`: storage of large results.

use toolgate_types::limits::ResultLimits;
use toolgate_types::{ByteSize, HumanDuration};

use crate::keys::keys;
use crate::resolve::ConfigBuilder;

keys! {
    /// Large results are stored as resources (`toolgate://results/…`). The caller gets a preview and reads the
    /// rest with the tool `read_result`. Every caller may read its own results.
    struct ResultsFile as "results" {
        /// Largest result returned inline.
        max_inline: ByteSize = "64KiB",
        /// Retention of stored results.
        keep: HumanDuration = "1h",
        /// Disk space for all stored results. The oldest are deleted first.
        max_disk: ByteSize = "256MiB",
    }
}

impl ConfigBuilder {
    pub(crate) fn set_results(&mut self, file: ResultsFile) {
        self.record_origins("results", file.value_spans());
        self.results = Some(ResultLimits {
            max_inline: file.max_inline.map_or(ByteSize::from_bytes(64 << 10), |at| at.value),
            keep: file.keep.map_or(HumanDuration::from_secs(3_600), |at| at.value),
            max_disk: file.max_disk.map_or(ByteSize::from_mib(256), |at| at.value),
        });
    }
}
