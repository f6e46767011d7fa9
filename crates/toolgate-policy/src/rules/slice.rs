//! Policy slicing: caches everything that is the same for all calls of one tool by one caller: the rules that can
//! match, and the entities of caller and tool.
//!
//! A rule cannot match if its scope names another caller, group, tool or action, or if its condition is false for the
//! tool. Rules are indexed by their scope. Invariant: leaving such a rule out changes no decision, and a slice is only
//! used for an identical tool and identical groups, its entities only for an identical caller.

use std::collections::HashMap;
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Entities, EntityUid, Policy, PolicyId, PolicySet, PrincipalConstraint,
    ResourceConstraint,
};
use parking_lot::{Mutex, RwLock};
use toolgate_types::{Caller, CallerId, Group};

use super::entities::{
    ArgumentUses, ENTITY_TYPES, caller_and_tool, group_uids, principal_and_resource, server_uid, uid,
};
use super::prefilter::CompiledRule;
use crate::decide::{Action, PolicyRequest, ToolAttributes};

/// The cache is cleared when it reaches this size.
const MAX_SLICES: usize = 10_000;

/// All rules, by the caller and the tool that their scope names, so that a slice looks only at those that may match.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    rules: Vec<IndexedRule>,
    /// Rules for one tool or server, by number.
    by_resource: HashMap<EntityUid, Vec<usize>>,
    /// Rules for one caller or one group, and any tool.
    by_principal: HashMap<EntityUid, Vec<usize>>,
    /// Rules for any caller and any tool.
    others: Vec<usize>,
}

/// A rule with its scope. `None` is any caller, action or tool.
#[derive(Debug)]
struct IndexedRule {
    policy: Policy,
    compiled: Arc<CompiledRule>,
    principal: Option<EntityUid>,
    action: Option<EntityUid>,
    resource: Option<ResourceScope>,
}

#[derive(Debug)]
enum ResourceScope {
    /// One tool, resource or prompt.
    Is(EntityUid),
    /// The same, or everything of a server.
    In(EntityUid),
}

impl RuleIndex {
    pub(super) fn new(set: &PolicySet) -> Self {
        let mut index = Self::default();
        for (number, policy) in set.policies().enumerate() {
            let rule = IndexedRule::new(policy);
            let numbers = match (&rule.resource, &rule.principal) {
                (Some(ResourceScope::Is(uid) | ResourceScope::In(uid)), _) => {
                    index.by_resource.entry(uid.clone()).or_default()
                }
                (None, Some(principal)) => index.by_principal.entry(principal.clone()).or_default(),
                (None, None) => &mut index.others,
            };
            numbers.push(number);
            index.rules.push(rule);
        }
        index
    }

    /// The rules whose scope may match, in the order of the set.
    fn in_scope<'a>(
        &'a self,
        uids: &[EntityUid; 3],
        groups: &[EntityUid],
        server: &EntityUid,
    ) -> impl Iterator<Item = &'a IndexedRule> + use<'a> {
        let [principal, _, resource] = uids;
        let named = [
            self.by_resource.get(resource),
            self.by_resource.get(server),
            self.by_principal.get(principal),
            Some(&self.others),
        ];
        let of_groups = groups.iter().map(|group| self.by_principal.get(group));
        let mut numbers: Vec<usize> =
            named.into_iter().chain(of_groups).flatten().flatten().copied().collect();
        numbers.retain(|number| self.rules[*number].matches_scope(uids, groups, server));
        numbers.sort_unstable();
        numbers.into_iter().map(|number| &self.rules[number])
    }
}

impl IndexedRule {
    fn new(policy: &Policy) -> Self {
        Self {
            principal: match policy.principal_constraint() {
                PrincipalConstraint::Eq(one) | PrincipalConstraint::In(one) => Some(one),
                _ => None,
            },
            action: match policy.action_constraint() {
                ActionConstraint::Eq(one) => Some(one),
                _ => None,
            },
            resource: match policy.resource_constraint() {
                ResourceConstraint::Eq(one) => Some(ResourceScope::Is(one)),
                ResourceConstraint::In(one) => Some(ResourceScope::In(one)),
                _ => None,
            },
            compiled: Arc::new(CompiledRule::new(policy)),
            policy: policy.clone(),
        }
    }

    /// Returns true if the scope may match. A caller has its groups as ancestors, a tool has its server.
    fn matches_scope(
        &self,
        [principal, action, resource]: &[EntityUid; 3],
        groups: &[EntityUid],
        server: &EntityUid,
    ) -> bool {
        self.principal.as_ref().is_none_or(|one| one == principal || groups.contains(one))
            && self.action.as_ref().is_none_or(|one| one == action)
            && self.resource.as_ref().is_none_or(|scope| match scope {
                ResourceScope::Is(one) => one == resource,
                ResourceScope::In(one) => one == resource || one == server,
            })
    }
}

/// The rules that can match one caller, action and tool.
#[derive(Debug)]
pub(super) struct PolicySlice {
    pub(super) set: PolicySet,
    rules: Box<[Arc<CompiledRule>]>,
    /// The same rules without those that ask: they decide if an approval is enough.
    pub(super) without_asks: PolicySet,
    /// The arguments that these rules refer to.
    pub(super) arguments: ArgumentUses,
    /// True if the scope of a rule matches. Its condition may still be false.
    has_scoped_rules: bool,
    /// Principal, action and resource.
    pub(super) uids: [EntityUid; 3],
    /// The tool that the rules were selected for.
    tool: ToolAttributes,
    /// The groups of the caller that the rules were selected for.
    groups: Vec<Arc<Group>>,
    cached_entities: Mutex<Option<CachedEntities>>,
}

/// Entities, with the caller they were built from.
#[derive(Debug)]
struct CachedEntities {
    caller: Caller,
    entities: Entities,
}

impl PolicySlice {
    fn new(index: &RuleIndex, call: &PolicyRequest<'_>, action: Action) -> Self {
        let (principal, resource) = principal_and_resource(call);
        let uids = [principal, uid(&ENTITY_TYPES.action, action.label()), resource];
        let groups: Vec<_> = group_uids(call).collect();
        let mut in_scope = index.in_scope(&uids, &groups, &server_uid(call)).peekable();
        let has_scoped_rules = in_scope.peek().is_some();
        let rules: Vec<_> = in_scope.filter(|rule| !rule.compiled.rules_out_all(call)).collect();
        Self::of_rules(&rules, has_scoped_rules, call, action)
    }

    fn of_rules(
        rules: &[&IndexedRule],
        has_scoped_rules: bool,
        call: &PolicyRequest<'_>,
        action: Action,
    ) -> Self {
        let (principal, resource) = principal_and_resource(call);
        let uids = [principal, uid(&ENTITY_TYPES.action, action.label()), resource];
        let asks = |policy: &Policy| policy.annotation("ask").is_some();
        let select = |keep: &dyn Fn(&Policy) -> bool| {
            let policies = rules.iter().map(|rule| &rule.policy).filter(|policy| keep(policy)).cloned();
            PolicySet::from_policies(policies).expect("policies from a set have unique ids")
        };
        Self {
            set: select(&|_| true),
            without_asks: select(&|policy| !asks(policy)),
            arguments: ArgumentUses::merged(rules.iter().map(|rule| &rule.compiled.arguments)),
            rules: rules.iter().map(|rule| Arc::clone(&rule.compiled)).collect(),
            has_scoped_rules,
            uids,
            tool: call.tool.clone(),
            groups: call.caller.groups.clone(),
            cached_entities: Mutex::default(),
        }
    }

    /// Returns true if prefilters show that no rule matches this call.
    pub(super) fn cannot_match(&self, call: &PolicyRequest<'_>) -> bool {
        // Cedar has to fail on arguments that cannot be parsed.
        !self.has_scoped_rules
            || call.arguments.value().is_some() && self.rules.iter().all(|rule| rule.rules_out(call))
    }

    /// The rules that might match this call, but refer to an argument that has a shape they do not expect.
    pub(super) fn mismatched(&self, call: &PolicyRequest<'_>) -> Vec<&PolicyId> {
        self.rules.iter().filter(|rule| rule.has_mismatch(call)).map(|rule| &rule.id).collect()
    }

    /// The entities of the caller and the tool, rebuilt if the caller has changed.
    pub(super) fn entities(&self, call: &PolicyRequest<'_>) -> Result<Entities, String> {
        let mut cached = self.cached_entities.lock();
        match &*cached {
            Some(CachedEntities { caller, entities }) if caller.has_same_rights(call.caller) => {
                Ok(entities.clone())
            }
            _ => {
                let entities = Entities::from_entities(caller_and_tool(call)?, None)
                    .map_err(|error| error.to_string())?;
                let caller = call.caller.clone();
                Ok(cached.insert(CachedEntities { caller, entities }).entities.clone())
            }
        }
    }
}

/// Slices by kind of target, caller, target and action. Callers choose the URIs they read, so each kind has a bound of its
/// own: many URIs do not push out the slices of tools.
#[derive(Debug, Default)]
pub(super) struct SliceCache([RwLock<HashMap<CallerId, SlicesByName>>; 3]);

/// Slices of tools, resources or prompts, by name and action.
type SlicesByName = HashMap<Box<str>, [Option<Arc<PolicySlice>>; 4]>;

impl SliceCache {
    pub(super) fn get(
        &self,
        index: &RuleIndex,
        call: &PolicyRequest<'_>,
        action: Action,
    ) -> Arc<PolicySlice> {
        let (caller, name) = (&call.caller.id, call.tool.name.as_str());
        let known = |slices: &HashMap<CallerId, SlicesByName>| {
            slices.get(caller)?.get(name)?[action as usize].clone()
        };
        let cache = &self.0[call.tool.kind as usize];
        // A tool of the same name may have changed, and a token may name other groups than the one before.
        let fits = |slice: &Arc<PolicySlice>| slice.tool == *call.tool && slice.groups == call.caller.groups;
        if let Some(slice) = known(&cache.read()).filter(fits) {
            return slice;
        }
        let slice = Arc::new(PolicySlice::new(index, call, action));
        let mut slices = cache.write();
        if slices.values().map(HashMap::len).sum::<usize>() >= MAX_SLICES {
            slices.clear();
        }
        slices.entry(caller.clone()).or_default().entry(name.into()).or_default()[action as usize] =
            Some(Arc::clone(&slice));
        slice
    }
}

#[cfg(test)]
mod tests;
