//! Shared texts: read from memory, changed in the database.

use std::io;
use std::sync::Arc;

use toolgate_store::callers::StoreStamp;
use toolgate_store::cluster::{DocumentStore, EditedDocument};

use crate::database::{Database, DatabaseError, NewDocument};

/// Attempts of a change against changes by other replicas.
const MAX_ATTEMPTS: usize = 64;
/// Names of the texts that are changed here.
const NAMES: [&str; 5] = ["callers", "pins", "session_keys", "cluster", "logouts"];

impl DocumentStore for Database {
    fn read(&self, name: &str) -> Option<Arc<str>> {
        self.inner.state.lock().documents.get(name).map(|(_, body)| Arc::clone(body))
    }

    fn update(&self, name: &str, edit: &mut dyn FnMut(Option<&str>) -> EditedDocument) -> io::Result<()> {
        let name = *NAMES.iter().find(|known| **known == name).expect("every shared text has a name here");
        for _ in 0..MAX_ATTEMPTS {
            let database = self.clone();
            let newest = self.block_on(async move { database.fetch(&[name]).await })?;
            let (expected, body) =
                newest.get(name).map_or((0, None), |(version, body)| (*version, Some(body)));
            let Some(new) = edit(body.map(|body| &**body))? else { return Ok(()) };
            let database = self.clone();
            let new = NewDocument { name, expected, body: new.into() };
            match self.block_on(async move { database.commit(vec![new]).await }) {
                Err(DatabaseError::Conflict) => {}
                committed => return Ok(committed?),
            }
        }
        Err(DatabaseError::Conflict.into())
    }

    fn stamp(&self, name: &str) -> StoreStamp {
        let state = self.inner.state.lock();
        StoreStamp(state.documents.get(name).map(|(version, _)| version.to_string()).unwrap_or_default())
    }

    fn is_stale(&self) -> bool {
        Self::is_stale(self)
    }
}
