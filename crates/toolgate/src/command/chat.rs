//! `toolgate chat`: an interactive conversation with the agent.
//!
//! Invariant: Ctrl-C stops the current task but not the chat; nothing keeps running after the chat ends.

use std::sync::Arc;

use toolgate_agent::journal::{RunSummary, parts_text};
use toolgate_agent::model::{Message, Part, RemoteModel};
use toolgate_agent::run::{Executor, Run, UndoneTurn};
use toolgate_agent::{Agent, RunEvent};
use toolgate_app::run_until_stopped;
use toolgate_redact::printable;
use toolgate_redact::sanitize::sanitize;
use toolgate_runtime::{Operation, RawJson};
use toolgate_types::Caller;
use toolgate_types::agent::ModelSpec;

use crate::DONE;
use crate::cli::{ChatArgs, ProjectArgs};
use crate::command::agent::keys::QuietMode;
use crate::command::agent::markdown::Markdown;
use crate::command::agent::printer::{Printer, WAIT_STEP, one_line, usage_text};
use crate::command::agent::{self, ReadyAgent};
use crate::command::line_editor::{LineEditor, LineInput};
use crate::command::run::ctrl_c;
use crate::command::why;
use crate::output::{BOLD, DIM, Output, display_json, quoted_lines};

/// Clears the screen and moves to its start.
const CLEAR_SCREEN: &str = "\u{1b}[2J\u{1b}[H";

/// Chats that `/resume` lists.
const MAX_LISTED: usize = 10;

pub(crate) const HELP: &str = "\
Examples:
  toolgate chat
  toolgate -C my-project chat --as assistant
  toolgate chat --resume 019a8f0c
  echo 'what time is it?' | toolgate chat

  /tools [WORD]  tools offered to the model          /why TOOL   explain whether it may be called
  /show N        a call with its whole result        /cost       usage of the chat
  /model [NAME]  show or change the model            /undo       take the last message back
  /new           begin a new chat                    /resume     pick an earlier chat
  /clear         clear the screen                    /quit       leave (also Ctrl-D)
  /help          this list

Up and down browse the history, Ctrl-R searches it, Tab completes commands and tools. A line that ends
with `\\` goes on in the next one; pasted lines are one message. Ctrl-C stops the agent, or clears the
line. If a call needs approval, y approves it once, c this call and t this tool for the session, x
refuses the tool for the session, and any other key declines. Every chat is a run: `toolgate runs`
lists them.

Exit codes: 0 ended, 1 failed, 78 invalid configuration.";

pub(crate) fn run(args: &ChatArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let history = project.state_folder().chat_history();
    agent::with_agent(&args.agent, project, output, async |ReadyAgent { agent, caller }| {
        let printer = Printer::new(output);
        let on_event = |event: RunEvent| printer.print_event(event);
        let mut run = match &args.resume {
            Some(id) => {
                let id = agent.runs.resolve(id).map_err(agent::run_error)?;
                agent.resume_chat(&id, caller.clone()).map_err(agent::run_error)?
            }
            None => agent.begin(caller.clone())?,
        };
        let mut editor = LineEditor::new(history);
        let is_terminal = editor.is_terminal() && !output.json;
        if is_terminal {
            let model = printable(agent.model.name());
            output.message(&format!("{DIM}{model} · run {} · /help{DIM:#}\n", run.id()));
            if args.resume.is_some() {
                print_last_turn(&run, output);
            }
        }
        let mut chat =
            Chat { agent: &agent, caller: &caller, printer: &printer, output, draft: String::new() };
        loop {
            editor.complete_tools(run.tools());
            let draft = std::mem::take(&mut chat.draft);
            let (back, typed) = tokio::task::spawn_blocking(move || {
                let typed = editor.line("› ", &draft);
                (editor, typed)
            })
            .await?;
            editor = back;
            let text = match typed {
                LineInput::Line(text) => text,
                LineInput::Nothing => continue,
                LineInput::End => return Ok(DONE),
            };
            let text = text.trim();
            match text.strip_prefix('/') {
                None if text.is_empty() => {}
                Some("quit" | "exit") => return Ok(DONE),
                Some(command) => {
                    if let Some(next) = chat.run_command(command, &mut run)? {
                        run = next;
                    }
                }
                None => {
                    let parts = vec![Part::Text { text: text.to_owned() }];
                    let _quiet = if is_terminal { QuietMode::new() } else { None };
                    printer.begin_wait();
                    let work = run_until_stopped(&mut run, Some(parts), &on_event, ctrl_c());
                    drawing_wait(&printer, work).await;
                }
            }
        }
    })
}

/// Awaits a run, and draws the wait for the model meanwhile.
async fn drawing_wait<T>(printer: &Printer<'_>, work: impl Future<Output = T>) -> T {
    let mut steps = tokio::time::interval(WAIT_STEP);
    tokio::pin!(work);
    loop {
        tokio::select! {
            ended = &mut work => return ended,
            _ = steps.tick() => printer.draw_wait(),
        }
    }
}

/// Everything that the commands of a chat work with.
struct Chat<'a> {
    agent: &'a Agent,
    caller: &'a Caller,
    printer: &'a Printer<'a>,
    output: &'a Output,
    /// Text that the next line begins with.
    draft: String,
}

impl<'a> Chat<'a> {
    /// Executes a command. Returns the run to go on with, if it is another one.
    fn run_command(&mut self, command: &str, run: &mut Run<'a>) -> anyhow::Result<Option<Run<'a>>> {
        let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let text = match word {
            "clear" => {
                self.output.control(CLEAR_SCREEN);
                return Ok(None);
            }
            "new" => {
                let next = self.agent.begin(self.caller.clone())?;
                self.output.message(&format!("{DIM}run {}{DIM:#}\n", next.id()));
                return Ok(Some(next));
            }
            "resume" => return self.resume(rest, run),
            "model" => self.change_model(rest, run)?,
            "undo" => self.undo(run)?,
            "tools" => tools_text(run, rest),
            "cost" => format!("{}\n", usage_text(&run.total())),
            "show" => self.call_text(rest),
            "why" => self.explanation(rest),
            "help" => {
                let from = HELP.find("  /tools").unwrap_or(0);
                let to = HELP.find("Exit codes").unwrap_or(HELP.len());
                HELP[from..to].trim_end().to_owned() + "\n"
            }
            _ => format!("unknown command `/{}`; /help lists the commands\n", printable(word)),
        };
        self.output.message(&text);
        Ok(None)
    }

    /// Shows the model, or changes that of the next turns to another one of the same provider.
    fn change_model(&self, name: &str, run: &mut Run<'a>) -> anyhow::Result<String> {
        if name.is_empty() {
            return Ok(format!("{} · run {}\n", printable(run.model().name()), run.id()));
        }
        let Some(spec) = &self.agent.config.model else {
            return Ok("no model is configured: set `agent.model` in toolgate.yaml\n".to_owned());
        };
        // The configured prices are those of the configured model.
        let prices = spec.prices.filter(|_| spec.name == name);
        let spec = ModelSpec { name: name.to_owned(), prices, ..spec.clone() };
        match RemoteModel::new(spec) {
            Ok(model) => {
                run.set_model(Arc::new(model))?;
                Ok(format!("{DIM}the next turns go to {}{DIM:#}\n", printable(name)))
            }
            Err(error) => Ok(format!("{}\n", printable(&error.to_string()))),
        }
    }

    /// Takes the last message back and offers it for editing.
    fn undo(&mut self, run: &mut Run<'a>) -> anyhow::Result<String> {
        let Some(UndoneTurn { text, calls }) = run.undo()? else {
            return Ok("there is no message to take back\n".to_owned());
        };
        self.draft = sanitize(&text).into_owned();
        let effects = match calls {
            0 => String::new(),
            1 => "; its call is not undone".to_owned(),
            calls => format!("; its {calls} calls are not undone"),
        };
        Ok(format!("{DIM}took the last message back{effects}{DIM:#}\n"))
    }

    /// Lists earlier chats of the caller, or resumes the one with this number or id.
    fn resume(&self, wanted: &str, run: &Run<'a>) -> anyhow::Result<Option<Run<'a>>> {
        let mut all = self.agent.runs.list()?;
        all.retain(|one| {
            one.caller == self.caller.id.as_str() && one.run != run.id() && !one.task.is_empty()
        });
        all.truncate(MAX_LISTED);
        if wanted.is_empty() {
            let columns = self.output.columns();
            let line = |(at, one): (usize, &RunSummary)| {
                let began = one.began.get(..16).unwrap_or(&one.began).replace('T', " ");
                let head = format!("{:>3}  {began}  {:12} ", at + 1, one.state);
                let room = columns.saturating_sub(head.len()).max(20);
                format!("{head}{}\n", one_line(&one.task, room - 1))
            };
            let lines: String = all.iter().enumerate().map(line).collect();
            let text = if lines.is_empty() {
                "no earlier chats\n".to_owned()
            } else {
                format!("{lines}{DIM}/resume N goes on with one of them{DIM:#}\n")
            };
            self.output.message(&text);
            return Ok(None);
        }
        let numbered = wanted.parse::<usize>().ok().and_then(|number| all.get(number.checked_sub(1)?));
        let id = match numbered {
            Some(one) => Ok(one.run.clone()),
            None => self.agent.runs.resolve(wanted),
        };
        match id.and_then(|id| self.agent.resume_chat(&id, self.caller.clone())) {
            Ok(next) => {
                self.output.message(&format!("{DIM}run {}{DIM:#}\n", next.id()));
                print_last_turn(&next, self.output);
                Ok(Some(next))
            }
            Err(error) => {
                self.output.message(&format!("{}\n", printable(&error.to_string())));
                Ok(None)
            }
        }
    }

    fn call_text(&self, number: &str) -> String {
        match number.parse().ok().and_then(|number| self.printer.call(number)) {
            None => {
                format!("there is no call `{}`; the number of a call is in brackets\n", printable(number))
            }
            Some(call) => {
                let arguments = display_json(&call.arguments).unwrap_or_default();
                format!("{BOLD}{}{BOLD:#} {arguments}\n{}\n", printable(&call.tool), sanitize(&call.text))
            }
        }
    }

    fn explanation(&self, tool: &str) -> String {
        let Executor::Runtime(runtime) = &self.agent.executor else { return String::new() };
        let request = Operation::tool(tool, RawJson::from_value(&serde_json::json!({})));
        match runtime.explain(self.caller, &request) {
            Some(explanation) => why::explanation_text(self.caller.id.as_str(), tool, &explanation),
            None => format!("there is no tool `{}`; /tools lists them\n", printable(tool)),
        }
    }
}

/// Lists the tools offered to the model that have a word in their name.
fn tools_text(run: &Run<'_>, word: &str) -> String {
    let tools = run.tools();
    let text: String = tools
        .iter()
        .filter(|tool| tool.contains(word))
        .map(|tool| format!("{}\n", printable(tool)))
        .collect();
    if text.is_empty() { format!("no tool contains `{}`\n", printable(word)) } else { text }
}

/// Prints the last message of the user and the answer to it.
fn print_last_turn(run: &Run<'_>, output: &Output) {
    let messages = run.messages();
    let is_user = |message: &Message| matches!(message, Message::User { .. });
    let Some(at) = messages.iter().rposition(is_user) else { return };
    for message in &messages[at..] {
        match message {
            Message::User { parts } => output.message(&format!("› {}\n", quoted_lines(&parts_text(parts)))),
            Message::Assistant { text, .. } if !text.trim().is_empty() => {
                let columns = output.columns();
                let mut markdown = Markdown::new(columns);
                let shown = markdown.push(&sanitize(text), columns);
                output.message(&(shown + &markdown.end()));
            }
            Message::Assistant { .. } | Message::Tools { .. } => {}
        }
    }
}
