//! What is the same for every call of one tool by one caller, found once: the rules that can have a say, and
//! what they see of the two.
//!
//! A rule whose head names another caller, tool or action has none. Invariant: leaving it out changes no
//! decision, and what is seen is of the caller and the tool as they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cedar_policy::{
    ActionConstraint, Entities, EntityUid, Policy, PolicySet, PrincipalConstraint, ResourceConstraint,
};
use toolgate_types::{Caller, CallerId};

use super::guard::{Guard, Guards};
use super::seen::{KINDS, entities, parties, uid};
use crate::decide::{Action, Call, Subject};

/// Slices that are kept; beyond that they are found again.
const MOST_SLICES: usize = 10_000;

/// Some of the rules.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) set: PolicySet,
    guards: Box<[Arc<Guard>]>,
    /// The same without those that ask: what they let through is what a yes lets through.
    pub(super) without_asks: PolicySet,
    /// The caller, the action and the tool.
    pub(super) uids: [EntityUid; 3],
    parties: Mutex<Option<Parties>>,
}

/// A caller and a tool, and what rules see of them.
#[derive(Debug)]
struct Parties {
    caller: Caller,
    subject: Subject,
    seen: Entities,
}

impl Slice {
    fn new(set: &PolicySet, known: &Guards, call: &Call<'_>, action: Action) -> Self {
        let (principal, resource) = parties(call);
        let uids = [principal, uid(&KINDS.action, action.label()), resource];
        let asks = |policy: &Policy| policy.annotation("ask").is_some();
        let some = |keep: &dyn Fn(&Policy) -> bool| {
            let policies = set.policies().filter(|policy| fits(policy, &uids) && keep(policy)).cloned();
            PolicySet::from_policies(policies).expect("they were in a set before")
        };
        let without_asks = some(&|policy| !asks(policy));
        let set = some(&|_| true);
        let guards = set.policies().map(|policy| Arc::clone(&known[policy.id()])).collect();
        Self { set, guards, without_asks, uids, parties: Mutex::default() }
    }

    /// Whether none of the rules applies to this call, as far as that can be told without evaluating them.
    pub(super) fn is_silent_on(&self, call: &Call<'_>) -> bool {
        // Arguments that cannot be read are for Cedar to fail on.
        self.guards.is_empty()
            || call.arguments.value().is_some() && self.guards.iter().all(|guard| guard.rules_out(call))
    }

    /// What rules see of the caller and the tool.
    pub(super) fn parties(&self, call: &Call<'_>) -> Result<Entities, String> {
        let mut known = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(Parties { caller, subject, seen }) if caller == call.caller && subject == call.subject => {
                Ok(seen.clone())
            }
            _ => {
                let seen =
                    Entities::from_entities(entities(call)?, None).map_err(|error| error.to_string())?;
                let (caller, subject) = (call.caller.clone(), call.subject.clone());
                Ok(known.insert(Parties { caller, subject, seen }).seen.clone())
            }
        }
    }
}

/// Slices by caller, tool and action.
#[derive(Debug, Default)]
pub(super) struct Slices(RwLock<HashMap<CallerId, Tools>>);

type Tools = HashMap<Box<str>, [Option<Arc<Slice>>; 2]>;

impl Slices {
    pub(super) fn get(
        &self,
        set: &PolicySet,
        guards: &Guards,
        call: &Call<'_>,
        action: Action,
    ) -> Arc<Slice> {
        let (caller, tool) = (&call.caller.id, call.subject.name.as_str());
        let known =
            |slices: &HashMap<CallerId, Tools>| slices.get(caller)?.get(tool)?[action as usize].clone();
        if let Some(slice) = known(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return slice;
        }
        let slice = Arc::new(Slice::new(set, guards, call, action));
        let mut slices = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if slices.values().map(HashMap::len).sum::<usize>() >= MOST_SLICES {
            slices.clear();
        }
        slices.entry(caller.clone()).or_default().entry(tool.into()).or_default()[action as usize] =
            Some(Arc::clone(&slice));
        slice
    }
}

fn fits(policy: &Policy, [principal, action, resource]: &[EntityUid; 3]) -> bool {
    let principal =
        !matches!(policy.principal_constraint(), PrincipalConstraint::Eq(one) if one != *principal);
    let action = !matches!(policy.action_constraint(), ActionConstraint::Eq(one) if one != *action);
    let resource = !matches!(policy.resource_constraint(), ResourceConstraint::Eq(one) if one != *resource);
    principal && action && resource
}
