//! The stores in files, for the contracts.

use tempfile::TempDir;
use toolgate_store::file::FileStore;

use crate::contract::{SharedPlace, store_contract};
use crate::kit::paths;

struct TempFolder(TempDir);

impl SharedPlace for TempFolder {
    type Store = FileStore;

    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    async fn open(&self) -> FileStore {
        FileStore::open(paths(self.0.path())).await.unwrap()
    }
}

store_contract!(files, super::TempFolder);
