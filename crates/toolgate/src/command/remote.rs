//! Runs a command in the gateway of the project, if one is running.
//!
//! The client sends its command line over a socket, prints the output, answers questions at its terminal, and ends
//! with the exit code of the command. The gateway parses the command line again and runs the same code with its own app, so
//! that the output is the same and no server is started twice. Frames are JSON, one per line.
//! Invariant: a command that was sent to the gateway is not run in another way as well.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use toolgate_agent::model::Part;
use toolgate_app::socket::connect_command;
use toolgate_app::{App, CommandHandler, StateFolder};
use toolgate_runtime::questions::{
    Answer, AnswerSchema, ApprovalQuestion, ApprovalScope, ElicitationQuestion, InputQuestion, Question,
    QuestionContext, ShownArguments,
};

use crate::FAILED;
use crate::cli::{AnswerMode, Cli, Command, ServersCommand, ToolsCommand};
use crate::command::agent::keys;
use crate::command::app::{self, INTERRUPTED};
use crate::command::terminal_prompts::{self, ApprovalInput, TerminalResponder};
use crate::command::{prompts, resources, run as run_command, servers, tools, why};
use crate::output::{Output, TerminalFacts, error_with_hint};

/// Name of this version. Only the same one understands the command line and prints the same.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time for the gateway to take a command. Covers its start.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the client to send its command.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the gateway to stop an interrupted command.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest frame. A frame may hold a whole result.
const MAX_FRAME_BYTES: u64 = 512 << 20;

/// First frame of the gateway.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyFrame {
    version: String,
    /// Project file, if the gateway was started with one.
    file: Option<PathBuf>,
}

/// First frame of the client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CommandRequest {
    arguments: Vec<String>,
    /// Folder of the client, for relative paths.
    folder: PathBuf,
    terminal: TerminalFacts,
    trace_parent: Option<String>,
    /// Task of the agent, with the content of the attached files.
    task: Vec<Part>,
}

/// Later frames of the gateway.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GatewayFrame {
    Stdout(String),
    Stderr(String),
    /// Control sequence for the terminal at stderr.
    Control(String),
    Ask(RelayedQuestion),
    Exit(u8),
}

/// Later frames of the client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientFrame {
    /// Answer to the question with this number; `None` if stdin is closed.
    Answer(u64, Option<RelayedAnswer>),
    Interrupt,
}

/// A question for the person at the terminal of the client.
#[derive(Debug, Serialize, Deserialize)]
struct RelayedQuestion {
    number: u64,
    approvals: ApprovalInput,
    content: QuestionContent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QuestionContent {
    Approval { text: String, arguments: String, caller: String, tool: String, session: Option<String> },
    Sampling { text: String, arguments: String, caller: String, tool: String },
    Input { text: String, choices: Vec<String>, schema: Option<Json>, caller: String, tool: String },
    Elicitation { server: String, message: String, url: Option<String>, schema: Json },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RelayedAnswer {
    Value(Json),
    Declined(Option<String>),
    ForSession { approve: bool, scope: ApprovalScope },
}

impl From<Answer> for RelayedAnswer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Value(value) => Self::Value(value),
            Answer::Declined(reason) => Self::Declined(reason),
            Answer::ForSession { approve, scope } => Self::ForSession { approve, scope },
        }
    }
}

impl From<RelayedAnswer> for Answer {
    fn from(answer: RelayedAnswer) -> Self {
        match answer {
            RelayedAnswer::Value(value) => Self::Value(value),
            RelayedAnswer::Declined(reason) => Self::Declined(reason),
            RelayedAnswer::ForSession { approve, scope } => Self::ForSession { approve, scope },
        }
    }
}

/// Returns true for commands that a gateway can run.
fn is_hosted(command: &Command) -> bool {
    match command {
        Command::Tools(command) => matches!(
            command,
            ToolsCommand::List(_) | ToolsCommand::Search(_) | ToolsCommand::Show(_) | ToolsCommand::Call(_)
        ),
        Command::Servers(args) => match &args.command {
            None => !args.watch,
            Some(command) => matches!(command, ServersCommand::List | ServersCommand::Show(_)),
        },
        Command::Run(args) => args.replay.is_none(),
        Command::Why(_) | Command::Prompts(_) | Command::Resources(_) => true,
        _ => false,
    }
}

/// Runs the command in the gateway of the project. Returns its exit code, or `None` if the command has to run here: it is
/// another command, no gateway is running, or the gateway cannot take it.
pub(crate) fn run(cli: &Cli, output: &Output) -> anyhow::Result<Option<u8>> {
    if cli.project.standalone || !is_hosted(&cli.command) {
        return Ok(None);
    }
    let arguments: Option<Vec<String>> = std::env::args_os().map(|word| word.into_string().ok()).collect();
    let Some(arguments) = arguments else { return Ok(None) };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = tokio.block_on(async {
        let stream = match connect_command(&cli.project.state_folder()).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(None),
            Err(error) => {
                output.message(&format!("note: the running gateway is not used: {error}\n"));
                return Ok(None);
            }
        };
        let (reader, writer) = stream.into_split();
        let mut frames = FrameReader::new(reader);
        let Ok(Some(ready)) = timeout(READY_TIMEOUT, frames.next::<ReadyFrame>()).await else {
            output.message("note: the running gateway does not respond; starting the servers here\n");
            return Ok(None);
        };
        let named = cli.project.file.as_ref().map(|file| fs_err::canonicalize(file).unwrap_or(file.clone()));
        if ready.version != VERSION || ready.file != named {
            let reason = if ready.version == VERSION {
                "it uses another project file".to_owned()
            } else {
                format!("it is version {}, this is {VERSION}; restart it", ready.version)
            };
            output.message(&format!("note: the running gateway is not used: {reason}\n"));
            return Ok(None);
        }
        let task = match &cli.command {
            Command::Run(args) => run_command::task_parts(args)?,
            _ => Vec::new(),
        };
        let request = CommandRequest {
            arguments,
            folder: std::env::current_dir()?,
            terminal: output.terminal(),
            trace_parent: std::env::var("TRACEPARENT").ok(),
            task,
        };
        follow(&request, frames, writer, output).await.map(Some)
    });
    // A question at the terminal may never be answered, so its thread is not awaited.
    tokio.shutdown_background();
    outcome
}

/// Returns the version of the running gateway of a project; `None` if none is running or responds.
pub(crate) async fn gateway_version(state: &StateFolder) -> Option<String> {
    let stream = connect_command(state).await.ok().flatten()?;
    let (reader, _writer) = stream.into_split();
    let mut frames = FrameReader::new(reader);
    let ready = timeout(READY_TIMEOUT, frames.next::<ReadyFrame>()).await.ok().flatten()?;
    Some(ready.version)
}

/// Sends a command, and prints its output until it ends.
async fn follow(
    request: &CommandRequest,
    mut frames: FrameReader,
    mut writer: OwnedWriteHalf,
    output: &Output,
) -> anyhow::Result<u8> {
    let lost = || {
        error_with_hint(
            "the running gateway stopped before the command ended",
            "the call may have been made: see `toolgate log`",
        )
    };
    write_frame(&mut writer, request).await.map_err(|_| lost())?;
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut is_interrupted = false;
    loop {
        let frame = tokio::select! {
            frame = frames.next::<GatewayFrame>() => frame.ok_or_else(lost)?,
            Some(answer) = answered.recv() => {
                write_frame(&mut writer, &answer).await.map_err(|_| lost())?;
                continue;
            }
            _ = tokio::signal::ctrl_c() => {
                if is_interrupted {
                    return Ok(INTERRUPTED);
                }
                is_interrupted = true;
                write_frame(&mut writer, &ClientFrame::Interrupt).await.map_err(|_| lost())?;
                continue;
            }
            () = tokio::time::sleep(STOP_TIMEOUT), if is_interrupted => return Ok(INTERRUPTED),
        };
        match frame {
            GatewayFrame::Stdout(text) => output.result(&text),
            GatewayFrame::Stderr(text) => output.message(&text),
            GatewayFrame::Control(sequence) => output.relay_control(&sequence),
            GatewayFrame::Ask(RelayedQuestion { number, approvals, content }) => {
                let answers = answers.clone();
                // Reading from a terminal blocks the thread. The answer is not awaited: the question may be withdrawn.
                drop(tokio::task::spawn_blocking(move || {
                    let answer = content.into_question().and_then(|asked| {
                        keys::ask_alone(&Arc::default(), || terminal_prompts::prompt(&asked, approvals))
                    });
                    let _ = answers.send(ClientFrame::Answer(number, answer.map(RelayedAnswer::from)));
                }));
            }
            GatewayFrame::Exit(code) => return Ok(code),
        }
    }
}

/// Returns the handler of a gateway for the commands of its project.
pub(crate) fn handler(output: &Output) -> CommandHandler {
    let output = output.clone();
    Arc::new(move |app, stream| -> BoxFuture<'static, ()> {
        let output = output.clone();
        Box::pin(async move {
            // Fails only if the client is gone.
            let _ = serve_command(app, stream, &output).await;
        })
    })
}

/// Runs one command for a client. Dropping the future interrupts the command.
async fn serve_command(app: Arc<App>, stream: UnixStream, output: &Output) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut frames = FrameReader::new(reader);
    let file = app.files().named_file();
    let file = file.map(|file| fs_err::canonicalize(file).unwrap_or_else(|_| file.to_owned()));
    write_frame(&mut writer, &ReadyFrame { version: VERSION.to_owned(), file }).await?;
    let request = timeout(REQUEST_TIMEOUT, frames.next::<CommandRequest>()).await;
    // A client that decided otherwise closes the connection.
    let Ok(Some(request)) = request else { return Ok(()) };
    let (sender, mut outgoing) = mpsc::unbounded_channel();
    let (interrupt, interrupted) = watch::channel(false);
    let link = CommandLink(Arc::new(LinkState {
        frames: sender,
        next_question: AtomicU64::new(1),
        open_questions: Mutex::default(),
        interrupted,
    }));
    let command = {
        let (link, output) = (link.clone(), output.clone());
        tokio::task::spawn_blocking(move || host_command(app, request, link, &output))
    };
    let write = async {
        while let Some(frame) = outgoing.recv().await {
            let is_last = matches!(frame, GatewayFrame::Exit(_));
            write_frame(&mut writer, &frame).await?;
            if is_last {
                break;
            }
        }
        Ok(())
    };
    let read = async {
        loop {
            match frames.next::<ClientFrame>().await {
                Some(ClientFrame::Answer(number, answer)) => link.answer(number, answer),
                // The client is gone, or sent something else.
                Some(ClientFrame::Interrupt) | None => {
                    interrupt.send_replace(true);
                    return std::future::pending().await;
                }
            }
        }
    };
    let finish = async {
        let code = command.await.unwrap_or(FAILED);
        let _ = link.0.frames.send(GatewayFrame::Exit(code));
        std::future::pending().await
    };
    tokio::select! {
        ended = write => ended,
        never = read => never,
        never = finish => never,
    }
}

/// Runs a command with the app of the gateway. Returns its exit code.
fn host_command(app: Arc<App>, request: CommandRequest, link: CommandLink, output: &Output) -> u8 {
    let mut cli = match Cli::try_parse_from(&request.arguments) {
        Ok(cli) => cli,
        Err(error) => {
            link.print_message(error.to_string());
            return u8::try_from(error.exit_code()).unwrap_or(FAILED);
        }
    };
    let output = output.for_client(cli.json, request.terminal, link.clone());
    cli.project.folder = app.files().folder().to_owned();
    cli.project.host =
        Some(GatewayHost(Arc::new(HostState { app, request, link, tokio: Handle::current() })));
    let project = &cli.project;
    let result = match &cli.command {
        Command::Tools(command) => tools::run(command, project, &output),
        Command::Servers(args) => servers::run(args, project, &output),
        Command::Why(args) => why::run(args, project, &output),
        Command::Prompts(command) => prompts::run(command, project, &output),
        Command::Resources(command) => resources::run(command, project, &output),
        Command::Run(args) => run_command::run(args, project, &output),
        _ => Err(anyhow::anyhow!("the gateway does not run this command")),
    };
    result.unwrap_or_else(|error| {
        output.error(&error);
        FAILED
    })
}

/// The gateway that runs a command, and the client of the command.
#[derive(Clone)]
pub(crate) struct GatewayHost(Arc<HostState>);

struct HostState {
    app: Arc<App>,
    request: CommandRequest,
    link: CommandLink,
    tokio: Handle,
}

impl fmt::Debug for GatewayHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatewayHost")
    }
}

impl GatewayHost {
    /// Runs `work` with the app of the gateway, until the client interrupts it. The caller is on a thread that may block.
    pub(crate) fn run(
        &self,
        output: &Output,
        work: impl AsyncFnOnce(&App) -> anyhow::Result<u8>,
    ) -> anyhow::Result<u8> {
        self.0.tokio.block_on(async {
            tokio::select! {
                outcome = work(&self.0.app) => outcome,
                () = self.interrupted() => Ok(app::report_interrupt(output)),
            }
        })
    }

    /// Runs `work`. It has to end when [`Self::interrupted`] resolves.
    pub(crate) fn run_to_end(
        &self,
        work: impl AsyncFnOnce(&App) -> anyhow::Result<u8>,
    ) -> anyhow::Result<u8> {
        self.0.tokio.block_on(work(&self.0.app))
    }

    /// Resolves when the person presses Ctrl-C, the client is gone, or the gateway stops.
    pub(crate) async fn interrupted(&self) {
        let _ = self.0.link.0.interrupted.clone().wait_for(|interrupted| *interrupted).await;
    }

    /// Returns the responder at the terminal of the client.
    pub(crate) fn responder(&self, answers: AnswerMode, approvals: ApprovalInput) -> TerminalResponder {
        let is_interactive = self.0.request.terminal.is_interactive;
        TerminalResponder::of_client(answers, approvals, self.0.link.clone(), is_interactive)
    }

    pub(crate) fn trace_parent(&self) -> Option<String> {
        self.0.request.trace_parent.clone()
    }

    /// Returns the task of the agent.
    pub(crate) fn task(&self) -> Vec<Part> {
        self.0.request.task.clone()
    }

    /// Resolves a path that the client named.
    pub(crate) fn client_path(&self, path: &std::path::Path) -> PathBuf {
        self.0.request.folder.join(path)
    }
}

/// Connection to the client of a command.
#[derive(Clone)]
pub(crate) struct CommandLink(Arc<LinkState>);

struct LinkState {
    frames: mpsc::UnboundedSender<GatewayFrame>,
    next_question: AtomicU64,
    open_questions: Mutex<HashMap<u64, oneshot::Sender<Option<RelayedAnswer>>>>,
    interrupted: watch::Receiver<bool>,
}

impl CommandLink {
    pub(crate) fn print(&self, text: String) {
        self.send(GatewayFrame::Stdout(text));
    }

    pub(crate) fn print_message(&self, text: String) {
        self.send(GatewayFrame::Stderr(text));
    }

    pub(crate) fn control(&self, sequence: &'static str) {
        self.send(GatewayFrame::Control(sequence.to_owned()));
    }

    fn send(&self, frame: GatewayFrame) {
        // The client is gone.
        let _ = self.0.frames.send(frame);
    }

    /// Asks the person at the terminal of the client. `None` if the person cannot answer.
    pub(crate) async fn ask(&self, question: &Question, approvals: ApprovalInput) -> Option<Answer> {
        let content = QuestionContent::new(question)?;
        let number = self.0.next_question.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.0.open_questions.lock().insert(number, sender);
        let _withdrawn = WithdrawOnDrop { link: self, number };
        self.send(GatewayFrame::Ask(RelayedQuestion { number, approvals, content }));
        answer.await.ok()?.map(Answer::from)
    }

    fn answer(&self, number: u64, answer: Option<RelayedAnswer>) {
        if let Some(sender) = self.0.open_questions.lock().remove(&number) {
            let _ = sender.send(answer);
        }
    }
}

/// Forgets a question on drop, so that a late answer has no effect.
struct WithdrawOnDrop<'a> {
    link: &'a CommandLink,
    number: u64,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        self.link.0.open_questions.lock().remove(&self.number);
    }
}

impl QuestionContent {
    /// `None` for a login: it belongs to the gateway.
    fn new(question: &Question) -> Option<Self> {
        Some(match question {
            Question::Approval(ApprovalQuestion { text, arguments, caller, tool, session, .. }) => {
                Self::Approval {
                    text: text.clone(),
                    arguments: arguments.text.clone(),
                    caller: caller.to_string(),
                    tool: tool.clone(),
                    session: session.clone(),
                }
            }
            Question::Sampling(ApprovalQuestion { text, arguments, caller, tool, .. }) => Self::Sampling {
                text: text.clone(),
                arguments: arguments.text.clone(),
                caller: caller.to_string(),
                tool: tool.clone(),
            },
            Question::Input(InputQuestion { text, choices, schema, caller, tool, .. }) => Self::Input {
                text: text.clone(),
                choices: choices.clone(),
                schema: schema.as_ref().map(|schema| schema.json.clone()),
                caller: caller.to_string(),
                tool: tool.clone(),
            },
            Question::Elicitation(ElicitationQuestion { server, message, url, schema }) => {
                Self::Elicitation {
                    server: server.clone(),
                    message: message.clone(),
                    url: url.as_ref().map(|url| url.as_str().to_owned()),
                    schema: schema.clone(),
                }
            }
            Question::Login(_) => return None,
        })
    }

    /// Returns the question as the terminal shows it. `None` if it cannot be shown.
    fn into_question(self) -> Option<Question> {
        let approval = |text: String, arguments: String, caller: String, tool: String| {
            let bytes = arguments.len();
            let arguments = ShownArguments { text: arguments, full: None, bytes, sha256: String::new() };
            let (caller, context) = (caller.parse().ok()?, QuestionContext::default());
            Some(ApprovalQuestion { text, arguments, caller, tool, session: None, context })
        };
        Some(match self {
            Self::Approval { text, arguments, caller, tool, session } => {
                Question::Approval(ApprovalQuestion { session, ..approval(text, arguments, caller, tool)? })
            }
            Self::Sampling { text, arguments, caller, tool } => {
                Question::Sampling(approval(text, arguments, caller, tool)?)
            }
            Self::Input { text, choices, schema, caller, tool } => Question::Input(InputQuestion {
                text,
                choices,
                schema: schema.map(AnswerSchema::new).transpose().ok()?,
                caller: caller.parse().ok()?,
                tool,
                session: None,
                context: QuestionContext::default(),
            }),
            Self::Elicitation { server, message, url, schema } => {
                Question::Elicitation(ElicitationQuestion {
                    server,
                    message,
                    url: url.map(|url| url.parse()).transpose().ok()?,
                    schema,
                })
            }
        })
    }
}

/// Reads frames, one per line.
struct FrameReader(BufReader<OwnedReadHalf>, Vec<u8>);

impl FrameReader {
    fn new(reader: OwnedReadHalf) -> Self {
        Self(BufReader::new(reader), Vec::new())
    }

    /// Reads the next frame; `None` at the end, or if it is not a frame. May be dropped and called again.
    async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let Self(reader, line) = self;
        loop {
            let left = MAX_FRAME_BYTES.checked_sub(u64::try_from(line.len()).ok()?)?;
            let read = (&mut *reader).take(left).read_until(b'\n', line).await.ok()?;
            if line.last() == Some(&b'\n') {
                let frame = serde_json::from_slice(line).ok();
                line.clear();
                return frame;
            }
            if read == 0 {
                return None;
            }
        }
    }
}

async fn write_frame(writer: &mut OwnedWriteHalf, frame: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    writer.write_all(&line).await
}
