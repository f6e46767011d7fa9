//! Stored results: results too large to return inline are stored and read in parts.
//!
//! The caller gets a preview and a link. The tool `read_result` pages through the rest, searches it, or evaluates a
//! JSON pointer. A stored result is a file in the project, so other processes can read it. Invariants: only the caller
//! that made the call can read its result, every result expires, and total disk usage is bounded.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use toolgate_audit::redact::Redactor;
use toolgate_state::{FileAccess, StateDir};
use toolgate_types::CallerId;
use toolgate_types::limits::ResultLimits;
use toolgate_upstream::builtin::{BuiltinCall, BuiltinResult};
use toolgate_upstream::{BuiltinTool, RawJson};

use crate::stage::content::ToolReply;

mod read;

/// Name of the tool that reads stored results.
pub const READ_RESULT: &str = "read_result";
/// Prefix of the URIs of stored results.
pub const URI_PREFIX: &str = "toolgate://results/";
/// Folder in the project.
const FOLDER: &str = ".toolgate/results";

/// The stored results of a project.
#[derive(Debug)]
pub struct ResultStore {
    folder: PathBuf,
    limits: ResultLimits,
    redactor: Redactor,
}

/// A result that was too large to return inline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TruncatedResult {
    /// URI of the stored result; `None` if it could not be stored.
    pub(crate) uri: Option<String>,
    /// Size of the preview in bytes.
    pub(crate) shown: usize,
    /// Size of the full result in bytes.
    pub(crate) total: usize,
}

/// First line of a stored file.
#[derive(Debug, Serialize, Deserialize)]
struct StoredHeader {
    owner: String,
    tool: String,
    /// True if the result came from an untrusted server. A file that does not say is not trusted.
    #[serde(default = "unknown_origin")]
    untrusted: bool,
}

fn unknown_origin() -> bool {
    true
}

#[derive(Debug)]
pub struct StoredResult {
    pub tool: String,
    /// The complete reply.
    pub reply: RawJson,
    /// True if the result came from an untrusted server.
    pub untrusted: bool,
}

/// Reasons why a stored result cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The result does not exist or belongs to another caller; the error does not reveal which.
    #[error("there is no stored result `{0}` of this caller; stored results expire")]
    Absent(String),
    #[error("the result cannot be read")]
    Io(#[from] std::io::Error),
}

impl ResultStore {
    /// The result store of a project.
    pub fn in_project(project: &Path, limits: ResultLimits, redactor: Redactor) -> Arc<Self> {
        Arc::new(Self { folder: project.join(FOLDER), limits, redactor })
    }

    /// Redacts these secrets in results stored from now on.
    pub fn add_secrets(&self, secrets: &[toolgate_types::Secret]) {
        self.redactor.add_secrets(secrets);
    }

    /// Stores a result that is too large and replaces it with a preview. Smaller results pass unchanged.
    pub(crate) async fn truncate(
        self: &Arc<Self>,
        caller: &CallerId,
        (tool, untrusted): (&str, bool),
        max_inline: Option<usize>,
        reply: ToolReply,
    ) -> (ToolReply, Option<TruncatedResult>) {
        let configured = self.limits.max_inline.as_usize();
        let max_inline = max_inline.map_or(configured, |limit| limit.min(configured));
        let total = reply.raw.bytes().len();
        if total <= max_inline {
            return (reply, None);
        }
        let uri = match self.store(caller, tool, untrusted, reply.raw.clone()).await {
            Ok(uri) => Some(uri),
            Err(error) => {
                tracing::error!("a result of {tool} could not be stored: {error}");
                None
            }
        };
        let (preview, shown) = preview(&reply.raw, max_inline, uri.as_deref(), tool);
        let converted = ToolReply::convert(preview).expect("a preview is a result");
        (ToolReply { untrusted: reply.untrusted, ..converted }, Some(TruncatedResult { uri, shown, total }))
    }

    /// Stores a reply for a caller. Returns its URI.
    pub(crate) async fn store(
        self: &Arc<Self>,
        caller: &CallerId,
        tool: &str,
        untrusted: bool,
        raw: RawJson,
    ) -> std::io::Result<String> {
        let results = Arc::clone(self);
        let head = StoredHeader { owner: caller.to_string(), tool: tool.to_owned(), untrusted };
        let stored = spawn_blocking(move || results.write_file(&head, &raw)).await;
        let id = stored.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))?;
        Ok(format!("{URI_PREFIX}{id}"))
    }

    /// Writes the file, named by a hash of owner and content, so equal results share a file. Returns the id.
    fn write_file(&self, head: &StoredHeader, raw: &RawJson) -> std::io::Result<String> {
        let mut hash = Sha256::new();
        hash.update(&head.owner);
        // Part of the id, so that a trusted copy of the same content does not replace the untrusted one.
        hash.update([0, u8::from(head.untrusted)]);
        hash.update(raw.bytes());
        let id = hash.finalize().iter().take(16).fold(String::new(), |mut id, byte| {
            let _ = write!(id, "{byte:02x}");
            id
        });
        let folder = StateDir::create(&self.folder)?;
        let mut text = serde_json::to_string(head)?;
        text.push('\n');
        text.push_str(&self.redactor.json(raw.as_str()));
        self.make_room(&folder, text.len())?;
        folder.replace_unsynced(&id, text.as_bytes())?;
        Ok(id)
    }

    /// Removes expired results, then the oldest ones until the new result fits.
    fn make_room(&self, folder: &StateDir, needed: usize) -> std::io::Result<()> {
        let now = SystemTime::now();
        let mut files = Vec::new();
        for name in folder.names()? {
            // Another process may remove it in the meantime, and a temporary file is gone soon.
            let Ok(meta) = fs_err::symlink_metadata(folder.path().join(&name)) else { continue };
            let at = meta.modified()?;
            if now.duration_since(at).unwrap_or(Duration::ZERO) >= self.limits.keep.get() {
                folder.remove(&name)?;
            } else {
                files.push((at, meta.len(), name));
            }
        }
        files.sort();
        let mut total = files.iter().map(|(_, length, _)| length).sum::<u64>() + needed as u64;
        for (_, length, name) in files {
            if total <= self.limits.max_disk.bytes() {
                break;
            }
            folder.remove(&name)?;
            total -= length;
        }
        if total > self.limits.max_disk.bytes() {
            return Err(std::io::Error::other("it is larger than `results.max_disk`"));
        }
        Ok(())
    }

    /// Reads a stored result, for the caller that made the call.
    ///
    /// # Errors
    /// If the result does not exist, has expired, or belongs to another caller.
    pub async fn read(self: &Arc<Self>, caller: &CallerId, uri: &str) -> Result<StoredResult, ReadError> {
        let absent = || ReadError::Absent(uri.to_owned());
        let id = uri.strip_prefix(URI_PREFIX).ok_or_else(absent)?;
        if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(absent());
        }
        let (folder, name, keep) = (self.folder.clone(), id.to_owned(), self.limits.keep.get());
        let max_bytes = self.limits.max_disk.bytes();
        let read = spawn_blocking(move || {
            let folder = StateDir::open(&folder)?;
            let file = folder.open_file(&name, FileAccess::Read)?;
            let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
            if age < keep { folder.read(&name, max_bytes) } else { Err(std::io::ErrorKind::NotFound.into()) }
        });
        let text = match read.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(absent()),
            Err(error) => return Err(error.into()),
        };
        let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(absent)?;
        let head: StoredHeader = serde_json::from_slice(&text[..end]).map_err(|_| absent())?;
        if head.owner != caller.as_str() {
            return Err(absent());
        }
        let text = bytes::Bytes::from(text).slice(end + 1..);
        let limits = toolgate_upstream::scan::ScanLimits { size: text.len(), ..Default::default() };
        let reply = RawJson::new(text, limits).map_err(|_| absent())?;
        Ok(StoredResult { tool: head.tool, reply, untrusted: head.untrusted })
    }

    /// Creates the `read_result` tool.
    pub(crate) fn read_tool(self: &Arc<Self>) -> BuiltinTool {
        let max_inline = self.limits.max_inline.as_usize();
        let results = Arc::clone(self);
        let run = move |call: BuiltinCall| -> BoxFuture<'static, BuiltinResult> {
            let results = Arc::clone(&results);
            Box::pin(async move {
                let request: read::ReadRequest = call.arguments.parse().map_err(|error| error.to_string())?;
                let stored =
                    results.read(&call.caller, &request.uri).await.map_err(|error| error.to_string())?;
                call.untrusted.store(stored.untrusted, Ordering::Relaxed);
                Ok(request.read(&stored.reply, max_inline)?)
            })
        };
        let mut tool = BuiltinTool::query(
            READ_RESULT.parse().expect("a valid name"),
            "Reads a stored result that was too large to return inline, by its `toolgate://results/…` URI: \
             a page of it, the lines that match a pattern, or the value at a JSON pointer.",
            RawJson::from_value(&read::input_schema(max_inline)),
            run,
        );
        tool.own_data = true;
        tool
    }
}

/// Builds the preview: as much of the content as fits, and a link to the full result.
fn preview(raw: &RawJson, max_inline: usize, uri: Option<&str>, tool: &str) -> (RawJson, usize) {
    #[derive(Deserialize)]
    struct Text {
        text: Option<String>,
    }
    let members = raw.members();
    let part = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, value)| *value);
    let blocks: Vec<&RawValue> =
        part("content").and_then(|content| serde_json::from_str(content).ok()).unwrap_or_default();
    let mut room = max_inline;
    let mut shown: Vec<Box<RawValue>> = Vec::new();
    let to_raw = |value: &serde_json::Value| serde_json::value::to_raw_value(value).expect("valid JSON");
    for block in &blocks {
        if block.get().len() <= room {
            room -= block.get().len();
            shown.push((*block).to_owned());
        } else if let Ok(Text { text: Some(text) }) = serde_json::from_str(block.get()) {
            let text = &text[..text.floor_char_boundary(room)];
            shown.push(to_raw(&json!({ "type": "text", "text": text })));
            room = 0;
        }
    }
    if let (true, Some(structured)) = (blocks.is_empty(), part("structuredContent")) {
        let text = &structured[..structured.floor_char_boundary(room)];
        shown.push(to_raw(&json!({ "type": "text", "text": text })));
        room = 0;
    }
    let size = raw.bytes().len();
    shown.push(to_raw(&match uri {
        Some(uri) => json!({ "type": "resource_link", "uri": uri, "name": format!("the full result of {tool}"),
            "description": format!("the first {} of {size} bytes are shown; `{READ_RESULT}` reads the rest", max_inline - room),
            "mimeType": "application/json", "size": size }),
        None => json!({ "type": "text",
            "text": format!("the first {} of {size} bytes; the rest could not be stored", max_inline - room) }),
    }));
    let mut text = format!("{{\"content\":{}", serde_json::to_string(&shown).expect("valid JSON"));
    for (name, value) in members.iter().filter(|(name, _)| name != "content" && name != "structuredContent") {
        let _ = write!(text, ",{}:{}", json!(name), value);
    }
    text.push('}');
    (RawJson::from_trusted(text), max_inline - room)
}

#[cfg(test)]
mod tests;
