//! `results`: what happens to those that are too large to be given whole.

use toolgate_types::caller::PermissionPattern;
use toolgate_types::limits::ResultLimits;
use toolgate_types::{ByteSize, HumanDuration};

use crate::file::ResultsFile;
use crate::settle::Draft;

impl Draft {
    pub(crate) fn results(&mut self, file: ResultsFile) {
        self.origins("results", file.written());
        self.results = Some(ResultLimits {
            max_inline: file.max_inline.map_or(ByteSize::from_bytes(64 << 10), |at| at.value),
            keep: file.keep.map_or(HumanDuration::from_secs(3_600), |at| at.value),
            max_disk: file.max_disk.map_or(ByteSize::from_mib(256), |at| at.value),
        });
    }

    /// Who may call a tool may read all of its result: `read_result` gives nobody what is another's.
    pub(super) fn own_results_for_all(&mut self) {
        let permission = "tools:read_result".parse::<PermissionPattern>().expect("it is a pattern");
        for (caller, _) in &mut self.callers {
            caller.permissions.push(permission.clone());
        }
    }
}
