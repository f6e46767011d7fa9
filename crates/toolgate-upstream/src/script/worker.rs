//! A worker: a Python process that has loaded a tool and waits for calls, one at a time.
//!
//! It runs `worker.py`, which says how both talk. Invariant: a worker that did not answer is never asked again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use toolgate_mcp::Raw;
use toolgate_types::{Text, ToolContext};

use super::file::{Opened, Stamp};
use super::leaving::{Held, Leaving};
use super::{Cause, Job, LAST_WORDS, ScriptError, reply};
use crate::process::{Child, Exit};

/// What every worker runs.
const PROGRAM: &str = include_str!("worker.py");
/// For words about a failure, beside the result itself.
const SLACK: usize = 64 * 1024;
/// For a worker whose stdout has ended to be seen as ended.
const LAST_BREATH: Duration = Duration::from_secs(3);

pub(super) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The file it has loaded.
    pub(super) stamp: Stamp,
    /// Whether the function wants to know what a call belongs to.
    wants_context: bool,
}

/// One message of a worker.
struct Frame {
    kind: u8,
    body: Bytes,
}

/// Why there is no message.
enum NoFrame {
    Ended,
    TooLarge,
}

/// An exception.
#[derive(Deserialize)]
struct Exception {
    r#type: String,
    message: String,
    traceback: String,
    /// The module that was not found.
    missing: Option<String>,
}

impl Worker {
    /// Starts one and has it load the tool.
    pub(super) async fn start(job: &Job<'_>) -> Result<Self, ScriptError> {
        let opened = Opened::new(job, true)?;
        let (stamp, folder) = (opened.stamp, opened.folder.clone());
        let python = interpreter(job, &folder);
        let mut spec = job.child(python.clone(), &folder);
        spec.args = ["-u", "-c", PROGRAM].into_iter().map(Text::plain).collect();
        let child = Child::spawn(&spec).map_err(|error| job.cannot_start(&error))?;
        let mut held = Held::new(child, job.leaving);
        let child = held.child();
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ScriptError::unusable("the worker has no stdin or stdout".to_owned(), None));
        };
        let mut stdout = BufReader::new(stdout);
        let setup = json!({
            "path": job.script.script_path,
            "entrypoint": job.script.entrypoint,
            "properties": properties(job),
            "max_output": job.limits.size,
        });
        let setup = serde_json::to_vec(&setup).unwrap_or_default();
        let source = opened.source()?;
        // One that does not read has ended, which is seen at the answer.
        let _ = stdin.write_all(&[framed(&setup), framed(&source)].concat()).await;
        match receive(&mut stdout, SLACK).await {
            Ok(Frame { kind: b'y', body }) => {
                let wants_context = body.as_ref() == b"1";
                Ok(Self { child: held.release(), stdin, stdout, stamp, wants_context })
            }
            Ok(Frame { kind: b'x', body }) => Err(not_loaded(job, &python, &body)),
            Ok(_) | Err(_) => {
                let exit = last_breath(held.child()).await;
                let said = job.quoted(&held.child().stderr_tail(LAST_WORDS).join("\n"));
                let message = format!("`{}` {exit} before it had loaded `{}`: {said}", python, job.file());
                Err(ScriptError::unusable(message, None))
            }
        }
    }

    /// Whether it is still there.
    pub(super) fn lives(&self) -> bool {
        !self.child.has_ended()
    }

    /// Makes a call. Says whether it can be asked again.
    pub(super) async fn call(
        &mut self,
        job: &Job<'_>,
        arguments: &Raw,
        context: &ToolContext,
    ) -> (Result<Raw, ScriptError>, bool) {
        let before = self.child.stderr_written();
        let arguments = arguments.get();
        let request = if self.wants_context {
            let mut context = serde_json::to_value(context).unwrap_or_default();
            context["tool"] = Value::from(job.tool.name.as_str());
            format!("{{\"arguments\":{arguments},\"context\":{context}}}")
        } else {
            format!("{{\"arguments\":{arguments}}}")
        };
        // One that does not read has ended, which is seen at the answer.
        let _ = self.stdin.write_all(&framed(request.as_bytes())).await;
        let frame = receive(&mut self.stdout, job.limits.size + SLACK).await;
        let said = self.child.stderr_since(before, LAST_WORDS);
        if !said.is_empty() {
            tracing::debug!(tool = %job.tool.name, "printed: {}", job.quoted(&said.join("\n")));
        }
        match frame {
            Ok(Frame { kind: b'r', body }) => {
                let shaped = reply::of_json(body, job.limits, job.tool.output_schema.is_some());
                let refused = |why: String| {
                    ScriptError::failed(format!("what `{}` returned is no result: {why}", job.file()))
                };
                (shaped.map_err(refused), true)
            }
            Ok(Frame { kind: b'l', .. }) => (Err(ScriptError::TooLarge { limit: job.limits.size }), true),
            Err(NoFrame::TooLarge) => (Err(ScriptError::TooLarge { limit: job.limits.size }), false),
            Ok(Frame { kind: kind @ (b'e' | b'n'), body }) => raised(job, kind, &body),
            Ok(_) | Err(NoFrame::Ended) => {
                let exit = last_breath(&self.child).await;
                let said = job.quoted(&self.child.stderr_since(before, LAST_WORDS).join("\n"));
                let said = if said.is_empty() { said } else { format!(": {said}") };
                let message =
                    format!("the process of `{}` {exit} in the middle of the call{said}", job.file());
                (Err(ScriptError::Died(message)), false)
            }
        }
    }

    /// Ends it; in `grace` it may do so by itself.
    pub(super) fn end(self, leaving: &Leaving, grace: Duration) {
        drop(self.stdin);
        leaving.end(self.child, grace);
    }
}

/// An exception of the tool, or of what was to make JSON of its result.
fn raised(job: &Job<'_>, kind: u8, body: &[u8]) -> (Result<Raw, ScriptError>, bool) {
    let Some(Exception { r#type, message, traceback, .. }) = serde_json::from_slice(body).ok() else {
        return (Err(ScriptError::failed("the tool failed and does not say why".to_owned())), false);
    };
    let said = if message.is_empty() { r#type.clone() } else { format!("{}: {message}", r#type) };
    let said = job.quoted(&said);
    // A worker that has no memory left, or was told to end, ends.
    let goes_on = !matches!(r#type.as_str(), "MemoryError" | "SystemExit" | "KeyboardInterrupt");
    let message = match (kind, r#type.as_str()) {
        (b'n', _) => format!("what `{}` returned is not JSON: {said}", job.file()),
        (_, "MemoryError") => {
            format!("{said}: the tool needs more than its `max_memory` of {}", job.script.max_memory)
        }
        _ => said,
    };
    (Err(ScriptError::Failed { message, cause: Some(Cause(job.masked(&traceback))) }), goes_on)
}

/// Why a tool could not be loaded, and what to do.
fn not_loaded(job: &Job<'_>, python: &Text, body: &[u8]) -> ScriptError {
    let Ok(Exception { r#type, message, traceback, missing }) = serde_json::from_slice(body) else {
        return ScriptError::unusable(format!("`{}` cannot be loaded", job.file()), None);
    };
    let (file, entrypoint) = (job.file(), &job.script.entrypoint);
    if r#type == "NoFunction" {
        let hint = match message.as_str() {
            "" => format!("write `def {entrypoint}(args):`"),
            there => format!("`entrypoint` names one of those that are there: {}", job.quoted(there)),
        };
        return ScriptError::unusable(format!("`{file}` has no function `{entrypoint}`"), hint);
    }
    let hint = missing.map(|module| to_install(job, python, &module));
    let message = format!("`{file}` cannot be loaded: {}: {}", r#type, job.quoted(&message));
    ScriptError::Unusable { message, hint, cause: Some(Cause(job.masked(&traceback))) }
}

/// What to type for a module that is not there. Nothing is installed unasked.
fn to_install(job: &Job<'_>, python: &Text, module: &str) -> String {
    let folder = job.script.script_path.parent().unwrap_or(Path::new("."));
    let needs = folders(job, folder).into_iter().map(|folder| folder.join("requirements.txt"));
    let needs = needs.into_iter().find(|file| file.is_file());
    let what = match &needs {
        Some(file) => format!("-r {}", file.display()),
        None => job.quoted(module),
    };
    let place = needs.as_deref().and_then(Path::parent).unwrap_or(folder).join(".venv");
    if python.expose().ends_with(VENV) {
        format!("`{python} -m pip install {what}`")
    } else {
        let place = place.display();
        format!("`python3 -m venv {place} && {place}/bin/python -m pip install {what}`; `.venv` is then used")
    }
}

/// The interpreter in a virtual environment.
const VENV: &str = ".venv/bin/python";

/// That of a virtual environment beside the tool or in a folder above it, up to the project; else that on the path.
fn interpreter(job: &Job<'_>, folder: &Path) -> Text {
    let found = folders(job, folder).into_iter().map(|folder| folder.join(VENV)).find(|file| file.is_file());
    found.map_or_else(|| Text::plain("python3"), |file| Text::plain(file.to_string_lossy()))
}

/// From the folder of the tool to that of the project.
fn folders(job: &Job<'_>, folder: &Path) -> Vec<PathBuf> {
    let project = &job.script.project;
    let inside = folder.ancestors().take_while(|folder| folder.starts_with(project));
    let mut all: Vec<_> = inside.map(Path::to_owned).collect();
    if all.is_empty() {
        all = vec![folder.to_owned(), project.clone()];
    }
    all
}

/// The names of the arguments, by which a function may take them.
fn properties(job: &Job<'_>) -> Vec<String> {
    let schema: Value = serde_json::from_str(job.tool.input_schema.get()).unwrap_or_default();
    schema["properties"].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default()
}

async fn last_breath(child: &Child) -> Exit {
    tokio::time::timeout(LAST_BREATH, child.exit()).await.unwrap_or(Exit::Unknown)
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("requests are bounded far below");
    [&length.to_be_bytes(), body].concat()
}

async fn receive(stdout: &mut BufReader<ChildStdout>, most: usize) -> Result<Frame, NoFrame> {
    let ended = |_| NoFrame::Ended;
    let length = stdout.read_u32().await.map_err(ended)? as usize;
    let Some(length) = length.checked_sub(1) else { return Err(NoFrame::Ended) };
    let kind = stdout.read_u8().await.map_err(ended)?;
    if length > most {
        return Err(NoFrame::TooLarge);
    }
    let mut body = vec![0; length];
    stdout.read_exact(&mut body).await.map_err(ended)?;
    Ok(Frame { kind, body: body.into() })
}
