//! The current catalog, its version, and the search index.
//!
//! Invariant: a catalog is immutable and swapped atomically; readers never wait.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::Runtime;
use crate::catalog::Catalog;
use crate::search::LiveIndex;

/// The catalog that calls use.
#[derive(Default)]
pub(crate) struct LiveCatalog {
    current: ArcSwap<Catalog>,
    /// Incremented when the catalog or the state of a server changes.
    version: watch::Sender<u64>,
    pub(crate) search_index: LiveIndex<Catalog>,
}

impl LiveCatalog {
    pub(crate) fn load(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Swaps the catalog in.
    pub(super) fn store(&self, catalog: Catalog, differs: bool) {
        self.current.store(Arc::new(catalog));
        if differs {
            self.mark_changed();
        }
    }

    /// Tells the subscribers that something they show has changed.
    pub(super) fn mark_changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

impl Runtime {
    /// Notifies of changes to the catalog or to the state of a server. Requires [`Runtime::watch_servers`] to run.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.catalog.version.subscribe()
    }

    /// The current catalog. The returned snapshot never changes.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load()
    }
}
