//! Whoever leaves: a call that is dropped on its way is counted and written down all the same.
//!
//! Invariant: every call that began has an end in the log, whatever became of who made it.

use tokio::time::Instant;
use toolgate_audit::{End, Log};
use toolgate_types::{CallError, Caller, ErrorCode, Stage};

use super::{CallRequest, Passage};
use crate::runtime::Runtime;

/// A call on its way.
pub(super) struct Trip<'a> {
    runtime: &'a Runtime,
    caller: &'a Caller,
    request: &'a CallRequest,
    started: Instant,
    /// Nothing, once it has arrived.
    passage: Option<Passage>,
}

impl<'a> Trip<'a> {
    pub(super) fn new(
        runtime: &'a Runtime,
        caller: &'a Caller,
        request: &'a CallRequest,
        started: Instant,
    ) -> Self {
        Self { runtime, caller, request, started, passage: Some(Passage::new(started)) }
    }

    pub(super) fn passage(&mut self) -> &mut Passage {
        self.passage.get_or_insert_with(|| Passage::new(self.started))
    }

    /// It has come to an end of its own.
    pub(super) fn arrived(mut self) -> Passage {
        let passage = self.passage.take();
        passage.unwrap_or_else(|| Passage::new(self.started))
    }
}

impl Drop for Trip<'_> {
    fn drop(&mut self) {
        let Some(passage) = self.passage.take() else { return };
        self.runtime.count_left(passage.tool.as_deref(), self.started.elapsed());
        let last = passage.steps.last().map_or(Stage::Resolve, |step| step.stage);
        let error = CallError::new(ErrorCode::Cancelled, last, "who made the call left");
        let took = self.started.elapsed();
        let log = self.runtime.log();
        let id = passage.id.clone().or_else(|| log.map(Log::call_id)).unwrap_or_default();
        let secret = self.runtime.secret_of_unknown(&passage, self.request);
        let mut begin = passage.begin(&id, self.caller, self.request);
        begin.secret = begin.secret.or(secret.as_ref());
        self.runtime.span(&begin, &End::abandoned(&error, took), self.request);
        // What is in the log already is closed by its own guard.
        if passage.open.is_none()
            && let Some(log) = log
        {
            log.abandoned(&begin, &error, took);
        }
    }
}
