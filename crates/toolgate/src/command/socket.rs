//! The socket of a running `toolgate serve`, by which the commands of a project reach it.
//!
//! It is `.toolgate/socket`, for its owner alone: who can open it can write the project's files, too, so no key is asked
//! for. Who listens holds a lock for as long as it does. Invariant: a change that may have been sent is not made in
//! another way, too.

use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value as Json, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use toolgate_store::document::{Act, Kind, Op};
use toolgate_store::registry::{Change, Done, Problem};

use crate::output::hinted;

/// How long a server may take to answer: a disk, and a server that has to connect first.
const ANSWER: Duration = Duration::from_secs(10);

/// A socket that somebody listens on, gone when it is dropped.
pub(crate) struct Socket {
    path: PathBuf,
    pub(crate) listener: Option<UnixListener>,
    _lock: fs_err::File,
}

impl Socket {
    /// Listens for commands of a project. `None` where another does already. What an earlier one left is replaced.
    pub(crate) fn listen(project: &Path) -> io::Result<Option<Self>> {
        let folder = project.join(".toolgate");
        fs_err::create_dir_all(&folder)?;
        let lock = fs_err::File::create(folder.join("serve.lock"))?;
        match lock.file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Made where nobody else can reach it, and shown when it has its mode.
        let aside = tempfile::tempdir_in(&folder)?;
        let (made, path) = (aside.path().join("s"), folder.join("socket"));
        let listener = UnixListener::bind(&made)?;
        fs_err::set_permissions(&made, std::fs::Permissions::from_mode(0o600))?;
        fs_err::rename(&made, &path)?;
        Ok(Some(Self { path, listener: Some(listener), _lock: lock }))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.path);
    }
}

/// Why a running server did not make a change, in its words.
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) problems: Vec<Problem>,
    pub(crate) revision: Option<String>,
}

/// Has the server that runs for a project make a change. `None` where none runs, or it does not take changes now: it
/// has not heard of this one then.
pub(crate) fn submit(project: &Path, change: &Change) -> anyhow::Result<Option<Result<Done, Refusal>>> {
    let path = project.join(".toolgate/socket");
    if !path.exists() {
        return Ok(None);
    }
    let Some(request) = request(change)? else { return Ok(None) };
    let silent = || {
        let hint =
            "whether the change was made is not known: look at the file, or stop the server, and try again";
        hinted("the server that runs for this project does not answer", hint)
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answered = tokio.block_on(async {
        let stream = UnixStream::connect(path).await.ok()?;
        Some(timeout(ANSWER, exchange(stream, request)).await)
    });
    let Some(answered) = answered else { return Ok(None) };
    let (status, tag, body) = answered.ok().and_then(Result::ok).ok_or_else(silent)?;
    let document: Json = serde_json::from_slice(&body).unwrap_or_default();
    let problems = |value: &Json| serde_json::from_value(value.clone()).unwrap_or_default();
    if status.is_success() {
        let rev = tag.parse().context("the running server does not say which revision there is now")?;
        return Ok(Some(Ok(Done { rev, notes: problems(&document["notes"]) })));
    }
    let error = &document["error"];
    let text = |key: &str| error[key].as_str().map(ToOwned::to_owned);
    let code = text("code").unwrap_or_else(|| status.as_str().to_owned());
    if code == "service_unavailable" {
        // It is starting or stopping.
        return Ok(None);
    }
    let message = text("message").unwrap_or_else(|| format!("the running server answers {status}"));
    let (problems, revision) = (problems(&error["problems"]), text("revision"));
    Ok(Some(Err(Refusal { code, message, problems, revision })))
}

/// Asks the server that runs for a project; its status and what it says. `None` where none runs.
pub(crate) async fn request_of(
    project: &Path,
    method: Method,
    path: &str,
    body: Option<&Json>,
) -> anyhow::Result<Option<(StatusCode, Json)>> {
    let Ok(stream) = UnixStream::connect(project.join(".toolgate/socket")).await else { return Ok(None) };
    let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body.into()))?;
    let answered = timeout(ANSWER, exchange(stream, request)).await.ok().and_then(Result::ok);
    let (status, _, body) = answered.context("the server that runs for this project does not answer")?;
    Ok(Some((status, serde_json::from_slice(&body).unwrap_or_default())))
}

/// The change as a request. `None` for one that has no such form; it is refused anyway.
fn request(Change { expect, op }: &Change) -> anyhow::Result<Option<Request<Full<Bytes>>>> {
    let Op { kind, name, act } = op;
    let list = match kind {
        Kind::Tool => "/v1/tools",
        Kind::Server => "/v1/servers",
    };
    let one = format!("{list}/{}", encoded(name));
    let (method, path, body) = match act {
        Act::Add(entry) => {
            let mut entry = entry.clone();
            let own = entry.insert("name".to_owned(), json!(name));
            if own.is_some_and(|own| own != name.as_str()) {
                return Ok(None);
            }
            (Method::POST, list.to_owned(), serde_json::to_vec(&entry)?)
        }
        Act::Replace(entry) => (Method::PUT, one, serde_json::to_vec(entry)?),
        Act::Patch(patch) => (Method::PATCH, one, serde_json::to_vec(patch)?),
        Act::Remove => (Method::DELETE, one, Vec::new()),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(rev) = expect {
        request = request.header(header::IF_MATCH, format!("\"{rev}\""));
    }
    Ok(Some(request.body(Full::new(body.into()))?))
}

/// One request and its answer: the status, the revision, the body.
async fn exchange(
    stream: UnixStream,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, String, Bytes)> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let ask = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let tag = parts.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
        let body = body.collect().await?.to_bytes();
        anyhow::Ok((parts.status, tag.trim_matches('"').to_owned(), body))
    };
    tokio::pin!(ask);
    tokio::select! {
        answered = &mut ask => answered,
        // What it had to say has been read, or never comes.
        _ = connection => ask.await,
    }
}

/// A name as one part of a path.
pub(crate) fn encoded(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(byte).collect()
}
