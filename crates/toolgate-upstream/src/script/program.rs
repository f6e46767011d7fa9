//! Runs an executable for one call, with the arguments on its stdin.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;
use toolgate_mcp::RawJson;
use toolgate_types::{ConfigString, ToolContext};

use super::file::ScriptFile;
use super::shutdown::ChildGuard;
use super::{STDERR_LINES, ScriptCall, ScriptError, reply};
use crate::process::shim::CANNOT_START;
use crate::process::{Child, ChildExit};

/// Longer than any call may run: the deadline of the call ends it first.
const UNLIMITED_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// The time to read the rest of stdout after the process tree has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) async fn run(
    call: &ScriptCall<'_>,
    arguments: &RawJson,
    context: &ToolContext,
) -> Result<RawJson, ScriptError> {
    let opened = ScriptFile::new(call, false)?;
    let path = call.script.script_path.to_string_lossy();
    let mut spec = call.child(ConfigString::plain(path), &opened.folder);
    // Executed by descriptor: its name may refer to another file by now.
    spec.file = Some(Arc::new(opened.into_fd()));
    // Stdin is closed as soon as the arguments are written.
    spec.grace = UNLIMITED_GRACE;
    for (name, value) in variables(call, context) {
        spec.env.entry(name.to_owned()).or_insert_with(|| Some(ConfigString::plain(value)));
    }
    let child = Child::spawn(&spec).map_err(|error| call.cannot_start(&error))?;
    let mut guard = ChildGuard::new(child, call.shutdowns);
    let child = guard.child();
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(ScriptError::unusable("the program has no stdin or stdout".to_owned(), None));
    };
    let (output, exit) = exchange(child, stdin, stdout, arguments, call.limits.size).await?;
    let stderr = call.quoted(&guard.child().stderr_tail(STDERR_LINES).join("\n"));
    match exit {
        ChildExit::Code(0) => {}
        ChildExit::Code(code) if code == i32::from(CANNOT_START) && is_start_error(&stderr) => {
            let message = format!("`{}` cannot be started: {stderr}", call.file());
            let hint = "correct the first line of the script, or install its interpreter";
            return Err(ScriptError::unusable(message, hint.to_owned()));
        }
        ChildExit::Code(_) => {
            let suffix = if stderr.is_empty() { last_line(call, &output) } else { stderr };
            let suffix = if suffix.is_empty() {
                " without an error message".to_owned()
            } else {
                format!(": {suffix}")
            };
            return Err(ScriptError::failed(format!("`{}` {exit}{suffix}", call.file())));
        }
        ChildExit::Signal(_) | ChildExit::Unknown => {
            let suffix = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
            return Err(ScriptError::Died(format!("`{}` {exit}{suffix}", call.file())));
        }
    }
    if !stderr.is_empty() {
        tracing::debug!(tool = %call.tool.name, "stderr: {stderr}");
    }
    reply::from_output(output, call.limits, call.tool.output_schema.is_some())
        .map_err(|why| ScriptError::failed(format!("`{}`: {}", call.file(), call.quoted(&why))))
}

/// The environment variables that tell the program about its call.
fn variables(call: &ScriptCall<'_>, context: &ToolContext) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("TOOLGATE_TOOL", call.tool.name.to_string()),
        ("TOOLGATE_CALLER", context.agent_id.clone()),
        ("TOOLGATE_CORRELATION_ID", context.correlation_id.clone()),
        ("TOOLGATE_TRACE_ID", context.trace_id.clone()),
    ];
    all.extend(context.session_id.clone().map(|id| ("TOOLGATE_SESSION_ID", id)));
    all.extend(context.user_id.clone().map(|id| ("TOOLGATE_USER_ID", id)));
    // A value from a caller may contain a NUL byte, and no variable can hold one.
    all.retain(|(_, value)| !value.contains('\0'));
    all
}

/// Returns true if stderr says that the program did not start: the message of the shim, or of `env` in the first line of
/// a script.
fn is_start_error(stderr: &str) -> bool {
    ["toolgate: cannot start ", "env: ", "/usr/bin/env: "].iter().any(|start| stderr.starts_with(start))
}

/// The last line of stdout, as the error message of a program that wrote nothing to stderr.
fn last_line(call: &ScriptCall<'_>, output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    call.quoted(text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default())
}

/// Writes the arguments and reads the output, concurrently, until the program ends.
async fn exchange(
    child: &Child,
    mut stdin: ChildStdin,
    mut stdout: ChildStdout,
    arguments: &RawJson,
    limit: usize,
) -> Result<(Vec<u8>, ChildExit), ScriptError> {
    let write = async move {
        // The program may end without reading its arguments.
        let _ = stdin.write_all(arguments.bytes()).await;
        let _ = stdin.write_all(b"\n").await;
        drop(stdin);
        // The exit of the program ends the call, not the end of its input.
        std::future::pending().await
    };
    let mut output = Vec::new();
    let talk = async {
        let read = read(&mut stdout, &mut output, limit);
        tokio::pin!(read);
        tokio::select! {
            all = &mut read => {
                all?;
                Ok(child.exit().await)
            }
            exit = child.exit() => {
                // The tree is gone, and all writers with it, unless a descriptor was passed elsewhere.
                if let Ok(all) = timeout(DRAIN_TIMEOUT, read).await {
                    all?;
                }
                Ok(exit)
            }
        }
    };
    let exit = tokio::select! {
        exit = talk => exit,
        () = write => unreachable!("never completes"),
    };
    match exit {
        Ok(exit) => Ok((output, exit)),
        Err(ReadError::TooLarge) => Err(ScriptError::TooLarge { limit }),
        Err(ReadError::Io(error)) => Err(ScriptError::Died(format!("its stdout cannot be read: {error}"))),
    }
}

enum ReadError {
    TooLarge,
    Io(io::Error),
}

async fn read(stdout: &mut ChildStdout, output: &mut Vec<u8>, limit: usize) -> Result<(), ReadError> {
    loop {
        output.reserve(CHUNK_BYTES);
        if stdout.read_buf(output).await.map_err(ReadError::Io)? == 0 {
            return Ok(());
        }
        if output.len() > limit {
            return Err(ReadError::TooLarge);
        }
    }
}
