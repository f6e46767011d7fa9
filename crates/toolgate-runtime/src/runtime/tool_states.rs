//! State of tools that survives a rebuild of the catalog: slots, rate limits, statistics, the usual next tools.
//!
//! Invariant: calls find the state of their tool in the catalog; the map is used only for the first call after a
//! rebuild.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use toolgate_audit::{Metrics, ToolHistory, ToolTotals};
use toolgate_policy::TargetKind;
use toolgate_store::cluster::TokenLeases;
use toolgate_types::{ServerName, ToolLimits};

use super::Runtime;
use crate::catalog::{Catalog, CatalogTool};
use crate::metering::server_label;
use crate::stage::rate_limit::RateLimit;
use crate::stage::slots::ToolSlots;
use crate::tool_stats::{NextToolStats, SharedToolState, ToolStats};

/// Concurrent calls of one server tool if its settings give no limit.
const DEFAULT_INSTANCES: NonZeroU32 = NonZeroU32::new(5).expect("not zero");

/// Identity of a tool together with the limits that its shared state depends on.
type ToolStateKey = (Option<ServerName>, String, ToolLimits, Option<toolgate_types::tool::RateLimit>);

/// The state of all tools.
pub(crate) struct ToolStates {
    /// Slots for the calls of all tools.
    slots: Arc<Semaphore>,
    states: Mutex<HashMap<ToolStateKey, Arc<SharedToolState>>>,
    /// Call statistics from before this process, by tool name.
    history: BTreeMap<String, ToolTotals>,
    pub(crate) next_tools: NextToolStats,
    /// Limits that hold for all replicas of a cluster.
    leases: Option<Arc<dyn TokenLeases>>,
}

impl ToolStates {
    pub(super) fn new(
        max_concurrent: NonZeroU32,
        history: ToolHistory,
        leases: Option<Arc<dyn TokenLeases>>,
    ) -> Self {
        let slots = usize::try_from(max_concurrent.get()).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            slots: Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS))),
            states: Mutex::default(),
            next_tools: NextToolStats::from_history(&history),
            history: history.tools,
            leases,
        }
    }

    fn find_or_create(&self, tool: &CatalogTool, metrics: &Metrics) -> Arc<SharedToolState> {
        let name = tool.state_name();
        let original = match tool.target_kind() {
            TargetKind::Tool => tool.original.clone(),
            TargetKind::Resource | TargetKind::Prompt => name.clone().into_owned(),
        };
        let key = (tool.server.clone(), original, tool.limits, tool.rate_limit);
        let create = || {
            let instances = max_instances(tool);
            let totals = self.history.get(&*name);
            Arc::new(SharedToolState {
                slots: ToolSlots::new(instances, &self.slots),
                rate_limit: tool.rate_limit.map(|limit| RateLimit::new(limit, &name, self.leases.as_ref())),
                stats: totals.map_or_else(ToolStats::default, |totals| ToolStats::from_record(*totals)),
                metrics: metrics.tool(&name, server_label(Some(tool))),
            })
        };
        Arc::clone(self.states.lock().entry(key).or_insert_with(create))
    }

    /// Drops the state of tools that are no longer in the catalog.
    pub(super) fn retain_listed(&self, catalog: &Catalog) {
        let listed: HashSet<_> = catalog.tools().map(|tool| (&tool.server, &tool.original)).collect();
        self.states.lock().retain(|(server, original, ..), _| listed.contains(&(server, original)));
    }
}

/// Returns the number of calls of a tool that may run at the same time.
pub(super) fn max_instances(tool: &CatalogTool) -> NonZeroU32 {
    let ToolLimits { max_instances, parallel_capable, .. } = tool.limits;
    // A script runs one call at a time unless it allows more; a server handles calls in parallel.
    let parallel = parallel_capable.unwrap_or(tool.server.is_some());
    if parallel { max_instances.unwrap_or(DEFAULT_INSTANCES) } else { NonZeroU32::MIN }
}

impl Runtime {
    /// Slots, rate limit and statistics of a tool. They survive a rebuild of the catalog as long as the tool's limits
    /// stay the same.
    pub(crate) fn shared_state<'a>(&self, tool: &'a CatalogTool) -> &'a SharedToolState {
        self.shared_state_of(tool)
    }

    fn shared_state_of<'a>(&self, tool: &'a CatalogTool) -> &'a Arc<SharedToolState> {
        tool.shared_state.get_or_init(|| self.tool_states.find_or_create(tool, &self.recorder.metrics))
    }

    /// Lets a tool share the rate limit, slots and statistics of another one.
    pub(crate) fn share_state(&self, from: &CatalogTool, to: &CatalogTool) {
        let _ = to.shared_state.set(Arc::clone(self.shared_state_of(from)));
    }
}
