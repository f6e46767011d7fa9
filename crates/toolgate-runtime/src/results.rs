//! Results that are too large to be given whole: kept as resources, and read in parts.
//!
//! The caller gets a preview and a link; `read_result` pages through the rest, searches it, or follows a
//! JSON pointer into it. A result is a file in the project, so that another process can read it. Invariant:
//! only who made the call reads its result, everything kept ends, and all of it is bounded on the disk.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use toolgate_audit::redact::Redactor;
use toolgate_types::CallerId;
use toolgate_types::limits::ResultLimits;
use toolgate_upstream::builtin::{Asked, Given};
use toolgate_upstream::{Builtin, Raw};

use crate::stage::content::Reply;

mod read;

/// The tool that reads them.
pub const READ_RESULT: &str = "read_result";
/// What their addresses begin with.
pub const SCHEME: &str = "toolgate://results/";
/// Folder of the project.
const FOLDER: &str = ".toolgate/results";

/// The results of a project.
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
    limits: ResultLimits,
    redactor: Redactor,
}

/// What a result became that was too large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Where the whole is; `None` where it could not be kept.
    pub(crate) uri: Option<String>,
    /// Bytes that are shown.
    pub(crate) shown: usize,
    /// Bytes that there are.
    pub(crate) of: usize,
}

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    owner: String,
    tool: String,
}

/// A result that is kept.
#[derive(Debug)]
pub struct Kept {
    /// The tool that gave it.
    pub tool: String,
    /// The whole reply.
    pub reply: Raw,
}

/// There is no such result for this caller.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not there, or is somebody else's, which is the same to who asks.
    #[error("there is no result `{0}` of yours; results are kept for a limited time")]
    Absent(String),
    /// The system refuses.
    #[error("the result cannot be read")]
    Io(#[from] std::io::Error),
}

impl Results {
    /// The results of a project.
    pub fn of(project: &Path, limits: ResultLimits, redactor: Redactor) -> Arc<Self> {
        Arc::new(Self { folder: project.join(FOLDER), limits, redactor })
    }

    /// Keeps none of these, from now on.
    pub fn learn(&self, secrets: &[toolgate_types::Secret]) {
        self.redactor.learn(secrets);
    }

    /// Keeps a result that is too large and puts a preview in its place; one that is not stays as it is.
    pub(crate) async fn cut(
        self: &Arc<Self>,
        caller: &CallerId,
        tool: &str,
        reply: Reply,
    ) -> (Reply, Option<Cut>) {
        let (most, of) = (self.limits.max_inline.as_usize(), reply.raw.bytes().len());
        if of <= most {
            return (reply, None);
        }
        let uri = match self.put(caller, tool, reply.raw.clone()).await {
            Ok(uri) => Some(uri),
            Err(error) => {
                tracing::error!("a result of {tool} cannot be kept: {error}");
                None
            }
        };
        let (preview, shown) = preview(&reply.raw, most, uri.as_deref(), tool);
        let cut = Reply::convert(preview).expect("a preview is a result");
        (cut, Some(Cut { uri, shown, of }))
    }

    /// Keeps something for a caller; returns its address.
    pub(crate) async fn put(
        self: &Arc<Self>,
        caller: &CallerId,
        tool: &str,
        raw: Raw,
    ) -> std::io::Result<String> {
        let (results, head) = (Arc::clone(self), Head { owner: caller.to_string(), tool: tool.to_owned() });
        let kept = spawn_blocking(move || results.keep(&head, &raw)).await;
        let id = kept.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))?;
        Ok(format!("{SCHEME}{id}"))
    }

    /// Writes a result down, once for each owner and content; returns what it is called.
    fn keep(&self, head: &Head, raw: &Raw) -> std::io::Result<String> {
        let mut hash = Sha256::new();
        hash.update(&head.owner);
        hash.update([0]);
        hash.update(raw.bytes());
        let id = hash.finalize().iter().take(16).fold(String::new(), |mut id, byte| {
            let _ = write!(id, "{byte:02x}");
            id
        });
        fs_err::create_dir_all(&self.folder)?;
        let mut text = serde_json::to_string(head)?;
        text.push('\n');
        text.push_str(&self.redactor.json(raw.get()));
        self.make_room(text.len())?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.persist(self.folder.join(&id)).map_err(|error| error.error)?;
        Ok(id)
    }

    /// Removes what has ended, and the oldest as far as it must be.
    fn make_room(&self, needed: usize) -> std::io::Result<()> {
        let now = SystemTime::now();
        let mut files = Vec::new();
        for entry in fs_err::read_dir(&self.folder)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let at = meta.modified()?;
            if now.duration_since(at).unwrap_or(Duration::ZERO) >= self.limits.keep.get() {
                fs_err::remove_file(entry.path())?;
            } else {
                files.push((at, meta.len(), entry.path()));
            }
        }
        files.sort();
        let mut total = files.iter().map(|(_, length, _)| length).sum::<u64>() + needed as u64;
        for (_, length, path) in files {
            if total <= self.limits.max_disk.bytes() {
                break;
            }
            fs_err::remove_file(path)?;
            total -= length;
        }
        if total > self.limits.max_disk.bytes() {
            return Err(std::io::Error::other("it is larger than all results may be, `results.max_disk`"));
        }
        Ok(())
    }

    /// A result by its address, for who made the call.
    ///
    /// # Errors
    /// When it is not there, has ended, or is somebody else's.
    pub async fn read(self: &Arc<Self>, caller: &CallerId, uri: &str) -> Result<Kept, ReadError> {
        let absent = || ReadError::Absent(uri.to_owned());
        let id = uri.strip_prefix(SCHEME).ok_or_else(absent)?;
        if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(absent());
        }
        let (path, keep) = (self.folder.join(id), self.limits.keep.get());
        let read = spawn_blocking(move || {
            let age = fs_err::metadata(&path)?.modified()?.elapsed().unwrap_or_default();
            if age < keep { fs_err::read(&path) } else { Err(std::io::ErrorKind::NotFound.into()) }
        });
        let text = match read.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(absent()),
            Err(error) => return Err(error.into()),
        };
        let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(absent)?;
        let head: Head = serde_json::from_slice(&text[..end]).map_err(|_| absent())?;
        if head.owner != caller.as_str() {
            return Err(absent());
        }
        let text = bytes::Bytes::from(text).slice(end + 1..);
        let limits = toolgate_upstream::scan::Limits { size: text.len(), ..Default::default() };
        Ok(Kept { tool: head.tool, reply: Raw::new(text, limits).map_err(|_| absent())? })
    }

    /// The tool that reads them.
    pub(crate) fn tool(self: &Arc<Self>) -> Builtin {
        let most = self.limits.max_inline.as_usize();
        let results = Arc::clone(self);
        let run = move |asked: Asked| -> BoxFuture<'static, Given> {
            let results = Arc::clone(&results);
            Box::pin(async move {
                let wanted: read::Wanted = asked.arguments.parse().map_err(|error| error.to_string())?;
                let kept =
                    results.read(&asked.caller, &wanted.uri).await.map_err(|error| error.to_string())?;
                Ok(wanted.of(&kept.reply, most)?)
            })
        };
        Builtin::query(
            READ_RESULT.parse().expect("it is a name"),
            "Reads a result that was too large to be given whole, by its `toolgate://results/…` address: \
             a page of it, the lines that match a pattern, or the part that a JSON pointer names.",
            Raw::of(&read::schema(most)),
            run,
        )
    }
}

/// What is shown of a result: its content as far as there is room, and where the whole is.
fn preview(raw: &Raw, most: usize, uri: Option<&str>, tool: &str) -> (Raw, usize) {
    #[derive(Deserialize)]
    struct Text {
        text: Option<String>,
    }
    let members = raw.members();
    let part = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, value)| *value);
    let blocks: Vec<&RawValue> =
        part("content").and_then(|content| serde_json::from_str(content).ok()).unwrap_or_default();
    let mut room = most;
    let mut shown: Vec<Box<RawValue>> = Vec::new();
    let own = |value: &serde_json::Value| serde_json::value::to_raw_value(value).expect("it is JSON");
    for block in &blocks {
        if block.get().len() <= room {
            room -= block.get().len();
            shown.push((*block).to_owned());
        } else if let Ok(Text { text: Some(text) }) = serde_json::from_str(block.get()) {
            let text = &text[..text.floor_char_boundary(room)];
            shown.push(own(&json!({ "type": "text", "text": text })));
            room = 0;
        }
    }
    if let (true, Some(structured)) = (blocks.is_empty(), part("structuredContent")) {
        let text = &structured[..structured.floor_char_boundary(room)];
        shown.push(own(&json!({ "type": "text", "text": text })));
        room = 0;
    }
    let size = raw.bytes().len();
    shown.push(own(&match uri {
        Some(uri) => json!({ "type": "resource_link", "uri": uri, "name": format!("the whole result of {tool}"),
            "description": format!("the first {} of {size} bytes are shown; `{READ_RESULT}` reads the rest", most - room),
            "mimeType": "application/json", "size": size }),
        None => json!({ "type": "text",
            "text": format!("the first {} of {size} bytes; the rest could not be kept", most - room) }),
    }));
    let mut text = format!("{{\"content\":{}", serde_json::to_string(&shown).expect("they are JSON"));
    for (name, value) in members.iter().filter(|(name, _)| name != "content" && name != "structuredContent") {
        let _ = write!(text, ",{}:{}", json!(name), value);
    }
    text.push('}');
    (Raw::trusted(text), most - room)
}

#[cfg(test)]
mod tests;
