//! Approval: a person approves the call, or the call ends here.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, Either, select};
use serde_json::Value;
use tokio::time::timeout;
use toolgate_policy::{Approval, Grant, Question as PolicyQuestion};
use toolgate_types::call::Denial;
use toolgate_types::{CallError, ErrorCode, Stage};
use toolgate_upstream::RawJson;

use super::Operation;
use crate::catalog::CatalogTool;
use crate::operation::CallApprover;
use crate::questions::{
    Answer, ApprovalQuestion, ClientResponder, HumanReply, NoAnswer, Question, QuestionContext,
    Responder as _, ShownArguments,
};
use crate::runtime::Runtime;
use crate::session_approvals::AskedCall;

/// Time a person has to approve a call, whatever its timeout is. The policy ignores approvals that arrive later.
pub(crate) const MAX_APPROVAL_WAIT: Duration = Duration::from_secs(590);

impl Runtime {
    /// Asks for approval. Arguments that cannot be shown to a person cannot be approved.
    pub(super) async fn request_approval(
        &self,
        question: Box<PolicyQuestion>,
        tool: &CatalogTool,
        operation: &Operation,
        (approved_by, tainted): (Option<&str>, bool),
    ) -> Result<Grant, CallError> {
        if let Some(by) = approved_by {
            return self.grant_approved(*question, tool, by);
        }
        let rules = question.rules().to_vec();
        let context = QuestionContext {
            server: tool.server.as_ref().map(ToString::to_string),
            original: Some(tool.original.clone()),
            correlation: Some(operation.trace.correlation_id().to_owned()),
            tainted: Some(tainted),
            rules: rules.clone(),
            policy: Some(question.policy.to_string()),
            definition: question.definition.as_deref().map(str::to_owned),
        };
        let denied = |why: String, hint: Option<String>, refused_by: Option<String>| {
            let mut error = CallError::new(ErrorCode::Unauthorized, Stage::Authorize, why);
            error.hint = hint;
            let denial = Denial { missing: Vec::new(), rules, not_approved: true, refused_by };
            error.denial = Some(Box::new(denial));
            error
        };
        let params = sent_params(&question.arguments, operation);
        let call = AskedCall::new(&question, operation.origin.session.as_ref(), &params, tainted);
        let approvals = &self.access.session_approvals;
        let arguments = match ShownArguments::new(&params) {
            Ok(arguments) => arguments,
            Err(why) => {
                let hint = Some("send fewer arguments".to_owned());
                return Err(denied(format!("not approved: {why}"), hint, None));
            }
        };
        let asked = Question::Approval(ApprovalQuestion {
            text: question.text.clone(),
            arguments,
            caller: question.caller.clone(),
            tool: question.tool.to_string(),
            session: operation.origin.session_id().map(str::to_owned),
            context,
        });
        let asked = Arc::new(asked);
        let client = operation.origin.forwarded.client.as_ref().filter(|_| operation.origin.client_approves);
        let client = client.and_then(|client| ClientResponder::for_approval(Arc::clone(client)));
        let approver = operation.origin.approver.as_ref();
        let responder = approver.map_or(&self.access.responder, |CallApprover(responder)| responder);
        let people = async {
            let people = responder.ask(Arc::clone(&asked));
            match &client {
                None => people.await,
                Some(client) => first_answer(client.ask(Arc::clone(&asked)), people).await,
            }
        };
        // An answer for the session may come while this question is open, or may have come before.
        let answer = tokio::select! {
            biased;
            earlier = approvals.answer(call.as_ref()) => Ok(Ok(earlier)),
            answer = timeout(MAX_APPROVAL_WAIT, people) => answer,
        };
        if let (Ok(Ok(HumanReply { answer: Answer::ForSession { approve, scope }, by })), Some(call)) =
            (&answer, &call)
        {
            approvals.insert(call, *scope, *approve, by);
        }
        let by = match answer {
            Ok(Ok(HumanReply { answer: Answer::Value(Value::Bool(true)), by })) => by,
            Ok(Ok(HumanReply { answer: Answer::ForSession { approve: true, .. }, by })) => by,
            refused => {
                let refused = refused.ok();
                let by = refused.as_ref().and_then(|reply| Some(reply.as_ref().ok()?.by.clone()));
                let hint = refused.map(denial_hint);
                return Err(denied(format!("not approved: {}", question.text), hint, by));
            }
        };
        self.grant_approved(*question, tool, &by)
    }

    /// Turns the yes of a person into a grant, unless the tool or the policy has changed since the question.
    fn grant_approved(
        &self,
        question: PolicyQuestion,
        tool: &CatalogTool,
        by: &str,
    ) -> Result<Grant, CallError> {
        let access = self.access.rules();
        let approval = Approval {
            by,
            definition: tool.hash.as_deref(),
            policy: access.policy.version(),
            now: SystemTime::now(),
        };
        let rules = question.rules().to_vec();
        question.approve(approval).map_err(|stale| {
            let mut error = CallError::new(ErrorCode::Unauthorized, Stage::Authorize, stale.to_string());
            let denial = Denial { missing: Vec::new(), rules, not_approved: true, refused_by: None };
            error.denial = Some(Box::new(denial));
            error
        })
    }
}

/// Returns the first answer of two. A side that reaches no person leaves the answer to the other.
async fn first_answer(
    one: BoxFuture<'_, Result<HumanReply, NoAnswer>>,
    other: BoxFuture<'_, Result<HumanReply, NoAnswer>>,
) -> Result<HumanReply, NoAnswer> {
    match select(one, other).await {
        Either::Left((Err(_), rest)) | Either::Right((Err(_), rest)) => rest.await,
        Either::Left((reply, _)) | Either::Right((reply, _)) => reply,
    }
}

/// The part of a call that the approver sees: the arguments, or all parameters if the client sent more than arguments,
/// because the server gets them too.
fn sent_params(arguments: &RawJson, operation: &Operation) -> RawJson {
    match operation.origin.forwarded.extra_members() {
        None => arguments.clone(),
        Some(extra) => {
            let (arguments, extra) = (arguments.as_str(), extra.as_str().trim_start_matches('{'));
            RawJson::from_trusted(format!("{{\"arguments\":{arguments},{extra}"))
        }
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
