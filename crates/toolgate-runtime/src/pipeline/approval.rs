//! Approval: a person approves the call, or the call ends here.

use std::time::SystemTime;

use tokio::time::{Instant, timeout_at};
use toolgate_policy::{Approval, Grant, Question};
use toolgate_types::call::Denial;
use toolgate_types::{CallError, ErrorCode, Stage};

use super::{ApprovalAnswer, CallRequest};
use crate::catalog::CatalogTool;
use crate::replay::NOT_APPROVED;
use crate::runtime::Runtime;

impl Runtime {
    /// Asks for approval. The approver's own timeout applies, if it has one, otherwise the deadline of the call.
    pub(super) async fn request_approval(
        &self,
        question: Box<Question>,
        tool: &CatalogTool,
        request: &CallRequest,
        deadline: Instant,
    ) -> Result<Grant, CallError> {
        let until = self.approver.approval_timeout().map_or(deadline, |timeout| Instant::now() + timeout);
        let response = self.approver.ask(&question, &request.origin);
        let answer = timeout_at(until, response).await.unwrap_or(ApprovalAnswer::Denied(String::new()));
        let denied = |why: String| CallError::new(ErrorCode::Unauthorized, Stage::Authorize, why);
        let by = match answer {
            ApprovalAnswer::Approved(by) => by,
            ApprovalAnswer::Denied(why) => {
                let mut error = denied(format!("{NOT_APPROVED}: {}", question.text));
                error.hint = Some(why)
                    .filter(|why| !why.is_empty())
                    .or(self.approver.unavailable_hint().map(str::to_owned));
                let rules = question.rules().to_vec();
                error.denial = Some(Box::new(Denial { missing: Vec::new(), rules }));
                return Err(error);
            }
        };
        let approval = Approval {
            by: &by,
            definition: tool.hash.as_deref(),
            policy: self.policy.version(),
            now: SystemTime::now(),
        };
        question.approve(approval).map_err(|stale| denied(stale.to_string()))
    }
}
