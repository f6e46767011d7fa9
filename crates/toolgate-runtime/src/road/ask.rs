//! A rule that asks: a person says yes, or the call ends here.

use std::time::SystemTime;

use tokio::time::{Instant, timeout_at};
use toolgate_policy::{Approved, Grant, Question};
use toolgate_types::call::Denial;
use toolgate_types::{CallError, ErrorCode, Stage};

use super::{CallRequest, Verdict};
use crate::catalog::CatalogTool;
use crate::replay::NOBODY;
use crate::runtime::Runtime;

impl Runtime {
    /// A yes, or why there is none. People have a time of their own, where they can take one.
    pub(super) async fn ask_somebody(
        &self,
        question: Box<Question>,
        tool: &CatalogTool,
        request: &CallRequest,
        deadline: Instant,
    ) -> Result<Grant, CallError> {
        let until = self.approver.patience().map_or(deadline, |patience| Instant::now() + patience);
        let answer = self.approver.ask(&question, &request.origin);
        let said = timeout_at(until, answer).await.unwrap_or(Verdict::No(String::new()));
        let no = |why: String| CallError::new(ErrorCode::Unauthorized, Stage::Authorize, why);
        let by = match said {
            Verdict::Yes(by) => by,
            Verdict::No(why) => {
                let mut error = no(format!("{NOBODY}: {}", question.text));
                error.hint =
                    Some(why).filter(|why| !why.is_empty()).or(self.approver.absence().map(str::to_owned));
                let rules = question.rules().to_vec();
                error.denial = Some(Box::new(Denial { missing: Vec::new(), rules }));
                return Err(error);
            }
        };
        let yes = Approved {
            by: &by,
            definition: tool.hash.as_deref(),
            policy: self.policy.version(),
            now: SystemTime::now(),
        };
        question.approved(yes).map_err(|stale| no(stale.to_string()))
    }
}
