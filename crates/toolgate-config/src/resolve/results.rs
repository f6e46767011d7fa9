//! Resolves `results`: the limits of stored results.

use toolgate_types::caller::PermissionPattern;
use toolgate_types::limits::ResultLimits;
use toolgate_types::{ByteSize, HumanDuration};

use crate::file::ResultsFile;
use crate::resolve::ConfigBuilder;

impl ConfigBuilder {
    pub(crate) fn set_results(&mut self, file: ResultsFile) {
        self.record_origins("results", file.value_spans());
        self.results = Some(ResultLimits {
            max_inline: file.max_inline.map_or(ByteSize::from_bytes(64 << 10), |at| at.value),
            keep: file.keep.map_or(HumanDuration::from_secs(3_600), |at| at.value),
            max_disk: file.max_disk.map_or(ByteSize::from_mib(256), |at| at.value),
        });
    }

    /// Lets every caller use `read_result`. This is safe because it returns only the caller's own results.
    pub(super) fn grant_read_result(&mut self) {
        let permission = "tools:read_result".parse::<PermissionPattern>().expect("it is a pattern");
        for (caller, _) in &mut self.callers {
            caller.permissions.push(permission.clone());
        }
    }
}
