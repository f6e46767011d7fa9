//! Access to tools: callers, policy, profiles, tainted sessions, and the person who approves calls.
//!
//! Invariant: only the profiles can be replaced while calls run.

use std::sync::Arc;

use arc_swap::ArcSwap;
use toolgate_policy::Policy;
use toolgate_types::{Caller, CallerId, Profiles};
use toolgate_upstream::Responder;

use super::Runtime;
use crate::catalog::CatalogTool;
use crate::tool_stats::TaintedSessions;

/// Everything that decides if a caller may use a tool.
pub(crate) struct AccessControl {
    pub(super) callers: Vec<Caller>,
    pub(crate) policy: Policy,
    profiles: ArcSwap<Profiles>,
    pub(crate) tainted_sessions: TaintedSessions,
    pub(crate) responder: Arc<dyn Responder>,
}

impl AccessControl {
    pub(super) fn new(
        callers: Vec<Caller>,
        policy: Policy,
        profiles: Arc<Profiles>,
        responder: Arc<dyn Responder>,
    ) -> Self {
        let profiles = ArcSwap::new(profiles);
        Self { callers, policy, profiles, tainted_sessions: TaintedSessions::default(), responder }
    }

    /// Returns true if the tool is in a profile of the caller. A caller that is bound to profiles has only their tools,
    /// whatever front end it uses.
    pub(crate) fn is_in_profiles(&self, caller: &Caller, tool: &CatalogTool) -> bool {
        match self.profiles.load().bound_profiles(&caller.id) {
            None => true,
            Some(mut profiles) => profiles.any(|profile| tool.is_in_profile(profile)),
        }
    }
}

impl Runtime {
    pub fn caller(&self, id: &str) -> Option<&Caller> {
        self.access.callers.iter().find(|caller| caller.id.as_str() == id)
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
    pub fn is_tainted(&self, caller: &CallerId, session: &str) -> bool {
        self.access.tainted_sessions.contains(caller, Some(session))
    }

    /// Marks a session as tainted by something other than a call of this process.
    pub fn taint(&self, caller: &CallerId, session: &str) {
        self.access.tainted_sessions.insert(caller, Some(session));
    }
}
