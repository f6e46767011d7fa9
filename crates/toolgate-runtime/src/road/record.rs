//! What is written down of a call: before it is sent, and when it has ended.

use std::time::{Duration, SystemTime};

use toolgate_audit as audit;
use toolgate_audit::spans::Place;
use toolgate_types::{CallError, Caller, ErrorCode, Stage, redact};

use super::{CallRequest, Called, Passage, Step};
use crate::catalog::CatalogTool;
use crate::runtime::Runtime;

impl Runtime {
    /// Writes down that a call is about to be made. One that cannot be written down is not made.
    pub(super) async fn open(
        &self,
        passage: &mut Passage,
        caller: &Caller,
        request: &CallRequest,
        tool: &CatalogTool,
    ) -> Result<(), CallError> {
        let Some(log) = self.log.get() else { return Ok(()) };
        let id = log.call_id();
        let opened = log.begin(&passage.begin(&id, caller, request), durability(tool)).await;
        passage.id = Some(id);
        let note = match opened {
            Ok(open) => {
                passage.open = Some(open);
                None
            }
            // Both of its records are written when there is room again.
            Err(refused) if tool.contract.idempotent && log.goes_on(&refused) => {
                Some("later: the disk is full".to_owned())
            }
            Err(refused) => return Err(not_written_down(refused)),
        };
        passage.passed(Stage::Record, note);
        Ok(())
    }

    /// Tells the collector of traces, where there is one.
    pub(super) fn span(&self, begin: &audit::Begin<'_>, end: &audit::End<'_>, request: &CallRequest) {
        let Some(spans) = self.spans.get() else { return };
        let (parent, told) = (request.trace.parent(), request.trace.span_id());
        spans.send(begin, end, Place { parent, told, ended: SystemTime::now() });
    }

    /// Writes down how a call ended. What was sent is in the log already; what was not gets both of its
    /// records now.
    pub(super) async fn write_down(
        &self,
        mut passage: Passage,
        caller: &Caller,
        request: &CallRequest,
        called: &Called,
        took: Duration,
    ) {
        if self.log.get().is_none() && self.spans.get().is_none() {
            return;
        }
        let Called { result, reply, steps, .. } = called;
        let stages: Vec<_> = steps.iter().map(logged).collect();
        let end = audit::End {
            status: if result.error.is_none() { audit::Status::Success } else { audit::Status::Error },
            error: result.error.as_ref().map(Into::into),
            attempts: passage.attempts,
            cached: result.metadata.cached,
            took,
            stages: &stages,
            // All of it, also where the caller gets less.
            output: passage.reply.as_ref().or(reply.as_ref()).or(result.data.as_ref()),
            secret: passage.tool.as_ref().map(|tool| &tool.compiled().secret.1),
        };
        let open = passage.open.take();
        // A call that is written down nowhere else is known by its trace.
        let new = || self.log.get().map_or_else(|| request.trace.trace_id().to_owned(), audit::Log::call_id);
        let id = passage.id.take().unwrap_or_else(new);
        let secret = self.secret_of_unknown(&passage, request);
        let mut begin = passage.begin(&id, caller, request);
        begin.secret = begin.secret.or(secret.as_ref());
        self.span(&begin, &end, request);
        let Some(log) = self.log.get() else { return };
        let written = match open {
            Some(open) => {
                let durability = passage.tool.as_deref().map_or(audit::Durability::Written, durability);
                open.end(&end, durability).await
            }
            None => log.record(&begin, &end, audit::Durability::Written).await,
        };
        if let Err(error) = written {
            tracing::error!("a call that ended is not in the execution log yet: {error}");
        }
    }

    /// Of a tool that was not found for this caller: what was meant for it stays secret too.
    pub(super) fn secret_of_unknown(
        &self,
        passage: &Passage,
        request: &CallRequest,
    ) -> Option<audit::SecretFields> {
        let catalog = self.catalog();
        let tool = if passage.tool.is_none() { catalog.resolve(&request.name) } else { None };
        tool.map(|tool| tool.secret_arguments())
    }

    /// A text without what must not be shown.
    pub fn masked(&self, text: &str) -> String {
        match self.log.get() {
            Some(log) => log.masked(text),
            None => redact::mask(text, &self.secrets()),
        }
    }
}

fn not_written_down(refused: audit::Unavailable) -> CallError {
    CallError::new(
        ErrorCode::StorageUnavailable,
        Stage::Record,
        "the call cannot be written down, so it is not made",
    )
    .hint("look at the disk that holds the execution log")
    .because(refused)
}

impl Passage {
    pub(super) fn begin<'a>(
        &'a self,
        id: &'a str,
        caller: &'a Caller,
        request: &'a CallRequest,
    ) -> audit::Begin<'a> {
        let tool = self.tool.as_deref();
        audit::Begin {
            call: id,
            caller: caller.id.as_str(),
            tool: tool.map_or(request.name.as_str(), |tool| tool.name.as_str()),
            correlation: request.trace.correlation_id(),
            correlation_from_client: request.trace.is_from_client(),
            trace: request.trace.trace_id(),
            session: request.origin.session.as_deref(),
            server: tool.and_then(|tool| tool.server.as_ref()).map(toolgate_types::ServerName::as_str),
            definition: tool.and_then(|tool| tool.hash.as_deref()),
            decision: self.decision,
            rules: &self.rules,
            asked: self.asked.as_deref(),
            arguments: request.arguments.raw(),
            secret: tool.map(|tool| &tool.compiled().secret.0),
        }
    }
}

fn logged(step: &Step) -> audit::StageTime<'_> {
    let micros = u64::try_from(step.micros).unwrap_or(u64::MAX);
    audit::StageTime { stage: step.stage, micros, note: step.note.as_deref() }
}

/// A call that must not be made twice must not be lost, not even with the machine.
fn durability(tool: &CatalogTool) -> audit::Durability {
    if tool.contract.idempotent { audit::Durability::Written } else { audit::Durability::Synced }
}
