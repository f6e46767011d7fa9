//! An in-memory disk that keeps synced data, and a random part of the rest.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use toolgate_store::file::disk::{Disk, TEMPORARY_SUFFIX};

/// A step that the disk only pretends to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskLie {
    None,
    FilesAreNotSynced,
    FoldersAreNotSynced,
    RenamesCopy,
}

#[derive(Clone)]
pub(super) struct SimDisk(Arc<Mutex<DiskState>>);

struct DiskState {
    rng: Rng,
    lie: DiskLie,
    files: Vec<FileContent>,
    names: BTreeMap<PathBuf, usize>,
    safe_names: BTreeMap<PathBuf, usize>,
    /// Renames and removals that are not durable yet.
    pending: Vec<(PathBuf, Option<usize>)>,
    /// Number of operations until the machine crashes.
    crash_in: Option<u32>,
    /// One operation in this many fails.
    fails: Option<u32>,
    dead: bool,
}

#[derive(Default)]
struct FileContent {
    bytes: Vec<u8>,
    safe: Option<Vec<u8>>,
    /// A sync has failed: the data may be lost, and no later sync reports it.
    sync_failed: bool,
}

impl SimDisk {
    pub(super) fn new(rng: Rng, lie: DiskLie) -> Self {
        let (names, safe_names) = (BTreeMap::new(), BTreeMap::new());
        let state = DiskState {
            rng,
            lie,
            files: Vec::new(),
            names,
            safe_names,
            pending: Vec::new(),
            crash_in: None,
            fails: None,
            dead: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap()
    }

    /// From now on operations fail at random, and one of them crashes the machine.
    pub(super) fn start_failing(&self, rng: &mut Rng) {
        let mut state = self.state();
        state.fails = rng.bool().then(|| rng.u32(3..40));
        state.crash_in = (rng.u8(..) < 200).then(|| rng.u32(1..80));
    }

    pub(super) fn stop_failing(&self) {
        let mut state = self.state();
        (state.fails, state.crash_in, state.dead) = (None, None, false);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().dead
    }

    pub(super) fn temporary_files(&self) -> usize {
        self.state().names.keys().filter(|name| name.to_string_lossy().ends_with(TEMPORARY_SUFFIX)).count()
    }

    /// Writes and syncs a file as another program.
    pub(super) fn put(&self, path: &str, text: &str) {
        let mut state = self.state();
        let bytes = text.as_bytes().to_vec();
        state.files.push(FileContent { safe: Some(bytes.clone()), bytes, sync_failed: false });
        let at = state.files.len() - 1;
        state.names.insert(path.into(), at);
        state.safe_names.insert(path.into(), at);
        state.pending.retain(|(name, _)| name != Path::new(path));
    }

    /// Crashes and restarts the machine.
    pub(super) fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        for (name, file) in std::mem::take(&mut state.pending) {
            // The order of renames is not guaranteed.
            if state.rng.bool() {
                match file {
                    Some(file) => state.safe_names.insert(name, file),
                    None => state.safe_names.remove(&name),
                };
            }
        }
        state.names.clone_from(&state.safe_names);
        for file in &mut state.files {
            if let Some(safe) = &file.safe {
                file.bytes.clone_from(safe);
            } else {
                let kept = state.rng.usize(..=file.bytes.len());
                file.bytes.truncate(kept);
                if state.rng.u8(..) < 64 {
                    file.bytes.iter_mut().for_each(|byte| *byte = 0);
                }
            }
            file.safe = Some(file.bytes.clone());
        }
        (state.dead, state.crash_in, state.fails) = (false, None, None);
    }
}

impl DiskState {
    /// Counts an operation, which may fail or crash the machine.
    fn call(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.crash_in {
            *left = left.saturating_sub(1);
            self.dead |= *left == 0;
        }
        if self.dead {
            return Err(io::Error::other("the machine has crashed"));
        }
        match self.fails {
            Some(one_in) if self.rng.u32(..one_in) == 0 => Err(io::Error::other("I/O error")),
            _ => Ok(()),
        }
    }
}

impl Disk for SimDisk {
    type File = usize;
    type Lock = ();

    fn lock(&self, _folders: &[PathBuf]) -> io::Result<()> {
        self.state().call()
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state();
        state.call()?;
        Ok(state.names.get(path).map(|at| state.files[*at].bytes.clone()))
    }

    fn create(&self, path: &Path, _like: &Path) -> io::Result<usize> {
        let mut state = self.state();
        state.call()?;
        assert!(!state.names.contains_key(path), "a temporary file must have a new name");
        state.files.push(FileContent::default());
        let at = state.files.len() - 1;
        state.names.insert(path.to_owned(), at);
        state.pending.push((path.to_owned(), Some(at)));
        Ok(at)
    }

    fn write(&self, file: &mut usize, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let called = state.call();
        let written = if called.is_ok() { bytes.len() } else { state.rng.usize(..=bytes.len()) };
        state.files[*file].bytes.extend_from_slice(&bytes[..written]);
        called
    }

    fn sync(&self, file: &mut usize) -> io::Result<()> {
        let mut state = self.state();
        assert!(!state.files[*file].sync_failed, "a failed sync is retried on the same file");
        let called = state.call();
        let lie = state.lie;
        let content = &mut state.files[*file];
        content.sync_failed = called.is_err();
        if called.is_ok() && lie != DiskLie::FilesAreNotSynced {
            content.safe = Some(content.bytes.clone());
        }
        called
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let at = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        if state.lie == DiskLie::RenamesCopy
            && let Some(target) = state.names.get(to).copied()
        {
            state.files[target].bytes = state.files[at].bytes.clone();
            state.files[target].safe = None;
            return Ok(());
        }
        state.names.insert(to.to_owned(), at);
        state.pending.push((from.to_owned(), None));
        state.pending.push((to.to_owned(), Some(at)));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        if state.lie == DiskLie::FoldersAreNotSynced {
            return Ok(());
        }
        let (safe, pending) = std::mem::take(&mut state.pending)
            .into_iter()
            .partition(|(name, _)| name.parent() == Some(folder));
        state.pending = pending;
        let safe: Vec<(PathBuf, Option<usize>)> = safe;
        for (name, file) in safe {
            match file {
                Some(file) => state.safe_names.insert(name, file),
                None => state.safe_names.remove(&name),
            };
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        state.pending.push((path.to_owned(), None));
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.state();
        state.call()?;
        Ok(state.names.keys().filter(|name| name.parent() == Some(folder)).cloned().collect())
    }
}
