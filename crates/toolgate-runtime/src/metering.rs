//! What is counted of calls, for whoever watches; and what is made ready before the first.
//!
//! Invariant: every call that ended is counted once, under the name of a tool that there is or under one
//! name for all others.

use std::time::Duration;

use toolgate_audit::{Log, Metrics};
use toolgate_types::CallError;

use crate::catalog::CatalogTool;
use crate::runtime::Runtime;

impl Runtime {
    /// The numbers of all tools.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The log, where calls are written down.
    pub fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// A call ended.
    pub(crate) fn count(
        &self,
        tool: Option<&CatalogTool>,
        error: Option<&CallError>,
        took: Duration,
        cached: bool,
    ) {
        let code = error.map(|error| error.code);
        match tool {
            Some(tool) => self.guard(tool).metrics.ended(code, took, cached),
            None => self.metrics.unknown().ended(code, took, cached),
        }
    }

    /// Whoever made a call left before its end.
    pub(crate) fn count_left(&self, tool: Option<&CatalogTool>, took: Duration) {
        match tool {
            Some(tool) => self.guard(tool).metrics.abandoned(took),
            None => self.metrics.unknown().abandoned(took),
        }
    }

    /// Makes ready what a first call would have to wait for: the schemas of all tools. Takes as long as that
    /// takes, so it is nothing for a thread that others wait for.
    pub fn prepare(&self) {
        for tool in self.catalog().tools() {
            tool.compiled();
        }
    }
}
