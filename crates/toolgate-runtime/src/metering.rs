//! Call metrics.
//!
//! Invariant: every call is counted exactly once under its caller, and once under its tool or, if the tool is unknown,
//! under one common name.

use std::sync::Arc;
use std::time::Duration;

use toolgate_audit::{CallSample, CallStatus, SampleOutcome, ToolMetrics};
use toolgate_types::{CallError, CallerId, ServerName};

use crate::catalog::CatalogTool;
use crate::runtime::Runtime;

impl Runtime {
    /// Counts a call that ended. `sent` tells if an attempt was made.
    pub(crate) fn count_call(
        &self,
        caller: &CallerId,
        tool: Option<&CatalogTool>,
        error: Option<&CallError>,
        (took, cached, sent): (Duration, bool, bool),
    ) {
        let status = if error.is_none() { CallStatus::Success } else { CallStatus::Error };
        self.metrics().record_caller(caller.as_str(), server_label(tool), status);
        let code = error.map(|error| error.code);
        let outcome =
            code.map_or(SampleOutcome::Success, |code| SampleOutcome::Failed(code, !sent && !cached));
        self.with_tool_metrics(tool, |metrics| {
            metrics.record_end(code, took, cached);
            self.recorder.figures.record(|| sample(metrics, caller, outcome, took, cached));
        });
    }

    /// Counts a call whose caller disconnected before its end.
    pub(crate) fn count_abandoned(&self, caller: &CallerId, tool: Option<&CatalogTool>, took: Duration) {
        self.metrics().record_caller(caller.as_str(), server_label(tool), CallStatus::Abandoned);
        self.with_tool_metrics(tool, |metrics| {
            metrics.record_abandoned(took);
            let outcome = SampleOutcome::Abandoned;
            self.recorder.figures.record(|| sample(metrics, caller, outcome, took, false));
        });
    }

    fn with_tool_metrics(&self, tool: Option<&CatalogTool>, count: impl FnOnce(&Arc<ToolMetrics>)) {
        match tool {
            Some(tool) => count(&self.shared_state(tool).metrics),
            None => count(&self.metrics().unknown_tool()),
        }
    }
}

fn sample(
    tool: &Arc<ToolMetrics>,
    caller: &CallerId,
    outcome: SampleOutcome,
    took: Duration,
    cached: bool,
) -> CallSample {
    CallSample { tool: Arc::clone(tool), caller: caller.clone(), outcome, cached, took }
}

/// The server of a tool, as a label. Own and unknown tools have none.
pub(crate) fn server_label(tool: Option<&CatalogTool>) -> &str {
    tool.and_then(|tool| tool.server.as_ref()).map_or("", ServerName::as_str)
}
