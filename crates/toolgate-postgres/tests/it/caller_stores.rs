//! The callers of a cluster, for the contract.

use std::sync::Arc;

use toolgate_store::callers::CallerStore;
use toolgate_store::cluster::CallerDocument;

use crate::postgres::shared_server;
use crate::replicas::start;

/// Runs a check with a replica of a new cluster.
pub(crate) fn check(contract: impl Fn(&dyn CallerStore)) {
    let database = shared_server().create_database();
    contract(&CallerDocument::new(Arc::new(start(&database, "a"))));
}

/// Concurrent changes at two replicas are all stored, and seen at both.
#[test]
fn replicas_share_callers() {
    let database = shared_server().create_database();
    let stores = ["a", "b"].map(|name| CallerDocument::new(Arc::new(start(&database, name))));
    let [one, two] = &stores;
    let (one, two): (&dyn CallerStore, &dyn CallerStore) = (one, two);
    std::thread::scope(|scope| {
        for number in 0..10 {
            for (name, store) in [("a", one), ("b", two)] {
                let id = crate::callers::id(&format!("{name}{number}"));
                scope.spawn(move || {
                    store.add_caller(crate::callers::caller(&id), crate::callers::author(1)).unwrap();
                });
            }
        }
    });
    crate::replicas::wait_until(|| [one, two].iter().all(|store| store.read().unwrap().callers.len() == 20));
    assert_eq!(one.stamp(), two.stamp());
}
