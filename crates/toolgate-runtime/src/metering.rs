//! Call metrics.
//!
//! Invariant: every call is counted exactly once, under its tool or, if the tool is unknown, under one common name.

use std::time::Duration;

use toolgate_types::CallError;

use crate::catalog::CatalogTool;
use crate::runtime::Runtime;

impl Runtime {
    /// Counts a call that ended.
    pub(crate) fn count_call(
        &self,
        tool: Option<&CatalogTool>,
        error: Option<&CallError>,
        took: Duration,
        cached: bool,
    ) {
        let code = error.map(|error| error.code);
        match tool {
            Some(tool) => self.shared_state(tool).metrics.record_end(code, took, cached),
            None => self.metrics().unknown_tool().record_end(code, took, cached),
        }
    }

    /// Counts a call whose caller disconnected before its end.
    pub(crate) fn count_abandoned(&self, tool: Option<&CatalogTool>, took: Duration) {
        match tool {
            Some(tool) => self.shared_state(tool).metrics.record_abandoned(took),
            None => self.metrics().unknown_tool().record_abandoned(took),
        }
    }
}
