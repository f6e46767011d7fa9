//! Approvals through the question queue: a call waits until a person approves or denies it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use tokio::time::Instant;
use toolgate_policy::Question;
use toolgate_redact::sanitize::sanitize;

use super::{Answer, HumanReply, NewQuestion, NoAnswer, QuestionKind, QuestionQueue};
use crate::pipeline::{ApprovalAnswer, Approver, CallOrigin};

/// Upper limit of the wait. The policy ignores approvals that arrive later.
const MAX_WAIT: Duration = Duration::from_secs(590);
/// Bytes of the arguments shown to people.
const MAX_ARGUMENT_BYTES: usize = 16 << 10;

/// Asks for approval through the question queue.
pub struct QueueApprover(pub Arc<QuestionQueue>);

impl Approver for QueueApprover {
    fn ask(&self, question: &Question, origin: &CallOrigin) -> BoxFuture<'static, ApprovalAnswer> {
        let arguments = sanitize(question.arguments.as_str()).into_owned();
        let shown_bytes = arguments.floor_char_boundary(MAX_ARGUMENT_BYTES);
        let rest = arguments.len() - shown_bytes;
        let arguments = if rest > 0 {
            format!("{}… and {rest} bytes more", &arguments[..shown_bytes])
        } else {
            arguments
        };
        let new_question = NewQuestion {
            kind: QuestionKind::Approval,
            text: question.text.clone(),
            choices: Vec::new(),
            schema: None,
            arguments: Some(arguments),
            caller: question.caller.clone(),
            tool: question.tool.to_string(),
            session: origin.session.clone(),
        };
        let queue = Arc::clone(&self.0);
        let deadline = Instant::now() + queue.timeout().get().min(MAX_WAIT);
        Box::pin(async move {
            match queue.ask(new_question, None, deadline).await {
                Ok(HumanReply { answer: Answer::Value(Json::Bool(true)), by }) => {
                    ApprovalAnswer::Approved(by)
                }
                Ok(HumanReply { by, .. }) => ApprovalAnswer::Denied(format!("{by} said no")),
                Err(NoAnswer::TimedOut) => ApprovalAnswer::Denied(
                    "no one answered in time; people answer with `toolgate questions` or at /v1/approvals"
                        .to_owned(),
                ),
                Err(why) => ApprovalAnswer::Denied(why.to_string()),
            }
        })
    }

    fn approval_timeout(&self) -> Option<Duration> {
        // The queue enforces its own timeout; this is only a safety net.
        Some(MAX_WAIT)
    }
}
