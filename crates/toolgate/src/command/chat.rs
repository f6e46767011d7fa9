//! `toolgate chat`: an interactive conversation with the agent.
//!
//! Invariant: Ctrl-C stops the current task but not the chat; nothing keeps running after the chat ends.

use toolgate_agent::RunEvent;
use toolgate_agent::model::Part;
use toolgate_agent::run::{Executor, Run};
use toolgate_app::run_until_stopped;
use toolgate_redact::printable;
use toolgate_redact::sanitize::sanitize;
use toolgate_runtime::{Operation, RawJson};
use toolgate_types::Caller;

use crate::DONE;
use crate::cli::{ChatArgs, ProjectArgs};
use crate::command::agent::printer::{Printer, WAIT_STEP, usage_text};
use crate::command::agent::{self, ReadyAgent};
use crate::command::line_editor::{LineEditor, LineInput};
use crate::command::run::ctrl_c;
use crate::command::why;
use crate::output::{BOLD, DIM, Output, display_json};

/// Clears the screen and moves to its start.
const CLEAR_SCREEN: &str = "\u{1b}[2J\u{1b}[H";

pub(crate) const HELP: &str = "\
Examples:
  toolgate chat
  toolgate -C my-project chat --as assistant
  toolgate chat --resume 019a8f0c
  echo 'what time is it?' | toolgate chat

  /tools         tools offered to the model          /why TOOL   explain whether it may be called
  /show N        a call with its whole result        /cost       usage of the chat
  /model         the model and this run              /new        begin a new chat
  /clear         clear the screen                    /quit       leave (also Ctrl-D)
  /help          this list

Up and down browse the history, Ctrl-R searches it, Tab completes commands and tools. A line that ends
with `\\` goes on in the next one; pasted lines are one message. Ctrl-C stops the agent, or clears the
line. If a call needs approval, press y to approve; any other key declines. Every chat is a run:
`toolgate runs` lists them.

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
        if editor.is_terminal() && !output.json {
            let model = printable(agent.model.name());
            output.message(&format!("{DIM}{model} · run {} · /help{DIM:#}\n", run.id()));
        }
        loop {
            editor.complete_tools(run.tools());
            let (back, typed) = tokio::task::spawn_blocking(move || {
                let typed = editor.line("› ");
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
                Some("clear") => output.control(CLEAR_SCREEN),
                Some("new") => {
                    run = agent.begin(caller.clone())?;
                    output.message(&format!("{DIM}run {}{DIM:#}\n", run.id()));
                }
                Some("model") => {
                    let model = printable(agent.model.name());
                    output.message(&format!("{model} · run {}\n", run.id()));
                }
                Some(command) => run_command(command, &run, &agent.executor, &caller, &printer, output),
                None => {
                    let parts = vec![Part::Text { text: text.to_owned() }];
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

/// Executes a command of the chat.
fn run_command(
    command: &str,
    run: &Run<'_>,
    executor: &Executor,
    caller: &Caller,
    printer: &Printer<'_>,
    output: &Output,
) {
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let text = match (word, rest.trim()) {
        ("tools", _) => run.tools().iter().map(|tool| format!("{}\n", printable(tool))).collect(),
        ("cost", _) => format!("{}\n", usage_text(&run.total())),
        ("show", number) => {
            let call = number.parse().ok().and_then(|number| printer.call(number));
            match call {
                None => {
                    format!("there is no call `{}`; the number of a call is in brackets\n", printable(number))
                }
                Some(call) => {
                    let arguments = display_json(&call.arguments).unwrap_or_default();
                    format!("{BOLD}{}{BOLD:#} {arguments}\n{}\n", printable(&call.tool), sanitize(&call.text))
                }
            }
        }
        ("why", tool) => explain_tool(tool, executor, caller),
        ("help", _) => {
            let from = HELP.find("  /tools").unwrap_or(0);
            let to = HELP.find("Exit codes").unwrap_or(HELP.len());
            HELP[from..to].trim_end().to_owned() + "\n"
        }
        _ => format!("unknown command `/{}`; /help lists the commands\n", printable(word)),
    };
    output.message(&text);
}

fn explain_tool(tool: &str, executor: &Executor, caller: &Caller) -> String {
    let Executor::Runtime(runtime) = executor else { return String::new() };
    let request = Operation::tool(tool, RawJson::from_value(&serde_json::json!({})));
    match runtime.explain(caller, &request) {
        Some(explanation) => why::explanation_text(caller.id.as_str(), tool, &explanation),
        None => format!("there is no tool `{}`; /tools lists them\n", printable(tool)),
    }
}
