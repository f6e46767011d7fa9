//! An executable: started for a call, with the arguments on its stdin, and gone with it.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;
use toolgate_mcp::Raw;
use toolgate_types::{Text, ToolContext};

use super::file::Opened;
use super::leaving::Held;
use super::{Job, LAST_WORDS, ScriptError, reply};
use crate::process::{Child, Exit};

/// A call ends when its time is up, which is long before this.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(24 * 60 * 60);
/// For the rest of stdout to be read when the program and all it started are gone.
const DRAIN: Duration = Duration::from_millis(200);
/// Read at once.
const CHUNK: usize = 64 * 1024;

pub(super) async fn run(job: &Job<'_>, arguments: &Raw, context: &ToolContext) -> Result<Raw, ScriptError> {
    let opened = Opened::new(job, false)?;
    let path = job.script.script_path.to_string_lossy();
    let mut spec = job.child(Text::plain(path), &opened.folder);
    // Its stdin is closed as soon as it has the arguments.
    spec.grace = AS_LONG_AS_IT_TAKES;
    for (name, value) in variables(job, context) {
        spec.env.entry(name.to_owned()).or_insert_with(|| Some(Text::plain(value)));
    }
    let child = Child::spawn(&spec).map_err(|error| job.cannot_start(&error))?;
    let mut held = Held::new(child, job.leaving);
    let child = held.child();
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(ScriptError::unusable("the program has no stdin or stdout".to_owned(), None));
    };
    let (output, exit) = converse(child, stdin, stdout, arguments, job.limits.size).await?;
    let last_words = job.quoted(&held.child().stderr_tail(LAST_WORDS).join("\n"));
    match exit {
        Exit::Code(0) => {}
        Exit::Code(_) => {
            let said = if last_words.is_empty() { last_line(job, &output) } else { last_words };
            let said = if said.is_empty() { ", and did not say why".to_owned() } else { format!(": {said}") };
            return Err(ScriptError::failed(format!("`{}` {exit}{said}", job.file())));
        }
        Exit::Signal(_) | Exit::Unknown => {
            let said = if last_words.is_empty() { String::new() } else { format!(": {last_words}") };
            return Err(ScriptError::Died(format!("`{}` {exit}{said}", job.file())));
        }
    }
    if !last_words.is_empty() {
        tracing::debug!(tool = %job.tool.name, "stderr: {last_words}");
    }
    reply::of_output(output, job.limits, job.tool.output_schema.is_some())
        .map_err(|why| ScriptError::failed(format!("`{}`: {}", job.file(), job.quoted(&why))))
}

/// What the call belongs to. A program has no other way to know.
fn variables(job: &Job<'_>, context: &ToolContext) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("TOOLGATE_TOOL", job.tool.name.to_string()),
        ("TOOLGATE_CALLER", context.agent_id.clone()),
        ("TOOLGATE_CORRELATION_ID", context.correlation_id.clone()),
        ("TOOLGATE_TRACE_ID", context.trace_id.clone()),
    ];
    all.extend(context.session_id.clone().map(|id| ("TOOLGATE_SESSION_ID", id)));
    all.extend(context.user_id.clone().map(|id| ("TOOLGATE_USER_ID", id)));
    // What comes from a caller may hold what no variable can.
    all.retain(|(_, value)| !value.contains('\0'));
    all
}

/// A program that says nothing on stderr may have said it on stdout.
fn last_line(job: &Job<'_>, output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    job.quoted(text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default())
}

/// Gives it the arguments and reads what it says, both at once, until it has ended.
async fn converse(
    child: &Child,
    mut stdin: ChildStdin,
    mut stdout: ChildStdout,
    arguments: &Raw,
    limit: usize,
) -> Result<(Vec<u8>, Exit), ScriptError> {
    let write = async move {
        // One that does not want its arguments is free not to read them.
        let _ = stdin.write_all(arguments.bytes()).await;
        let _ = stdin.write_all(b"\n").await;
        drop(stdin);
        // A program ends when it has ended, not when it has its arguments.
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
                // Its tree is gone, and with it whoever could write; unless one of it was handed elsewhere.
                if let Ok(all) = timeout(DRAIN, read).await {
                    all?;
                }
                Ok(exit)
            }
        }
    };
    let exit = tokio::select! {
        exit = talk => exit,
        () = write => unreachable!("it waits for ever"),
    };
    match exit {
        Ok(exit) => Ok((output, exit)),
        Err(Unread::TooLarge) => Err(ScriptError::TooLarge { limit }),
        Err(Unread::Io(error)) => Err(ScriptError::Died(format!("its stdout cannot be read: {error}"))),
    }
}

enum Unread {
    TooLarge,
    Io(io::Error),
}

async fn read(stdout: &mut ChildStdout, output: &mut Vec<u8>, limit: usize) -> Result<(), Unread> {
    loop {
        output.reserve(CHUNK);
        if stdout.read_buf(output).await.map_err(Unread::Io)? == 0 {
            return Ok(());
        }
        if output.len() > limit {
            return Err(Unread::TooLarge);
        }
    }
}
