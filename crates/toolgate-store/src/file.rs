//! The registry in files: `tools.json` and `mcp.json`.
//!
//! A change is written beside the file, synced, renamed over it, and the folder is synced; the processes of
//! a machine take turns. Invariant: a reader sees the old text or the new one, never a part; what somebody
//! else wrote is read before anything is written over it; and no sync is tried twice on one descriptor.

pub mod disk;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::document::{Document, DocumentError, Kind, Op};
use crate::store::{CommitError, Documents, Fence, Rev, Snapshot, Store, Texts, Unavailable};
use disk::{Disk, RealDisk, Stamp, TEMPORARY};

/// How often files are looked at, for what somebody else has written.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where the registry of a project is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    /// `tools.json`.
    pub tools: Option<PathBuf>,
    /// `mcp.json`.
    pub servers: Option<PathBuf>,
}

impl Paths {
    fn of(&self, kind: Kind) -> Option<&Path> {
        match kind {
            Kind::Tool => self.tools.as_deref(),
            Kind::Server => self.servers.as_deref(),
        }
    }

    /// Their folders, in an order that is the same for everybody, so that no two wait for each other.
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

/// The files and what was last seen in them. It blocks; [`FileStore`] does not.
#[derive(Debug)]
pub struct Files<D> {
    disk: D,
    paths: Paths,
    seen: [Option<Vec<u8>>; 2],
    snapshot: Snapshot,
}

impl<D: Disk> Files<D> {
    /// Reads the files, and takes away what a crash has left beside them.
    pub fn open(disk: D, paths: Paths) -> io::Result<Self> {
        let turn = disk.turn(&paths.folders())?;
        for path in [&paths.tools, &paths.servers].into_iter().flatten() {
            for left in disk.list(&folder(path))?.iter().filter(|left| is_temporary(left, path)) {
                tracing::info!("`{}` was left by a crash, and is taken away", left.display());
                disk.remove(left)?;
            }
        }
        let empty = Documents { tools: None, servers: None };
        let snapshot = Snapshot { rev: Rev::of([None, None]), texts: Texts::default(), documents: Ok(empty) };
        let mut files = Self { disk, paths, seen: [None, None], snapshot };
        files.read()?;
        files.snapshot = files.cut();
        drop(turn);
        Ok(files)
    }

    /// The state as it is now, with what others have written.
    pub fn snapshot(&mut self) -> io::Result<Snapshot> {
        if self.read()? {
            self.snapshot = self.cut();
        }
        Ok(self.snapshot.clone())
    }

    /// Makes changes; see [`Store::commit`].
    pub fn commit(&mut self, expect: Option<Rev>, ops: &[Op]) -> Result<Snapshot, CommitError> {
        let turn = self.disk.turn(&self.paths.folders()).map_err(Unavailable::from)?;
        let Snapshot { rev: current, documents, .. } = self.snapshot().map_err(Unavailable::from)?;
        if expect.is_some_and(|expect| expect != current) {
            return Err(CommitError::Conflict { current });
        }
        let mut documents = documents.map_err(crate::document::Unfit::File)?;
        for op in ops {
            documents.apply(op)?;
        }
        let mut new = self.seen.clone();
        for (at, kind) in [Kind::Tool, Kind::Server].into_iter().enumerate() {
            if ops.iter().any(|op| op.kind == kind) {
                new[at] = documents.of(kind).map(|document| document.text().into_bytes());
            }
        }
        self.write(&new).map_err(Unavailable::from)?;
        drop(turn);
        let texts = Texts { tools: text(new[0].as_ref()), servers: text(new[1].as_ref()) };
        self.snapshot = Snapshot { rev: rev(&new), texts, documents: Ok(documents) };
        self.seen = new;
        Ok(self.snapshot.clone())
    }

    /// Writes a whole file, where it still holds what somebody saw in it.
    pub fn overwrite(&mut self, kind: Kind, seen: Option<&str>, text: &str) -> io::Result<()> {
        let turn = self.disk.turn(&self.paths.folders())?;
        self.snapshot()?;
        let at = usize::from(kind == Kind::Server);
        if self.seen[at].as_deref() != seen.map(str::as_bytes) {
            return Err(io::Error::other("somebody else has written to it meanwhile"));
        }
        let mut new = self.seen.clone();
        new[at] = Some(text.as_bytes().to_vec());
        self.write(&new)?;
        drop(turn);
        Ok(())
    }

    /// Reads the files; whether they hold something else than before.
    fn read(&mut self) -> io::Result<bool> {
        let read = |path: &Option<PathBuf>| path.as_ref().map_or(Ok(None), |path| self.disk.read(path));
        let now = [read(&self.paths.tools)?, read(&self.paths.servers)?];
        let differs = now != self.seen;
        self.seen = now;
        Ok(differs)
    }

    fn cut(&self) -> Snapshot {
        let cut = |kind: Kind, bytes: Option<&Vec<u8>>| -> Result<Option<Document>, DocumentError> {
            if self.paths.of(kind).is_none() {
                return Ok(None);
            }
            let blank = || Document::blank(kind).into();
            let text = if bytes.is_some() { text(bytes).unwrap_or_default() } else { blank() };
            Document::parse(kind, &text).map(Some)
        };
        let [tools, servers] = [self.seen[0].as_ref(), self.seen[1].as_ref()];
        let documents = cut(Kind::Tool, tools)
            .and_then(|tools| Ok(Documents { tools, servers: cut(Kind::Server, servers)? }));
        let texts = Texts { tools: text(tools), servers: text(servers) };
        Snapshot { rev: rev(&self.seen), texts, documents }
    }

    /// Puts new texts in the place of those that were seen. All of them, or none.
    fn write(&self, new: &[Option<Vec<u8>>; 2]) -> io::Result<()> {
        let paths = [self.paths.tools.as_ref(), self.paths.servers.as_ref()];
        let mut touched = Vec::new();
        for at in 0..2 {
            if let (Some(path), Some(text)) = (paths[at], &new[at])
                && self.seen[at].as_ref() != Some(text)
            {
                touched.push(Touched { path, text, before: self.seen[at].as_deref() });
            }
        }
        let mut staged: Vec<(PathBuf, &Path)> = Vec::new();
        for Touched { path, text, .. } in &touched {
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

    /// A text in a file of its own, beside the one it is for; it is safe when this returns.
    fn stage(&self, path: &Path, text: &[u8]) -> io::Result<PathBuf> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = folder(path).join(format!(".{name}.{:016x}{TEMPORARY}", fastrand::u64(..)));
        let mut file = self.disk.create(&temporary, path)?;
        let written = self.disk.write(&mut file, text).and_then(|()| self.disk.sync(&mut file));
        written.inspect_err(|_| self.discard(&temporary))?;
        Ok(temporary)
    }

    fn discard(&self, temporary: &Path) {
        // What cannot be taken away now is taken away at the next start.
        let _ = self.disk.remove(temporary);
    }

    /// Puts the texts back that were there before. Where that fails too, the new text is there, whole, and is
    /// read before the next change like one that somebody else wrote.
    fn restore(&self, touched: &[Touched<'_>]) {
        for Touched { path, before, .. } in touched {
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

/// A file that gets a new text.
struct Touched<'a> {
    path: &'a Path,
    text: &'a [u8],
    before: Option<&'a [u8]>,
}

fn rev(bytes: &[Option<Vec<u8>>; 2]) -> Rev {
    Rev::of([bytes[0].as_deref(), bytes[1].as_deref()])
}

fn text(bytes: Option<&Vec<u8>>) -> Option<Arc<str>> {
    std::str::from_utf8(bytes?).ok().map(Into::into)
}

/// Whether a file was written to be renamed to another.
fn is_temporary(file: &Path, path: &Path) -> bool {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name(file).starts_with(&format!(".{}.", name(path))) && name(file).ends_with(TEMPORARY)
}

/// The registry in files, for one machine.
pub struct FileStore<D: Disk = RealDisk> {
    shared: Arc<Shared<D>>,
    /// Looks after the files; gone with the store.
    _looking: JoinSet<()>,
}

struct Shared<D> {
    files: Mutex<Files<D>>,
    newest: watch::Sender<Rev>,
    fence: AtomicU64,
}

impl<D> Shared<D> {
    fn files(&self) -> MutexGuard<'_, Files<D>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, rev: Rev) {
        self.newest.send_if_modified(|newest| std::mem::replace(newest, rev) != rev);
    }
}

impl FileStore {
    /// Opens the registry of a project. Links are followed once, so that they stay.
    ///
    /// # Errors
    /// When a file or its folder cannot be read.
    pub async fn open(paths: Paths) -> Result<Self, Unavailable> {
        let real = |path: PathBuf| fs_err::canonicalize(&path).unwrap_or(path);
        let paths = Paths { tools: paths.tools.map(real), servers: paths.servers.map(real) };
        Self::on(RealDisk, paths).await
    }
}

impl<D: Disk> FileStore<D> {
    async fn on(disk: D, paths: Paths) -> Result<Self, Unavailable> {
        let looked_at: Vec<_> = [paths.tools.clone(), paths.servers.clone()].into_iter().flatten().collect();
        let files = blocking(move || Files::open(disk, paths)).await??;
        // Numbers of an earlier process are smaller.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let fence = AtomicU64::new(u64::try_from(since.as_micros()).unwrap_or(u64::MAX / 2));
        let newest = watch::Sender::new(files.snapshot.rev);
        let shared = Arc::new(Shared { files: Mutex::new(files), newest, fence });
        let mut looking = JoinSet::new();
        looking.spawn(look(Arc::clone(&shared), looked_at));
        Ok(Self { shared, _looking: looking })
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Files<D>) -> T + Send + 'static,
    ) -> Result<T, Unavailable>
    where
        D::File: Send,
    {
        let shared = Arc::clone(&self.shared);
        blocking(move || work(&mut shared.files())).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Unavailable> {
    tokio::task::spawn_blocking(work).await.map_err(|panic| io::Error::other(panic).into())
}

/// Tells of what others have written.
async fn look<D: Disk>(shared: Arc<Shared<D>>, paths: Vec<PathBuf>) {
    let mut seen: Vec<Option<Stamp>> = Vec::new();
    let mut known = None;
    loop {
        let (shared, paths) = (Arc::clone(&shared), paths.clone());
        let before = std::mem::take(&mut seen);
        let looked = blocking(move || {
            let now: Vec<_> = paths.iter().map(|path| Stamp::of(path)).collect();
            let settled = now.iter().flatten().all(|stamp| stamp.is_settled(SystemTime::now()));
            // A file that came and went between two looks has the stamp of none; what was told in between
            // says that there is something to look at.
            let told = known != Some(*shared.newest.borrow());
            if (now != before || !settled || told)
                && let Ok(snapshot) = shared.files().snapshot()
            {
                shared.tell(snapshot.rev);
                known = Some(snapshot.rev);
            }
            (now, known)
        });
        (seen, known) = looked.await.unwrap_or_default();
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl<D: Disk> Store for FileStore<D>
where
    D::File: Send,
{
    async fn snapshot(&self) -> Result<Snapshot, Unavailable> {
        let snapshot = self.with(Files::snapshot).await??;
        self.shared.tell(snapshot.rev);
        Ok(snapshot)
    }

    async fn commit(&self, expect: Option<Rev>, ops: Vec<Op>) -> Result<Snapshot, CommitError> {
        let snapshot = self.with(move |files| files.commit(expect, &ops)).await??;
        self.shared.tell(snapshot.rev);
        Ok(snapshot)
    }

    fn watch(&self) -> watch::Receiver<Rev> {
        self.shared.newest.subscribe()
    }

    /// Nobody shares it: all that is wanted.
    async fn lease_tokens(&self, _key: &str, want: u32) -> Result<u32, Unavailable> {
        Ok(want)
    }

    /// Always granted: processes of one machine take turns at the files, and share nothing else.
    async fn lease(&self, _name: &str, _ttl: Duration) -> Result<Fence, Unavailable> {
        Ok(Fence(self.shared.fence.fetch_add(1, Ordering::Relaxed)))
    }
}
