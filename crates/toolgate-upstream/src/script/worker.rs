//! A worker: a Python process that has loaded a tool, and takes one call at a time.
//!
//! It runs `worker.py`; the protocol is documented there. Invariant: a worker that did not answer gets no further call.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use toolgate_mcp::RawJson;
use toolgate_types::{ConfigString, ToolContext};

use super::file::{FileStamp, ScriptFile};
use super::shutdown::{ChildGuard, ShutdownTasks};
use super::{InternalCause, STDERR_LINES, ScriptCall, ScriptError, reply};
use crate::process::{Child, ChildExit};

/// The Python source that every worker runs.
const WORKER_SOURCE: &str = include_str!("worker.py");
/// The Python source that workers load if the signature of a tool needs it.
const SIGNATURE_SOURCE: &str = include_str!("signature.py");
/// Bytes for an error message, in addition to the result limit.
const ERROR_FRAME_BYTES: usize = 64 * 1024;
/// The time to wait for the exit status after stdout was closed.
const EXIT_WAIT: Duration = Duration::from_secs(3);

pub(super) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The version of the file it has loaded.
    pub(super) stamp: FileStamp,
    /// True if the function takes a `context`.
    wants_context: bool,
}

/// A message from a worker.
struct Frame {
    kind: u8,
    body: Bytes,
}

enum FrameError {
    Ended,
    TooLarge,
}

/// A Python exception, as sent by `worker.py`.
#[derive(Deserialize)]
struct PythonException {
    r#type: String,
    message: String,
    traceback: String,
    /// The name of a module that was not found.
    missing: Option<String>,
    /// The attributes `code` and `hint` of the exception, if they are strings.
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    hint: Option<String>,
}

/// An argument that does not fit its parameter, as sent by `worker.py`.
#[derive(Deserialize)]
struct WrongArgument {
    message: String,
    function: String,
    line: Option<u32>,
}

/// A process that has loaded a file, and its first frame.
struct LoadedProcess<'a> {
    guard: ChildGuard<'a>,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stamp: FileStamp,
    frame: Frame,
}

impl<'a> LoadedProcess<'a> {
    /// Starts the interpreter, and loads the file of a script, to call its function or to describe all of its functions.
    async fn start(call: &ScriptCall<'a>, describe: bool) -> Result<Self, ScriptError> {
        let opened = ScriptFile::new(call, true)?;
        let (stamp, folder) = (opened.stamp, opened.folder.clone());
        let python = interpreter(call, &folder);
        let mut spec = call.child(python.clone(), &folder);
        spec.args =
            ["-u", "-c", WORKER_SOURCE, SIGNATURE_SOURCE].into_iter().map(ConfigString::plain).collect();
        let child = Child::spawn(&spec).map_err(|error| call.cannot_start(&error))?;
        let mut guard = ChildGuard::new(child, call.shutdowns);
        let child = guard.child();
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ScriptError::unusable("the worker has no stdin or stdout".to_owned(), None));
        };
        let mut stdout = BufReader::new(stdout);
        let setup = json!({
            "path": call.script.script_path,
            "entrypoint": call.script.entrypoint,
            "properties": properties(call),
            "max_output": call.limits.size,
            "describe": describe,
        });
        let setup = serde_json::to_vec(&setup).unwrap_or_default();
        let source = opened.source()?;
        // A write error means that the process has ended. The read reports it.
        let _ = stdin.write_all(&[encode_frame(&setup), encode_frame(&source)].concat()).await;
        let max_bytes = if describe { call.limits.size } else { ERROR_FRAME_BYTES };
        match read_frame(&mut stdout, max_bytes).await {
            Ok(Frame { kind: b'x', body }) => Err(load_error(call, &python, &body)),
            Ok(frame @ Frame { kind: b'y' | b'd', .. }) => Ok(Self { guard, stdin, stdout, stamp, frame }),
            Err(FrameError::TooLarge) => Err(ScriptError::TooLarge { limit: max_bytes }),
            Ok(_) | Err(FrameError::Ended) => {
                let exit = wait_for_exit(guard.child()).await;
                let output = call.quoted(&guard.child().stderr_tail(STDERR_LINES).join("\n"));
                let message = format!("`{}` {exit} before it had loaded `{}`: {output}", python, call.file());
                Err(ScriptError::unusable(message, None))
            }
        }
    }
}

/// Describes the public functions of a Python file, as JSON that `signature.py` writes. Runs the file, like a call does.
pub(super) async fn describe(call: &ScriptCall<'_>) -> Result<RawJson, ScriptError> {
    let LoadedProcess { frame, .. } = LoadedProcess::start(call, true).await?;
    RawJson::new(frame.body, call.limits).map_err(|error| {
        ScriptError::failed(format!("the description of `{}` is invalid: {error}", call.file()))
    })
}

impl Worker {
    /// Starts a worker, and loads the tool.
    pub(super) async fn start(call: &ScriptCall<'_>) -> Result<Self, ScriptError> {
        let LoadedProcess { guard, stdin, stdout, stamp, frame } = LoadedProcess::start(call, false).await?;
        let wants_context = frame.body.as_ref() == b"1";
        Ok(Self { child: guard.release(), stdin, stdout, stamp, wants_context })
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.child.has_ended()
    }

    /// Runs a call. The second value is true if the worker can take another call.
    pub(super) async fn call(
        &mut self,
        call: &ScriptCall<'_>,
        arguments: &RawJson,
        context: &ToolContext,
    ) -> (Result<RawJson, ScriptError>, bool) {
        let before = self.child.stderr_written();
        let arguments = arguments.as_str();
        let request = if self.wants_context {
            let mut context = serde_json::to_value(context).unwrap_or_default();
            context["tool"] = Value::from(call.tool.name.as_str());
            format!("{{\"arguments\":{arguments},\"context\":{context}}}")
        } else {
            format!("{{\"arguments\":{arguments}}}")
        };
        // A write error means that the process has ended. The read reports it.
        let _ = self.stdin.write_all(&encode_frame(request.as_bytes())).await;
        let frame = read_frame(&mut self.stdout, call.limits.size + ERROR_FRAME_BYTES).await;
        let output = self.child.stderr_since(before, STDERR_LINES);
        if !output.is_empty() {
            tracing::debug!(tool = %call.tool.name, "printed: {}", call.quoted(&output.join("\n")));
        }
        match frame {
            Ok(Frame { kind: b'r', body }) => {
                let shaped = reply::from_json(body, call.limits, call.tool.output_schema.is_some());
                let refused = |why: String| {
                    ScriptError::failed(format!("`{}` returned an invalid result: {why}", call.file()))
                };
                (shaped.map_err(refused), true)
            }
            Ok(Frame { kind: b'l', .. }) => (Err(ScriptError::TooLarge { limit: call.limits.size }), true),
            Err(FrameError::TooLarge) => (Err(ScriptError::TooLarge { limit: call.limits.size }), false),
            Ok(Frame { kind: b'a', body }) => (Err(argument_error(call, &body)), true),
            Ok(Frame { kind: kind @ (b'e' | b'n'), body }) => exception_error(call, kind, &body),
            Ok(_) | Err(FrameError::Ended) => {
                let exit = wait_for_exit(&self.child).await;
                let output = call.quoted(&self.child.stderr_since(before, STDERR_LINES).join("\n"));
                let output = if output.is_empty() { output } else { format!(": {output}") };
                let message = format!("the process of `{}` {exit} during the call{output}", call.file());
                (Err(ScriptError::Died(message)), false)
            }
        }
    }

    /// Stops the worker. It may exit by itself within `grace`.
    pub(super) fn stop(self, shutdowns: &ShutdownTasks, grace: Duration) {
        drop(self.stdin);
        shutdowns.stop(self.child, grace);
    }
}

/// Converts an exception of the tool, or of encoding its result.
fn exception_error(call: &ScriptCall<'_>, kind: u8, body: &[u8]) -> (Result<RawJson, ScriptError>, bool) {
    let Some(PythonException { r#type, message, traceback, code, hint, .. }) =
        serde_json::from_slice(body).ok()
    else {
        return (Err(ScriptError::failed("the tool failed without a message".to_owned())), false);
    };
    let description = if message.is_empty() { r#type.clone() } else { format!("{}: {message}", r#type) };
    let description = call.quoted(&description);
    // `worker.py` exits after these exceptions.
    let reusable = !matches!(r#type.as_str(), "MemoryError" | "SystemExit" | "KeyboardInterrupt");
    let message = match (kind, r#type.as_str()) {
        (b'n', _) => format!("`{}` returned a value that is not JSON: {description}", call.file()),
        (_, "MemoryError") => {
            format!("{description}: the tool needs more than its `max_memory` of {}", call.script.max_memory)
        }
        _ => description,
    };
    let failed = ScriptError::Failed {
        message,
        tool_code: code.filter(|code| is_code(code)),
        hint: hint.map(|hint| call.quoted(&hint)),
        cause: Some(InternalCause(call.masked(&traceback))),
    };
    (Err(failed), reusable)
}

/// Returns true if a string can be the code of an error: a short name for programs.
fn is_code(code: &str) -> bool {
    (1..=64).contains(&code.len())
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// Converts an argument that does not fit. The function was not called.
fn argument_error(call: &ScriptCall<'_>, body: &[u8]) -> ScriptError {
    let Ok(WrongArgument { message, function, line }) = serde_json::from_slice(body) else {
        return ScriptError::failed("the tool was called with wrong arguments".to_owned());
    };
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let place = format!("`{}` in {}{line}", call.quoted(&function), call.file());
    ScriptError::WrongArgument(format!("{place}: {}", call.quoted(&message)))
}

/// Converts an exception during loading, with a hint.
fn load_error(call: &ScriptCall<'_>, python: &ConfigString, body: &[u8]) -> ScriptError {
    let Ok(PythonException { r#type, message, traceback, missing, .. }) = serde_json::from_slice(body) else {
        return ScriptError::unusable(format!("`{}` cannot be loaded", call.file()), None);
    };
    let (file, entrypoint) = (call.file(), &call.script.entrypoint);
    if r#type == "NoFunction" {
        let hint = match message.as_str() {
            "" => format!("write `def {entrypoint}(args):`"),
            available => format!("set `entrypoint` to one of these: {}", call.quoted(available)),
        };
        return ScriptError::unusable(format!("`{file}` has no function `{entrypoint}`"), hint);
    }
    let hint = missing.map(|module| install_hint(call, python, &module));
    let message = format!("`{file}` cannot be loaded: {}: {}", r#type, call.quoted(&message));
    ScriptError::Unusable { message, hint, cause: Some(InternalCause(call.masked(&traceback))) }
}

/// The command that installs a missing module. Nothing is installed automatically.
fn install_hint(call: &ScriptCall<'_>, python: &ConfigString, module: &str) -> String {
    let folder = call.script.script_path.parent().unwrap_or(Path::new("."));
    let needs = folders(call, folder).into_iter().map(|folder| folder.join("requirements.txt"));
    let needs = needs.into_iter().find(|file| file.is_file());
    let what = match &needs {
        Some(file) => format!("-r {}", file.display()),
        None => call.quoted(module),
    };
    let place = needs.as_deref().and_then(Path::parent).unwrap_or(folder).join(".venv");
    if python.expose().ends_with(VENV_PYTHON) {
        format!("`{python} -m pip install {what}`")
    } else {
        let place = place.display();
        format!(
            "`python3 -m venv {place} && {place}/bin/python -m pip install {what}`; Toolgate then uses `.venv`"
        )
    }
}

/// The interpreter of a virtual environment.
const VENV_PYTHON: &str = ".venv/bin/python";

/// The Python of the nearest virtual environment, from the tool's folder up to the project; else `python3`.
fn interpreter(call: &ScriptCall<'_>, folder: &Path) -> ConfigString {
    let found =
        folders(call, folder).into_iter().map(|folder| folder.join(VENV_PYTHON)).find(|file| file.is_file());
    found.map_or_else(|| ConfigString::plain("python3"), |file| ConfigString::plain(file.to_string_lossy()))
}

/// The folders from that of the tool up to the project.
fn folders(call: &ScriptCall<'_>, folder: &Path) -> Vec<PathBuf> {
    let project = &call.script.project;
    let inside = folder.ancestors().take_while(|folder| folder.starts_with(project));
    let mut all: Vec<_> = inside.map(Path::to_owned).collect();
    if all.is_empty() {
        all = vec![folder.to_owned(), project.clone()];
    }
    all
}

/// The property names of the input schema, which a function may take as parameters.
fn properties(call: &ScriptCall<'_>) -> Vec<String> {
    let schema: Value = serde_json::from_str(call.tool.input_schema.get()).unwrap_or_default();
    schema["properties"].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default()
}

async fn wait_for_exit(child: &Child) -> ChildExit {
    tokio::time::timeout(EXIT_WAIT, child.exit()).await.unwrap_or(ChildExit::Unknown)
}

fn encode_frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("requests are bounded far below 4 GiB");
    [&length.to_be_bytes(), body].concat()
}

async fn read_frame(stdout: &mut BufReader<ChildStdout>, max_bytes: usize) -> Result<Frame, FrameError> {
    let ended = |_| FrameError::Ended;
    let length = stdout.read_u32().await.map_err(ended)? as usize;
    let Some(length) = length.checked_sub(1) else { return Err(FrameError::Ended) };
    let kind = stdout.read_u8().await.map_err(ended)?;
    if length > max_bytes {
        return Err(FrameError::TooLarge);
    }
    let mut body = vec![0; length];
    stdout.read_exact(&mut body).await.map_err(ended)?;
    Ok(Frame { kind, body: body.into() })
}
