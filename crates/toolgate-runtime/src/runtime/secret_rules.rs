//! Secrets: the values that are redacted from all output, and the rules for secrets in outgoing arguments.

use std::sync::Arc;

use arc_swap::ArcSwap;
use toolgate_types::Secret;
use toolgate_types::egress::EgressConfig;

use super::Runtime;
use crate::stage::egress::EgressFilter;

/// Known secrets. New ones are added while calls run.
pub(crate) struct SecretRules {
    known: ArcSwap<Vec<Secret>>,
    pub(crate) egress: ArcSwap<EgressFilter>,
}

impl SecretRules {
    pub(super) fn new(known: Vec<Secret>, egress: &EgressConfig) -> Self {
        Self { known: ArcSwap::from_pointee(known), egress: ArcSwap::from_pointee(EgressFilter::new(egress)) }
    }

    /// Replaces the rules. Known secrets stay known.
    fn replace_egress(&self, config: &EgressConfig) {
        let filter = EgressFilter::new(config);
        let filter = filter.with(&self.known.load()).unwrap_or(filter);
        self.egress.store(Arc::new(filter));
    }

    fn add(&self, secrets: &[Secret]) {
        let with = |known: &[Secret]| -> Vec<Secret> {
            let is_new = |new: &&Secret| !known.iter().any(|known| known.expose() == new.expose());
            known.iter().chain(secrets.iter().filter(is_new)).cloned().collect()
        };
        self.known.rcu(|known| with(known));
        self.egress.rcu(|rules| rules.with(secrets).map_or_else(|| Arc::clone(rules), Arc::new));
    }
}

impl Runtime {
    /// Values that are redacted from all output.
    pub fn secrets(&self) -> Arc<Vec<Secret>> {
        self.secrets.known.load_full()
    }

    /// Replaces the rules for secrets in outgoing arguments.
    pub fn set_egress(&self, config: &EgressConfig) {
        self.secrets.replace_egress(config);
    }

    /// Adds secrets to redact from output, logs and stored results, and to block in outgoing arguments.
    pub fn add_secrets(&self, secrets: &[Secret]) {
        self.secrets.add(secrets);
        if let Some(log) = self.log() {
            log.add_secrets(secrets);
        }
        if let Some(results) = &self.results {
            results.add_secrets(secrets);
        }
    }
}
