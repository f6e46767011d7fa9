//! A private copy of the shared texts on the disk of a replica, to start while the database is away.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toolgate_state::{FileAccess, StateDir};
use toolgate_store::cluster::Replica;

use crate::database::SeenDocument;

/// Name of the file, and its maximum size.
const FILE: &str = "cluster.json";
const MAX_BYTES: u64 = 512 << 20;

pub(crate) struct SavedCopy {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct CopyFile {
    documents: BTreeMap<String, SeenDocument>,
    replicas: Vec<Replica>,
}

impl SavedCopy {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Reads the copy. `None` if there is none, or it is damaged.
    pub(crate) fn read(&self) -> Option<(BTreeMap<String, SeenDocument>, Vec<Replica>)> {
        let file =
            StateDir::open(&self.folder).and_then(|folder| folder.open_file(FILE, FileAccess::Read)).ok()?;
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let CopyFile { documents, replicas } = serde_json::from_str(&text).ok()?;
        Some((documents, replicas))
    }

    /// Replaces the copy. Only the owner of the folder can read it.
    pub(crate) fn write(
        &self,
        documents: &BTreeMap<String, SeenDocument>,
        replicas: &[Replica],
    ) -> io::Result<()> {
        let (documents, replicas) = (documents.clone(), replicas.to_vec());
        let text = serde_json::to_vec(&CopyFile { documents, replicas })?;
        StateDir::create(&self.folder)?.replace(FILE, &text)
    }
}
