//! Writes calls to the execution log: before they are sent, and when they end.

use std::time::{Duration, SystemTime};

use toolgate_audit as audit;
use toolgate_audit::spans::SpanContext;
use toolgate_redact as redact;
use toolgate_types::call::OperationKind;
use toolgate_types::{CallError, Caller, ErrorCode, Stage};

use super::{CallOutcome, CallState, Operation, shown_name};
use crate::catalog::CatalogTool;
use crate::runtime::Runtime;

impl Runtime {
    /// Records that a call is about to be sent. A call that cannot be recorded is not made.
    pub(super) async fn record_begin(
        &self,
        state: &mut CallState,
        caller: &Caller,
        operation: &Operation,
        tool: &CatalogTool,
    ) -> Result<(), CallError> {
        let Some(log) = &self.recorder.log else { return Ok(()) };
        let begin = state.begin_record(&state.call.id, caller, operation);
        let begun = log.begin(&begin, begin_durability(tool)).await;
        let begun = match begun {
            // Stored before the wait: if the caller disconnects meanwhile, the call is recorded by `open` alone.
            Ok(open) => state.open.insert(open).acknowledged().await,
            Err(error) => Err(error),
        };
        if begun.is_err() {
            // If the begin record is in the log all the same, the open call writes its end.
            state.open.take_if(|open| !open.is_recorded());
        }
        let note = match begun {
            Ok(()) => None,
            // The log writes both records when the disk has space again.
            Err(error) if tool.contract.idempotent && log.allows_unrecorded(&error) => {
                Some("later: the disk is full".into())
            }
            Err(error) => return Err(recording_failed(error)),
        };
        state.record_stage(Stage::Record, note);
        Ok(())
    }

    /// Exports the span of a call, if there is an exporter.
    pub(super) fn export_span(
        &self,
        begin: &audit::CallBegin<'_>,
        end: &audit::CallEnd<'_>,
        operation: &Operation,
    ) {
        let Some(spans) = &self.recorder.spans else { return };
        let (parent, server_span) = (operation.trace.parent_span_id(), operation.trace.span_id());
        spans.send(begin, end, SpanContext { parent, server_span, ended: SystemTime::now() });
    }

    /// Records the end of a call. Calls that were never sent get both of their records now.
    pub(super) async fn record_end(
        &self,
        mut state: CallState,
        caller: &Caller,
        operation: &Operation,
        outcome: &CallOutcome,
        took: Duration,
    ) {
        if self.recorder.log.is_none() && self.recorder.spans.is_none() {
            return;
        }
        let CallOutcome { result, reply, steps, .. } = outcome;
        let end = audit::CallEnd {
            status: if result.error.is_none() {
                audit::CallStatus::Success
            } else {
                audit::CallStatus::Error
            },
            error: result.error.as_ref().map(Into::into),
            attempts: state.attempts,
            cached: state.cached.is_some(),
            took,
            stages: steps,
            // The full output, even if the caller gets a preview.
            output: state.reply.as_ref().or(reply.as_ref()).or(result.data.as_ref()),
            secret: state.tool.as_ref().map(|tool| &tool.compiled().secret.1),
            upstream: state.upstream.as_ref(),
        };
        let caller_secrets = self.sources.logins().secrets.of(&caller.id);
        state.caller_secrets.clone_from(&caller_secrets);
        let open = state.open.take();
        let written = match open {
            // Waits for no sync: the begin record proves that the call was sent. If a power failure destroys the end,
            // the call has no end, so its outcome is unknown.
            Some(mut open) => {
                if self.recorder.spans.is_some() {
                    let begin = state.begin_record(&state.call.id, caller, operation);
                    self.export_span(&begin, &end, operation);
                }
                if let Some(secrets) = &caller_secrets {
                    open.add_secrets(secrets);
                }
                open.end(&end, audit::Durability::Written).await
            }
            None => {
                let secret = self.hidden_tool_secrets(&state, operation);
                let mut begin = state.begin_record(&state.call.id, caller, operation);
                begin.secret = begin.secret.or(secret.as_ref());
                self.export_span(&begin, &end, operation);
                let Some(log) = &self.recorder.log else { return };
                log.record(&begin, &end, audit::Durability::Written).await
            }
        };
        if let Err(error) = written {
            tracing::error!("the end of a call is not in the execution log yet: {error}");
        }
    }

    /// Secret fields of a tool that was hidden from this caller: arguments meant for it must be redacted as well.
    pub(super) fn hidden_tool_secrets(
        &self,
        state: &CallState,
        operation: &Operation,
    ) -> Option<audit::SecretFields> {
        let catalog = self.catalog();
        let is_tool = operation.kind() == OperationKind::Tool;
        let tool = if state.tool.is_none() && is_tool { catalog.resolve(operation.name()) } else { None };
        tool.map(|tool| tool.secret_arguments())
    }

    /// Redacts secrets in a string.
    pub fn redact(&self, text: &str) -> String {
        match &self.recorder.log {
            Some(log) => log.mask(text),
            None => redact::mask(text, &self.secrets()),
        }
    }
}

fn recording_failed(error: audit::LogUnavailable) -> CallError {
    CallError::new(
        ErrorCode::StorageUnavailable,
        Stage::Record,
        "the call cannot be recorded, so it was not made",
    )
    .with_hint("check the disk that holds the execution log")
    .with_source(error)
}

impl CallState {
    pub(super) fn begin_record<'a>(
        &'a self,
        id: &'a str,
        caller: &'a Caller,
        operation: &'a Operation,
    ) -> audit::CallBegin<'a> {
        let tool = self.tool.as_deref().or(self.hidden_tool.as_deref());
        audit::CallBegin {
            call: id,
            caller: caller.id.as_str(),
            operation: operation.kind(),
            tool: tool.map_or_else(|| shown_name(operation.name()), |tool| tool.name.as_str()),
            correlation: operation.trace.correlation_id(),
            correlation_from_client: operation.trace.is_from_client(),
            trace: operation.trace.trace_id(),
            session: operation.origin.session_id(),
            user: operation.origin.user.as_deref(),
            agent_version: operation.origin.agent_version.as_deref(),
            server: tool.and_then(|tool| tool.server.as_ref()).map(toolgate_types::ServerName::as_str),
            definition: tool.and_then(|tool| tool.hash.as_deref()),
            decision: self.decision,
            rules: &self.rules,
            asked: self.approved_by.as_deref(),
            refused_by: self.refused_by.as_deref(),
            identity: audit::CallIdentity {
                secrets: self.caller_secrets.as_ref(),
                ..audit::CallIdentity::from(caller)
            },
            tainted: self.tainted,
            deprecated: tool.is_some_and(|tool| tool.deprecated.is_some()),
            arguments: operation.arguments.raw(),
            secret: tool.map(|tool| &tool.compiled().secret.0),
        }
    }
}

/// Durability of the begin record. The call is sent once the record has it. The record of a call that must not be
/// repeated has to survive a power failure. A call that only reads leaves nothing behind that would need proof.
fn begin_durability(tool: &CatalogTool) -> audit::Durability {
    if tool.contract.idempotent || tool.declared_read_only {
        audit::Durability::Written
    } else {
        audit::Durability::Synced
    }
}
