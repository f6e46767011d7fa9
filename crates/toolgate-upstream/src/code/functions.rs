//! Programs that call functions of the gateway: frames over the standard input and output of the program.
//!
//! The program inherits no other descriptor and holds no credential: a frame names a function and its arguments, and the
//! host decides. Everything that the program writes is input from outside. Invariant: frames, calls and output are bounded; one
//! call runs at a time, and it is dropped when the program ends or exceeds a limit; time in calls does not count
//! against the time limit of the program, because each call has its own.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};

use super::{CodeJob, CodeOutcome, CodeRunner, InputFile, Language, LimitExceeded, ScratchDir, usage};
use crate::builtin::BuiltinError;
use crate::process::ChildExit;

/// The start of every program.
const PRELUDE: &str = include_str!("functions.py");
/// File with the code of the caller.
const PROGRAM: &str = "program.py";
/// Bytes of a frame from the program.
const MAX_FRAME_BYTES: u64 = 1 << 20;
/// Bytes of a reply to the program.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// Time to read the rest of the output after the program has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// A function that a program can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFunction {
    /// A Python identifier.
    pub name: String,
    /// Names of its arguments, in the order of positional ones.
    pub parameters: Vec<String>,
}

/// A failed call, as the program sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionError {
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
}

impl FunctionError {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: None }
    }
}

/// Answers the calls of a program.
pub trait FunctionHost: Send + Sync {
    /// Answers one call. Dropping the future cancels it.
    fn call<'a>(
        &'a self,
        name: &'a str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, FunctionError>>;
}

/// A frame from the program.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ProgramFrame {
    Call { call: String, arguments: Map<String, Value> },
    Print { print: String },
}

impl CodeRunner {
    /// Runs a Python program that can call functions. Dropping the future stops it and everything it started.
    ///
    /// # Errors
    /// If the program cannot be run, or exceeds a limit.
    pub async fn run_program(
        &self,
        code: &str,
        functions: &[ProgramFunction],
        host: &dyn FunctionHost,
    ) -> Result<CodeOutcome, BuiltinError> {
        let files = vec![InputFile { path: PROGRAM.to_owned(), text: code.to_owned() }];
        let job =
            CodeJob { language: Language::Python, code: prelude(functions), stdin: String::new(), files };
        self.run_job(&job, Some(host)).await
    }

    /// Serves the calls of a program until it ends or exceeds a limit.
    pub(super) async fn serve_calls(
        &self,
        scratch: &mut ScratchDir,
        host: &dyn FunctionHost,
    ) -> (Vec<u8>, ChildExit, Option<LimitExceeded>) {
        let mut output = ProgramOutput { text: Vec::new(), limit: self.config.max_output.as_usize() };
        let folder = scratch.path().to_owned();
        let Some(child) = scratch.child() else { return (output.text, ChildExit::Unknown, None) };
        let (Some(mut input), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return (output.text, ChildExit::Unknown, None);
        };
        let exceeded = {
            let mut frames = FrameReader::new(stdout);
            let serve = async {
                let mut left = self.config.timeout.get();
                loop {
                    let began = Instant::now();
                    let Ok(frame) = timeout(left, frames.next()).await else { return LimitExceeded::Time };
                    left = left.saturating_sub(began.elapsed());
                    match frame {
                        // The exit of the program ends the call, not the end of its output.
                        ReadLine::End => {
                            tokio::time::sleep(left).await;
                            return LimitExceeded::Time;
                        }
                        ReadLine::TooLong => return LimitExceeded::Output,
                        ReadLine::Line(line) => match serde_json::from_slice(&line) {
                            Ok(ProgramFrame::Call { call, arguments }) => {
                                let reply = reply_line(host.call(&call, arguments).await);
                                let began = Instant::now();
                                if timeout(left, send(&mut input, &reply)).await.is_err() {
                                    return LimitExceeded::Time;
                                }
                                left = left.saturating_sub(began.elapsed());
                            }
                            Ok(ProgramFrame::Print { print }) if output.add(print.as_bytes()) => {}
                            // Not a frame of ours.
                            Err(_) if output.add(&line) => {}
                            _ => return LimitExceeded::Output,
                        },
                    }
                }
            };
            let watched = usage::until_limit_exceeded(child, &folder, &self.config);
            tokio::select! {
                _ = child.exit() => None,
                exceeded = serve => Some(exceeded),
                exceeded = watched => Some(exceeded),
            }
            .map_or_else(|| Err(frames), Ok)
        };
        match exceeded {
            Ok(exceeded) => (output.text, child.kill().await, Some(exceeded)),
            Err(mut frames) => {
                let rest = async {
                    while let ReadLine::Line(line) = frames.next().await {
                        let more = match serde_json::from_slice(&line) {
                            Ok(ProgramFrame::Print { print }) => output.add(print.as_bytes()),
                            // Calls of a program that has ended are not made.
                            Ok(ProgramFrame::Call { .. }) => true,
                            Err(_) => output.add(&line),
                        };
                        if !more {
                            return Some(LimitExceeded::Output);
                        }
                    }
                    None
                };
                let exceeded = timeout(DRAIN_TIMEOUT, rest).await.ok().flatten();
                (output.text, child.exit().await, exceeded)
            }
        }
    }
}

/// Returns the Python code that defines the functions and runs the program.
fn prelude(functions: &[ProgramFunction]) -> String {
    let all: Map<String, Value> =
        functions.iter().map(|function| (function.name.clone(), json!(function.parameters))).collect();
    // A JSON string without escaped characters beyond ASCII is a Python string of the same value.
    let text = Value::String(Value::Object(all).to_string()).to_string();
    let mut code = PRELUDE.to_owned();
    let _ = writeln!(code, "_main(_json.loads({text}))");
    code
}

fn reply_line(outcome: Result<Value, FunctionError>) -> Vec<u8> {
    let error = |error: FunctionError| {
        let FunctionError { code, message, hint } = error;
        json!({ "error": { "code": code, "message": message, "hint": hint } })
    };
    let reply = outcome.map_or_else(error, |result| json!({ "result": result }));
    let mut line = reply.to_string();
    if line.len() > MAX_REPLY_BYTES {
        let message = format!("the result has more than {MAX_REPLY_BYTES} bytes");
        line = error(FunctionError::new("output_too_large", message)).to_string();
    }
    line.push('\n');
    line.into_bytes()
}

/// Sends a reply. The program may have ended.
async fn send(input: &mut ChildStdin, line: &[u8]) {
    if input.write_all(line).await.is_ok() {
        let _ = input.flush().await;
    }
}

/// Output of the program.
struct ProgramOutput {
    text: Vec<u8>,
    limit: usize,
}

impl ProgramOutput {
    /// Adds output. Returns false if it exceeds the limit.
    fn add(&mut self, bytes: &[u8]) -> bool {
        let room = self.limit - self.text.len();
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        bytes.len() <= room
    }
}

/// Result of reading a line from the program.
enum ReadLine {
    Line(Vec<u8>),
    TooLong,
    End,
}

/// Reads lines. A read that is dropped loses nothing.
struct FrameReader {
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl FrameReader {
    fn new(stdout: ChildStdout) -> Self {
        Self { stdout: BufReader::with_capacity(64 << 10, stdout), line: Vec::new() }
    }

    async fn next(&mut self) -> ReadLine {
        let room = (MAX_FRAME_BYTES + 1).saturating_sub(self.line.len() as u64);
        let read = (&mut self.stdout).take(room).read_until(b'\n', &mut self.line).await;
        match self.line.last() {
            Some(b'\n') => ReadLine::Line(std::mem::take(&mut self.line)),
            _ if self.line.len() as u64 > MAX_FRAME_BYTES => ReadLine::TooLong,
            // The end of the output, perhaps in the middle of a line.
            Some(_) if read.is_ok() => ReadLine::Line(std::mem::take(&mut self.line)),
            _ => ReadLine::End,
        }
    }
}

#[test]
fn function_names_are_data_in_the_prelude() {
    let parameters = vec!["a\"b\\".to_owned(), "\u{e9}\u{1F980}\u{7f}".to_owned()];
    let code = prelude(&[ProgramFunction { name: "get_order".to_owned(), parameters }]);
    let last = code.lines().last().expect("a line");
    assert_eq!(
        last,
        "_main(_json.loads(\"{\\\"get_order\\\":[\\\"a\\\\\\\"b\\\\\\\\\\\",\\\"\u{e9}\u{1F980}\u{7f}\\\"]}\"))"
    );
}
