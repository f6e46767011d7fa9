//! The registry in files: `tools.json` and `mcp.json`.
//!
//! A change is written to a temporary file, synced, renamed over the original, and the folder is synced; the processes
//! of a machine exclude each other with a lock. Invariant: a reader sees the old or the new text, never a part; edits
//! by other programs are read before anything is overwritten; and no sync is retried on the same descriptor.

pub mod disk;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::document::{DocumentError, EntryKind, EntryOp, RegistryDocument};
use crate::store::{
    CommitError, RegistryDocuments, RegistrySnapshot, RegistrySources, Revision, Store, StoreUnavailable,
};
use disk::{Disk, FileStamp, RealDisk, TEMPORARY_SUFFIX};

/// Interval for detecting edits by other programs.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Paths of a project's registry files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryPaths {
    /// `tools.json`.
    pub tools: Option<PathBuf>,
    /// `mcp.json`.
    pub servers: Option<PathBuf>,
}

impl RegistryPaths {
    fn get(&self, kind: EntryKind) -> Option<&Path> {
        match kind {
            EntryKind::Tool => self.tools.as_deref(),
            EntryKind::Server => self.servers.as_deref(),
        }
    }

    /// Returns their folders, sorted, so that all processes lock them in the same order and cannot deadlock.
    fn folders(&self) -> Vec<PathBuf> {
        let folders: BTreeSet<_> =
            [&self.tools, &self.servers].into_iter().flatten().map(|path| folder(path)).collect();
        folders.into_iter().collect()
    }
}

fn folder(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// The files and their last known contents. Blocks, unlike [`FileStore`].
#[derive(Debug)]
pub struct RegistryFiles<D> {
    disk: D,
    paths: RegistryPaths,
    contents: [Option<Vec<u8>>; 2],
    snapshot: RegistrySnapshot,
}

impl<D: Disk> RegistryFiles<D> {
    /// Reads the files, and removes temporary files left over from a crash.
    pub fn open(disk: D, paths: RegistryPaths) -> io::Result<Self> {
        let lock = disk.lock(&paths.folders())?;
        for path in [&paths.tools, &paths.servers].into_iter().flatten() {
            for left in disk.list(&folder(path))?.iter().filter(|left| is_temporary(left, path)) {
                tracing::info!("removing `{}`, left over from a crash", left.display());
                disk.remove(left)?;
            }
        }
        let empty = RegistryDocuments { tools: None, servers: None };
        let snapshot = RegistrySnapshot {
            rev: Revision::of_contents([None, None]),
            texts: RegistrySources::default(),
            documents: Ok(empty),
        };
        let mut files = Self { disk, paths, contents: [None, None], snapshot };
        files.read()?;
        files.snapshot = files.parse_documents();
        drop(lock);
        Ok(files)
    }

    /// Returns the current state, including changes by other processes.
    pub fn snapshot(&mut self) -> io::Result<RegistrySnapshot> {
        if self.read()? {
            self.snapshot = self.parse_documents();
        }
        Ok(self.snapshot.clone())
    }

    /// Applies changes; see [`Store::commit`].
    pub fn commit(
        &mut self,
        expect: Option<Revision>,
        ops: &[EntryOp],
    ) -> Result<RegistrySnapshot, CommitError> {
        let lock = self.disk.lock(&self.paths.folders()).map_err(StoreUnavailable::from)?;
        let RegistrySnapshot { rev: current, documents, .. } =
            self.snapshot().map_err(StoreUnavailable::from)?;
        if expect.is_some_and(|expect| expect != current) {
            return Err(CommitError::Conflict { current });
        }
        let mut documents = documents.map_err(crate::document::EntryError::File)?;
        for op in ops {
            documents.apply(op)?;
        }
        let mut new = self.contents.clone();
        for (at, kind) in [EntryKind::Tool, EntryKind::Server].into_iter().enumerate() {
            if ops.iter().any(|op| op.kind == kind) {
                new[at] = documents.get(kind).map(|document| document.text().into_bytes());
            }
        }
        self.write(&new).map_err(StoreUnavailable::from)?;
        drop(lock);
        let texts = RegistrySources { tools: to_text(new[0].as_ref()), servers: to_text(new[1].as_ref()) };
        self.snapshot = RegistrySnapshot { rev: revision_of(&new), texts, documents: Ok(documents) };
        self.contents = new;
        Ok(self.snapshot.clone())
    }

    /// Overwrites a whole file, if it still has the contents `seen`.
    pub fn overwrite(&mut self, kind: EntryKind, seen: Option<&str>, text: &str) -> io::Result<()> {
        let lock = self.disk.lock(&self.paths.folders())?;
        self.snapshot()?;
        let at = usize::from(kind == EntryKind::Server);
        if self.contents[at].as_deref() != seen.map(str::as_bytes) {
            return Err(io::Error::other("another program has changed it in the meantime"));
        }
        let mut new = self.contents.clone();
        new[at] = Some(text.as_bytes().to_vec());
        self.write(&new)?;
        drop(lock);
        Ok(())
    }

    /// Reads the files. Returns true if they have changed.
    fn read(&mut self) -> io::Result<bool> {
        let read = |path: &Option<PathBuf>| path.as_ref().map_or(Ok(None), |path| self.disk.read(path));
        let now = [read(&self.paths.tools)?, read(&self.paths.servers)?];
        let differs = now != self.contents;
        self.contents = now;
        Ok(differs)
    }

    fn parse_documents(&self) -> RegistrySnapshot {
        let cut =
            |kind: EntryKind, bytes: Option<&Vec<u8>>| -> Result<Option<RegistryDocument>, DocumentError> {
                if self.paths.get(kind).is_none() {
                    return Ok(None);
                }
                let blank = || RegistryDocument::empty_text(kind).into();
                let text = if bytes.is_some() { to_text(bytes).unwrap_or_default() } else { blank() };
                RegistryDocument::parse(kind, &text).map(Some)
            };
        let [tools, servers] = [self.contents[0].as_ref(), self.contents[1].as_ref()];
        let documents = cut(EntryKind::Tool, tools)
            .and_then(|tools| Ok(RegistryDocuments { tools, servers: cut(EntryKind::Server, servers)? }));
        let texts = RegistrySources { tools: to_text(tools), servers: to_text(servers) };
        RegistrySnapshot { rev: revision_of(&self.contents), texts, documents }
    }

    /// Replaces the file contents, all or none.
    fn write(&self, new: &[Option<Vec<u8>>; 2]) -> io::Result<()> {
        let paths = [self.paths.tools.as_ref(), self.paths.servers.as_ref()];
        let mut touched = Vec::new();
        for at in 0..2 {
            if let (Some(path), Some(text)) = (paths[at], &new[at])
                && self.contents[at].as_ref() != Some(text)
            {
                touched.push(FileWrite { path, text, before: self.contents[at].as_deref() });
            }
        }
        let mut staged: Vec<(PathBuf, &Path)> = Vec::new();
        for FileWrite { path, text, .. } in &touched {
            match self.stage(path, text) {
                Ok(temporary) => staged.push((temporary, path)),
                Err(error) => {
                    staged.iter().for_each(|(temporary, _)| self.discard(temporary));
                    return Err(error);
                }
            }
        }
        for (at, (temporary, path)) in staged.iter().enumerate() {
            if let Err(error) = self.disk.rename(temporary, path) {
                staged[at..].iter().for_each(|(temporary, _)| self.discard(temporary));
                self.restore(&touched[..at]);
                return Err(error);
            }
        }
        let folders: BTreeSet<_> = touched.iter().map(|touched| folder(touched.path)).collect();
        for folder in &folders {
            if let Err(error) = self.disk.sync_folder(folder) {
                self.restore(&touched);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes a text to a temporary file next to its target; it is durable when this returns.
    fn stage(&self, path: &Path, text: &[u8]) -> io::Result<PathBuf> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = folder(path).join(format!(".{name}.{:016x}{TEMPORARY_SUFFIX}", fastrand::u64(..)));
        let mut file = self.disk.create(&temporary, path)?;
        let written = self.disk.write(&mut file, text).and_then(|()| self.disk.sync(&mut file));
        written.inspect_err(|_| self.discard(&temporary))?;
        Ok(temporary)
    }

    fn discard(&self, temporary: &Path) {
        // If it cannot be removed now, the next start removes it.
        let _ = self.disk.remove(temporary);
    }

    /// Restores the previous contents. If that fails too, the new contents stay, complete, and are read before the
    /// next change like an edit by another program.
    fn restore(&self, touched: &[FileWrite<'_>]) {
        for FileWrite { path, before, .. } in touched {
            let back = match before {
                None => self.disk.remove(path),
                Some(text) => self.stage(path, text).and_then(|temporary| {
                    self.disk.rename(&temporary, path).inspect_err(|_| self.discard(&temporary))
                }),
            };
            if let Err(error) = back {
                tracing::error!("`{}` holds a change that was not acknowledged: {error}", path.display());
            }
        }
    }
}

/// New contents of a file.
struct FileWrite<'a> {
    path: &'a Path,
    text: &'a [u8],
    before: Option<&'a [u8]>,
}

fn revision_of(bytes: &[Option<Vec<u8>>; 2]) -> Revision {
    Revision::of_contents([bytes[0].as_deref(), bytes[1].as_deref()])
}

fn to_text(bytes: Option<&Vec<u8>>) -> Option<Arc<str>> {
    std::str::from_utf8(bytes?).ok().map(Into::into)
}

/// Returns true if `file` is a temporary file written for `path`.
fn is_temporary(file: &Path, path: &Path) -> bool {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name(file).starts_with(&format!(".{}.", name(path))) && name(file).ends_with(TEMPORARY_SUFFIX)
}

/// The registry in files, shared by the processes of one machine.
pub struct FileStore<D: Disk = RealDisk> {
    shared: Arc<SharedFiles<D>>,
    /// Watches the files; ends with the store.
    _watcher: JoinSet<()>,
}

struct SharedFiles<D> {
    files: Mutex<RegistryFiles<D>>,
    newest: watch::Sender<Revision>,
}

impl<D> SharedFiles<D> {
    fn files(&self) -> MutexGuard<'_, RegistryFiles<D>> {
        self.files.lock()
    }

    fn publish_revision(&self, rev: Revision) {
        self.newest.send_if_modified(|newest| std::mem::replace(newest, rev) != rev);
    }
}

impl FileStore {
    /// Opens the registry of a project. Symbolic links are resolved once, so that they are kept.
    ///
    /// # Errors
    /// If a file or its folder cannot be read.
    pub async fn open(paths: RegistryPaths) -> Result<Self, StoreUnavailable> {
        let real = |path: PathBuf| fs_err::canonicalize(&path).unwrap_or(path);
        let paths = RegistryPaths { tools: paths.tools.map(real), servers: paths.servers.map(real) };
        Self::open_on(RealDisk, paths).await
    }
}

impl<D: Disk> FileStore<D> {
    async fn open_on(disk: D, paths: RegistryPaths) -> Result<Self, StoreUnavailable> {
        let watched: Vec<_> = [paths.tools.clone(), paths.servers.clone()].into_iter().flatten().collect();
        let files = blocking(move || RegistryFiles::open(disk, paths)).await??;
        let newest = watch::Sender::new(files.snapshot.rev);
        let shared = Arc::new(SharedFiles { files: Mutex::new(files), newest });
        let mut watcher = JoinSet::new();
        watcher.spawn(poll_files(Arc::clone(&shared), watched));
        Ok(Self { shared, _watcher: watcher })
    }

    async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut RegistryFiles<D>) -> T + Send + 'static,
    ) -> Result<T, StoreUnavailable>
    where
        D::File: Send,
    {
        let shared = Arc::clone(&self.shared);
        blocking(move || work(&mut shared.files())).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreUnavailable> {
    tokio::task::spawn_blocking(work).await.map_err(|panic| io::Error::other(panic).into())
}

/// Polls the files and notifies of edits by other programs.
async fn poll_files<D: Disk>(shared: Arc<SharedFiles<D>>, paths: Vec<PathBuf>) {
    let mut stamps: Vec<Option<FileStamp>> = Vec::new();
    let mut known = None;
    loop {
        let (shared, paths) = (Arc::clone(&shared), paths.clone());
        let before = std::mem::take(&mut stamps);
        let poll = blocking(move || {
            let now: Vec<_> = paths.iter().map(|path| FileStamp::read(path)).collect();
            let settled = now.iter().flatten().all(|stamp| stamp.is_settled(SystemTime::now()));
            // A file that was created and removed between two polls has the stamp of a missing one; a revision
            // published in between shows that the files must be read.
            let was_published = known != Some(*shared.newest.borrow());
            if (now != before || !settled || was_published)
                && let Ok(snapshot) = shared.files().snapshot()
            {
                shared.publish_revision(snapshot.rev);
                known = Some(snapshot.rev);
            }
            (now, known)
        });
        (stamps, known) = poll.await.unwrap_or_default();
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl<D: Disk> Store for FileStore<D>
where
    D::File: Send,
{
    async fn snapshot(&self) -> Result<RegistrySnapshot, StoreUnavailable> {
        let snapshot = self.with_files(RegistryFiles::snapshot).await??;
        self.shared.publish_revision(snapshot.rev);
        Ok(snapshot)
    }

    async fn commit(
        &self,
        expect: Option<Revision>,
        ops: Vec<EntryOp>,
    ) -> Result<RegistrySnapshot, CommitError> {
        let snapshot = self.with_files(move |files| files.commit(expect, &ops)).await??;
        self.shared.publish_revision(snapshot.rev);
        Ok(snapshot)
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.shared.newest.subscribe()
    }
}
