//! The registry of a cluster, for the contract.

use toolgate_postgres::RegistryStore;

use crate::contract::{SharedPlace, store_contract};
use crate::postgres::{TestDatabase, shared_server};
use crate::replicas::{start, unique};

struct Cluster(TestDatabase<'static>);

impl SharedPlace for Cluster {
    type Store = RegistryStore;

    fn new() -> Self {
        Self(shared_server().create_database())
    }

    async fn open(&self) -> RegistryStore {
        RegistryStore::open(start(&self.0, &unique("replica")), true, true)
    }
}

store_contract!(cluster, crate::registry_stores::Cluster);
