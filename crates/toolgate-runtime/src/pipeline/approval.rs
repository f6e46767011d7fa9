//! Approval: a person approves the call, or the call ends here.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::time::timeout;
use toolgate_policy::{Approval, Grant, Question as PolicyQuestion};
use toolgate_redact::sanitize::sanitize;
use toolgate_types::call::Denial;
use toolgate_types::{CallError, ErrorCode, Stage};

use super::CallRequest;
use crate::catalog::CatalogTool;
use crate::questions::{Answer, ApprovalQuestion, HumanReply, NoAnswer, Question};
use crate::replay::NOT_APPROVED;
use crate::runtime::Runtime;

/// Time a person has to approve a call, whatever its timeout is. The policy ignores approvals that arrive later.
pub(crate) const MAX_APPROVAL_WAIT: Duration = Duration::from_secs(590);

impl Runtime {
    /// Asks for approval.
    pub(super) async fn request_approval(
        &self,
        question: Box<PolicyQuestion>,
        tool: &CatalogTool,
        request: &CallRequest,
    ) -> Result<Grant, CallError> {
        let asked = Question::Approval(ApprovalQuestion {
            text: question.text.clone(),
            arguments: sanitize(question.arguments.as_str()).into_owned(),
            caller: question.caller.clone(),
            tool: question.tool.to_string(),
            session: request.origin.session.clone(),
        });
        let answer = timeout(MAX_APPROVAL_WAIT, self.access.responder.ask(Arc::new(asked))).await;
        let denied = |why: String| CallError::new(ErrorCode::Unauthorized, Stage::Authorize, why);
        let by = match answer {
            Ok(Ok(HumanReply { answer: Answer::Value(Value::Bool(true)), by })) => by,
            refused => {
                let mut error = denied(format!("{NOT_APPROVED}: {}", question.text));
                error.hint = refused.ok().map(denial_hint);
                let rules = question.rules().to_vec();
                error.denial = Some(Box::new(Denial { missing: Vec::new(), rules }));
                return Err(error);
            }
        };
        let approval = Approval {
            by: &by,
            definition: tool.hash.as_deref(),
            policy: self.access.policy.version(),
            now: SystemTime::now(),
        };
        question.approve(approval).map_err(|stale| denied(stale.to_string()))
    }
}

/// Tells the caller why a call was not approved.
fn denial_hint(reply: Result<HumanReply, NoAnswer>) -> String {
    match reply {
        Ok(HumanReply { by, .. }) => format!("{by} said no"),
        Err(NoAnswer::NoResponder) => {
            "no person can be reached here; run `toolgate tools call` in a terminal to approve the call"
                .to_owned()
        }
        Err(NoAnswer::TimedOut) => {
            "no one answered in time; people answer with `toolgate questions` or at /v1/approvals".to_owned()
        }
        Err(why) => why.to_string(),
    }
}
