//! Access to tools: callers, policy, profiles, taint, and approvals by a person.
//!
//! Callers and policy are replaced together, and so are the profiles. Invariant: a call is decided by the rules of one
//! moment: those that a front end authenticated its caller by, if it names them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::time::Instant;
use toolgate_policy::Policy;
use toolgate_types::{Caller, CallerId, Profile, Profiles};
use toolgate_upstream::Responder;

use super::Runtime;
use crate::catalog::CatalogTool;
use crate::operation::SessionId;
use crate::session_approvals::SessionApprovals;
use crate::taint::TaintTracker;

/// Callers and policy of one moment.
#[derive(Debug, Default)]
pub struct AccessRules {
    /// Known callers with their permissions.
    pub callers: Vec<Caller>,
    pub policy: Policy,
}

impl AccessRules {
    pub fn caller(&self, id: &str) -> Option<&Caller> {
        self.callers.iter().find(|caller| caller.id.as_str() == id)
    }
}

/// Everything that decides if a caller may use a tool.
pub(crate) struct AccessControl {
    rules: ArcSwap<AccessRules>,
    profiles: ArcSwap<Profiles>,
    pub(crate) taint: TaintTracker,
    pub(crate) responder: Arc<dyn Responder>,
    pub(crate) session_approvals: SessionApprovals,
}

impl AccessControl {
    pub(super) fn new(
        rules: AccessRules,
        profiles: Arc<Profiles>,
        responder: Arc<dyn Responder>,
        taint: TaintTracker,
    ) -> Self {
        let profiles = ArcSwap::new(profiles);
        let rules = ArcSwap::from_pointee(rules);
        Self { rules, profiles, taint, responder, session_approvals: SessionApprovals::default() }
    }

    /// The rules in use.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        self.rules.load_full()
    }

    /// Returns true if the tool is in a profile of the caller. A caller that is bound to profiles has only their tools,
    /// whatever front end it uses.
    pub(crate) fn is_in_profiles(&self, caller: &Caller, tool: &CatalogTool) -> bool {
        self.is_in_some_profile(caller, |profile| tool.is_in_profile(profile))
    }

    /// Returns true if the caller is bound to no profile, or `includes` holds for a profile it is bound to.
    pub(crate) fn is_in_some_profile(&self, caller: &Caller, includes: impl Fn(&Profile) -> bool) -> bool {
        match self.profiles.load().bound_profiles(&caller.id) {
            None => true,
            Some(mut profiles) => profiles.any(|profile| includes(profile)),
        }
    }
}

impl Runtime {
    pub fn caller(&self, id: &str) -> Option<Caller> {
        self.access.rules.load().caller(id).cloned()
    }

    /// Returns the callers and the policy in use.
    pub fn access_rules(&self) -> Arc<AccessRules> {
        self.access.rules()
    }

    /// Replaces callers and policy. Calls that were decided go on; every later decision is by the new rules.
    pub fn set_access_rules(&self, rules: Arc<AccessRules>) {
        let before = self.access.rules.swap(rules);
        let now = self.access.rules();
        if before.policy.version() != now.policy.version() || before.callers != now.callers {
            self.catalog.mark_changed();
        }
    }

    /// Profiles that the front ends show.
    pub fn profiles(&self) -> Arc<Profiles> {
        self.access.profiles.load_full()
    }

    /// Replaces the profiles.
    pub fn set_profiles(&self, profiles: Arc<Profiles>) {
        if *self.access.profiles.load_full() != *profiles {
            self.access.profiles.store(profiles);
            self.catalog.mark_changed();
        }
    }

    /// Returns true if untrusted content has reached the session. Policies see this as `context.tainted`.
    pub fn is_tainted(&self, caller: &CallerId, session: &SessionId) -> bool {
        self.access.taint.contains(caller, Some(session), Instant::now())
    }

    /// Marks a session as tainted by something other than an operation of this process.
    pub fn taint(&self, caller: &CallerId, session: &SessionId) {
        self.access.taint.insert(caller, Some(session), Instant::now());
    }
}
