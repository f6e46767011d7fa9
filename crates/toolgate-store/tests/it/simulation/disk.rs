//! A disk in memory that keeps what it was told to keep, and of the rest what it likes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use toolgate_store::file::disk::{Disk, TEMPORARY};

/// What a disk may only pretend to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    FilesAreNotSynced,
    FoldersAreNotSynced,
    RenamesCopy,
}

#[derive(Clone)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    lie: Lie,
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    safe_names: BTreeMap<PathBuf, usize>,
    /// Changes of names that are not safe yet.
    pending: Vec<(PathBuf, Option<usize>)>,
    /// Calls until the machine is gone.
    crash_in: Option<u32>,
    /// One call in so many fails.
    fails: Option<u32>,
    dead: bool,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    safe: Option<Vec<u8>>,
    /// A sync has failed: what was written may be gone, and no later sync says so.
    spoilt: bool,
}

impl SimDisk {
    pub(super) fn new(rng: Rng, lie: Lie) -> Self {
        let (names, safe_names) = (BTreeMap::new(), BTreeMap::new());
        let state = State {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// From now on calls fail now and then, and one is the last.
    pub(super) fn trouble(&self, rng: &mut Rng) {
        let mut state = self.state();
        state.fails = rng.bool().then(|| rng.u32(3..40));
        state.crash_in = (rng.u8(..) < 200).then(|| rng.u32(1..80));
    }

    pub(super) fn behave(&self) {
        let mut state = self.state();
        (state.fails, state.crash_in, state.dead) = (None, None, false);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().dead
    }

    pub(super) fn temporary_files(&self) -> usize {
        self.state().names.keys().filter(|name| name.to_string_lossy().ends_with(TEMPORARY)).count()
    }

    /// A file that somebody else has written, and synced.
    pub(super) fn put(&self, path: &str, text: &str) {
        let mut state = self.state();
        let bytes = text.as_bytes().to_vec();
        state.files.push(Content { safe: Some(bytes.clone()), bytes, spoilt: false });
        let at = state.files.len() - 1;
        state.names.insert(path.into(), at);
        state.safe_names.insert(path.into(), at);
        state.pending.retain(|(name, _)| name != Path::new(path));
    }

    /// The machine goes down and comes back.
    pub(super) fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        for (name, file) in std::mem::take(&mut state.pending) {
            // Nobody promises an order.
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

impl State {
    /// Every call passes here: it may be the last one, or fail.
    fn call(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.crash_in {
            *left = left.saturating_sub(1);
            self.dead |= *left == 0;
        }
        if self.dead {
            return Err(io::Error::other("the machine is gone"));
        }
        match self.fails {
            Some(one_in) if self.rng.u32(..one_in) == 0 => Err(io::Error::other("I/O error")),
            _ => Ok(()),
        }
    }
}

impl Disk for SimDisk {
    type File = usize;
    type Turn = ();

    fn turn(&self, _folders: &[PathBuf]) -> io::Result<()> {
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
        assert!(!state.names.contains_key(path), "a temporary file has a new name");
        state.files.push(Content::default());
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
        assert!(!state.files[*file].spoilt, "a sync that failed is tried again on the same file");
        let called = state.call();
        let lie = state.lie;
        let content = &mut state.files[*file];
        content.spoilt = called.is_err();
        if called.is_ok() && lie != Lie::FilesAreNotSynced {
            content.safe = Some(content.bytes.clone());
        }
        called
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let at = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        if state.lie == Lie::RenamesCopy
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
        if state.lie == Lie::FoldersAreNotSynced {
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
