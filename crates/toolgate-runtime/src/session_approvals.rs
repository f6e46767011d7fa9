//! Answers to approvals that hold for the rest of a session.
//!
//! A person may approve or refuse a call, or all calls of a tool, until the session ends. Invariant: an answer decides
//! only questions of the same caller, session, tool, definition, rules and policy; a yes that was given before untrusted
//! content reached the session does not hold after it. The answers are in memory and bounded: an answer that is dropped
//! is asked for again. Only sessions that Toolgate issued have them, because callers can choose the ids of others.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::watch;
use toolgate_policy::Question;
use toolgate_policy::grant::digest_arguments;
use toolgate_types::CallerId;
use toolgate_upstream::RawJson;

use crate::operation::SessionId;
use crate::questions::{Answer, ApprovalScope, HumanReply};

/// Sessions with answers.
const MAX_SESSIONS: usize = 1_024;
/// Answers of one session. The oldest is dropped.
const MAX_ANSWERS: usize = 128;
/// Added to the name of the person in records of calls that an earlier answer decided.
const FOR_SESSION: &str = ", for the session";

/// A call that needs approval, as far as an earlier answer has to match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedCall {
    session: (CallerId, String),
    rule: AskingRule,
    /// Digest of everything that the person sees of the call.
    params: String,
    tainted: bool,
}

/// The tool and the reason of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AskingRule {
    tool: Box<str>,
    definition: Option<Box<str>>,
    rules: Vec<String>,
    policy: Box<str>,
}

impl AskedCall {
    /// Describes a call. `None` if it belongs to no session that Toolgate issued.
    pub(crate) fn new(
        question: &Question,
        session: Option<&SessionId>,
        params: &RawJson,
        tainted: bool,
    ) -> Option<Self> {
        let Some(SessionId::Issued(session)) = session else { return None };
        let rule = AskingRule {
            tool: question.tool.clone(),
            definition: question.definition.clone(),
            rules: question.rules().to_vec(),
            policy: question.policy.clone(),
        };
        let session = (question.caller.clone(), session.clone());
        Some(Self { session, rule, params: digest_arguments(params), tainted })
    }
}

/// An answer that holds for a session.
#[derive(Debug)]
struct SessionAnswer {
    rule: AskingRule,
    /// `None` if the answer is about all calls of the tool.
    params: Option<String>,
    tainted: bool,
    approve: bool,
    by: String,
}

impl SessionAnswer {
    fn decides(&self, call: &AskedCall) -> bool {
        let is_safe = !self.approve || self.tainted || !call.tainted;
        is_safe && self.rule == call.rule && self.params.as_ref().is_none_or(|params| *params == call.params)
    }
}

/// The answers of all sessions.
pub(crate) struct SessionApprovals {
    sessions: Mutex<HashMap<(CallerId, String), VecDeque<SessionAnswer>>>,
    changes: watch::Sender<()>,
}

impl Default for SessionApprovals {
    fn default() -> Self {
        Self { sessions: Mutex::default(), changes: watch::Sender::new(()) }
    }
}

impl SessionApprovals {
    /// Remembers an answer for the session of a call.
    pub(crate) fn insert(&self, call: &AskedCall, scope: ApprovalScope, approve: bool, by: &str) {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(&call.session) {
            return;
        }
        let by = by.strip_suffix(FOR_SESSION).unwrap_or(by);
        let answers = sessions.entry(call.session.clone()).or_default();
        if answers.len() >= MAX_ANSWERS {
            answers.pop_front();
        }
        answers.push_back(SessionAnswer {
            rule: call.rule.clone(),
            params: (scope == ApprovalScope::Call).then(|| call.params.clone()),
            tainted: call.tainted,
            approve,
            by: by.to_owned(),
        });
        drop(sessions);
        self.changes.send_replace(());
    }

    /// Waits for an answer that decides the call. Ready at once if there is one; the newest wins.
    pub(crate) async fn answer(&self, call: Option<&AskedCall>) -> HumanReply {
        let Some(call) = call else { return std::future::pending().await };
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(reply) = self.find(call) {
                return reply;
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn find(&self, call: &AskedCall) -> Option<HumanReply> {
        let sessions = self.sessions.lock();
        let found = sessions.get(&call.session)?.iter().rev().find(|answer| answer.decides(call))?;
        // A plain answer, so that it is not remembered a second time.
        Some(HumanReply {
            answer: Answer::Value(found.approve.into()),
            by: format!("{}{FOR_SESSION}", found.by),
        })
    }

    /// Forgets the answers of a session.
    pub(crate) fn forget(&self, caller: &CallerId, session: &str) {
        self.sessions.lock().remove(&(caller.clone(), session.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, params: &str, tainted: bool) -> AskedCall {
        let rule = AskingRule {
            tool: tool.into(),
            definition: None,
            rules: vec!["care".to_owned()],
            policy: "1".into(),
        };
        let session = ("ann".parse().expect("an id"), "s".to_owned());
        AskedCall { session, rule, params: params.to_owned(), tainted }
    }

    fn decided(approvals: &SessionApprovals, call: &AskedCall) -> Option<bool> {
        approvals.find(call).map(|reply| reply.answer == Answer::Value(true.into()))
    }

    #[test]
    fn an_answer_decides_its_call_or_its_tool() {
        let approvals = SessionApprovals::default();
        approvals.insert(&call("pay", "5", false), ApprovalScope::Call, true, "bob");
        assert_eq!(decided(&approvals, &call("pay", "5", false)), Some(true));
        assert_eq!(decided(&approvals, &call("pay", "6", false)), None);
        assert_eq!(decided(&approvals, &call("refund", "5", false)), None);
        approvals.insert(&call("refund", "1", false), ApprovalScope::Tool, false, "bob");
        assert_eq!(decided(&approvals, &call("refund", "2", false)), Some(false));
        // The newest answer wins.
        approvals.insert(&call("refund", "2", false), ApprovalScope::Call, true, "bob");
        assert_eq!(decided(&approvals, &call("refund", "2", false)), Some(true));
        assert_eq!(decided(&approvals, &call("refund", "3", false)), Some(false));
    }

    #[test]
    fn a_changed_rule_tool_or_session_is_asked_again() {
        let approvals = SessionApprovals::default();
        let asked = call("pay", "5", false);
        approvals.insert(&asked, ApprovalScope::Tool, true, "bob");
        let (mut rule, mut policy, mut definition, mut session) =
            (asked.clone(), asked.clone(), asked.clone(), asked.clone());
        rule.rule.rules.push("other".to_owned());
        policy.rule.policy = "2".into();
        definition.rule.definition = Some("new".into());
        session.session.1 = "t".to_owned();
        for other in [&rule, &policy, &definition, &session] {
            assert_eq!(decided(&approvals, other), None, "{other:?}");
        }
        approvals.forget(&asked.session.0, "s");
        assert_eq!(decided(&approvals, &asked), None);
    }

    #[test]
    fn a_yes_does_not_outlive_trust() {
        let approvals = SessionApprovals::default();
        approvals.insert(&call("pay", "5", false), ApprovalScope::Tool, true, "bob");
        approvals.insert(&call("refund", "5", false), ApprovalScope::Tool, false, "bob");
        assert_eq!(decided(&approvals, &call("pay", "5", true)), None);
        assert_eq!(decided(&approvals, &call("refund", "5", true)), Some(false), "a no holds");
        approvals.insert(&call("pay", "5", true), ApprovalScope::Tool, true, "bob");
        assert_eq!(decided(&approvals, &call("pay", "6", true)), Some(true));
    }

    #[test]
    fn answers_are_bounded() {
        let approvals = SessionApprovals::default();
        for number in 0..=MAX_ANSWERS {
            approvals.insert(&call("pay", &number.to_string(), false), ApprovalScope::Call, true, "bob");
        }
        assert_eq!(decided(&approvals, &call("pay", "0", false)), None);
        assert_eq!(decided(&approvals, &call("pay", "1", false)), Some(true));
    }
}
