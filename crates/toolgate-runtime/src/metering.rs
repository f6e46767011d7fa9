//! Call metrics.
//!
//! Invariant: every call is counted exactly once under its caller, and once under its tool or, if the tool is unknown,
//! under one common name.

use std::time::Duration;

use toolgate_audit::CallStatus;
use toolgate_types::{CallError, CallerId, ServerName};

use crate::catalog::CatalogTool;
use crate::runtime::Runtime;

impl Runtime {
    /// Counts a call that ended.
    pub(crate) fn count_call(
        &self,
        caller: &CallerId,
        tool: Option<&CatalogTool>,
        error: Option<&CallError>,
        (took, cached): (Duration, bool),
    ) {
        let status = if error.is_none() { CallStatus::Success } else { CallStatus::Error };
        self.metrics().record_caller(caller.as_str(), server_label(tool), status);
        let code = error.map(|error| error.code);
        match tool {
            Some(tool) => self.shared_state(tool).metrics.record_end(code, took, cached),
            None => self.metrics().unknown_tool().record_end(code, took, cached),
        }
    }

    /// Counts a call whose caller disconnected before its end.
    pub(crate) fn count_abandoned(&self, caller: &CallerId, tool: Option<&CatalogTool>, took: Duration) {
        self.metrics().record_caller(caller.as_str(), server_label(tool), CallStatus::Abandoned);
        match tool {
            Some(tool) => self.shared_state(tool).metrics.record_abandoned(took),
            None => self.metrics().unknown_tool().record_abandoned(took),
        }
    }
}

/// The server of a tool, as a label. Own and unknown tools have none.
pub(crate) fn server_label(tool: Option<&CatalogTool>) -> &str {
    tool.and_then(|tool| tool.server.as_ref()).map_or("", ServerName::as_str)
}
