//! Policy slicing: caches everything that is the same for all calls of one tool by one caller, which is the rules
//! that can match, and the entities of caller and tool.
//!
//! A rule whose scope names another caller, tool or action cannot match. Invariant: leaving such a rule out changes no
//! decision, and cached entities are only used for an identical caller and tool.

use std::collections::HashMap;
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Entities, EntityUid, Policy, PolicySet, PrincipalConstraint, ResourceConstraint,
};
use parking_lot::{Mutex, RwLock};
use toolgate_types::{Caller, CallerId};

use super::entities::{ENTITY_TYPES, caller_and_tool, principal_and_resource, uid};
use super::prefilter::{Prefilters, RulePrefilter};
use crate::decide::{Action, PolicyRequest, ToolAttributes};

/// The cache is cleared when it reaches this size.
const MAX_SLICES: usize = 10_000;

/// The rules that can match one caller, action and tool.
#[derive(Debug)]
pub(super) struct PolicySlice {
    pub(super) set: PolicySet,
    prefilters: Box<[Arc<RulePrefilter>]>,
    /// The same rules without those that ask: they decide if an approval is enough.
    pub(super) without_asks: PolicySet,
    /// Principal, action and resource.
    pub(super) uids: [EntityUid; 3],
    cached_entities: Mutex<Option<CachedEntities>>,
}

/// Entities, with the caller and the tool they were built from.
#[derive(Debug)]
struct CachedEntities {
    caller: Caller,
    tool: ToolAttributes,
    entities: Entities,
}

impl PolicySlice {
    fn new(set: &PolicySet, all: &Prefilters, call: &PolicyRequest<'_>, action: Action) -> Self {
        let (principal, resource) = principal_and_resource(call);
        let uids = [principal, uid(&ENTITY_TYPES.action, action.label()), resource];
        let asks = |policy: &Policy| policy.annotation("ask").is_some();
        let select = |keep: &dyn Fn(&Policy) -> bool| {
            let policies =
                set.policies().filter(|policy| matches_scope(policy, &uids) && keep(policy)).cloned();
            PolicySet::from_policies(policies).expect("policies from a set have unique ids")
        };
        let without_asks = select(&|policy| !asks(policy));
        let set = select(&|_| true);
        let prefilters = set.policies().map(|policy| Arc::clone(&all[policy.id()])).collect();
        Self { set, prefilters, without_asks, uids, cached_entities: Mutex::default() }
    }

    /// Returns true if prefilters show that no rule matches this call.
    pub(super) fn cannot_match(&self, call: &PolicyRequest<'_>) -> bool {
        // Cedar has to fail on arguments that cannot be parsed.
        self.prefilters.is_empty()
            || call.arguments.value().is_some()
                && self.prefilters.iter().all(|prefilter| prefilter.rules_out(call))
    }

    /// The entities of the caller and the tool, rebuilt if either has changed.
    pub(super) fn entities(&self, call: &PolicyRequest<'_>) -> Result<Entities, String> {
        let mut cached = self.cached_entities.lock();
        match &*cached {
            Some(CachedEntities { caller, tool, entities }) if caller == call.caller && tool == call.tool => {
                Ok(entities.clone())
            }
            _ => {
                let entities = Entities::from_entities(caller_and_tool(call)?, None)
                    .map_err(|error| error.to_string())?;
                let (caller, tool) = (call.caller.clone(), call.tool.clone());
                Ok(cached.insert(CachedEntities { caller, tool, entities }).entities.clone())
            }
        }
    }
}

/// Slices by caller, tool and action.
#[derive(Debug, Default)]
pub(super) struct SliceCache(RwLock<HashMap<CallerId, SlicesByTool>>);

type SlicesByTool = HashMap<Box<str>, [Option<Arc<PolicySlice>>; 2]>;

impl SliceCache {
    pub(super) fn get(
        &self,
        set: &PolicySet,
        prefilters: &Prefilters,
        call: &PolicyRequest<'_>,
        action: Action,
    ) -> Arc<PolicySlice> {
        let (caller, tool) = (&call.caller.id, call.tool.name.as_str());
        let known = |slices: &HashMap<CallerId, SlicesByTool>| {
            slices.get(caller)?.get(tool)?[action as usize].clone()
        };
        if let Some(slice) = known(&self.0.read()) {
            return slice;
        }
        let slice = Arc::new(PolicySlice::new(set, prefilters, call, action));
        let mut slices = self.0.write();
        if slices.values().map(HashMap::len).sum::<usize>() >= MAX_SLICES {
            slices.clear();
        }
        slices.entry(caller.clone()).or_default().entry(tool.into()).or_default()[action as usize] =
            Some(Arc::clone(&slice));
        slice
    }
}

fn matches_scope(policy: &Policy, [principal, action, resource]: &[EntityUid; 3]) -> bool {
    let principal =
        !matches!(policy.principal_constraint(), PrincipalConstraint::Eq(one) if one != *principal);
    let action = !matches!(policy.action_constraint(), ActionConstraint::Eq(one) if one != *action);
    let resource = !matches!(policy.resource_constraint(), ResourceConstraint::Eq(one) if one != *resource);
    principal && action && resource
}
