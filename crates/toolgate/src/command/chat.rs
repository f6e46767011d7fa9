//! `toolgate chat`: a conversation with the agent at a terminal.
//!
//! Invariant: Ctrl-C stops what the agent is doing and not the chat; whoever leaves leaves nothing running.

use toolgate_agent::Event;
use toolgate_agent::model::Part;
use toolgate_agent::run::{Hands, Run};
use toolgate_mcp::{Raw, Trace};
use toolgate_runtime::{CallRequest, Origin};
use toolgate_types::Caller;
use toolgate_types::clean::clean;

use crate::DONE;
use crate::cli::{ChatArgs, Project};
use crate::command::agent::printer::{Printer, spent};
use crate::command::agent::{self, Ready};
use crate::command::edit::{Editor, Typed};
use crate::command::run::{ctrl_c, until_stopped};
use crate::command::why;
use crate::output::{BOLD, DIM, Output, shown_json};

pub(crate) const HELP: &str = "\
Examples:
  toolgate chat
  toolgate -C my-project chat --as assistant
  toolgate chat --resume 019a8f0c
  echo 'what time is it?' | toolgate chat

  /tools         the tools that the model sees       /why TOOL   whether it may be called, and why
  /show N        a call with its whole result        /cost       what the chat has used
  /help          this list                           /quit       leave, as Ctrl-D does

Up and down bring back what was typed before. Ctrl-C stops the agent, or clears the line. Where a rule asks,
one key answers: y is yes, everything else is no. Every chat is a run: `toolgate runs` lists them.

Exit codes: 0 left, 1 failed, 78 configuration refused.";

pub(crate) fn run(args: &ChatArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let history = project.folder.join(".toolgate").join("chat_history");
    agent::with(&args.agent, project, output, async |Ready { agent, caller }| {
        let printer = Printer::new(output);
        let tell = |event: Event| printer.tell(event);
        let mut run = match &args.resume {
            Some(id) => {
                let id = agent.runs.resolve(id).map_err(agent::untaken)?;
                agent.resume_chat(&id, caller.clone()).map_err(agent::untaken)?
            }
            None => agent.begin(caller.clone())?,
        };
        let mut editor = Editor::new(history);
        if editor.is_lively() && !output.json {
            let model = clean(agent.model.name()).into_owned();
            output.message(&format!("{DIM}{model} · run {} · /help{DIM:#}\n", run.id()));
        }
        loop {
            let (back, typed) = tokio::task::spawn_blocking(move || {
                let typed = editor.line("› ");
                (editor, typed)
            })
            .await?;
            editor = back;
            let text = match typed {
                Typed::Line(text) => text,
                Typed::Nothing => continue,
                Typed::End => return Ok(DONE),
            };
            let text = text.trim();
            match text.strip_prefix('/') {
                None if text.is_empty() => {}
                Some("quit" | "exit") => return Ok(DONE),
                Some(command) => said(command, &run, &agent.hands, &caller, &printer, output),
                None => {
                    let parts = vec![Part::Text { text: text.to_owned() }];
                    until_stopped(&mut run, Some(parts), &tell, ctrl_c()).await;
                }
            }
        }
    })
}

/// A command of the chat.
fn said(
    command: &str,
    run: &Run<'_>,
    hands: &Hands,
    caller: &Caller,
    printer: &Printer<'_>,
    output: &Output,
) {
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let text = match (word, rest.trim()) {
        ("tools", _) => format!("{}\n", run.tools().join("\n")),
        ("cost", _) => format!("{}\n", spent(&run.total())),
        ("show", number) => {
            let call = number.parse().ok().and_then(|number| printer.call(number));
            match call {
                None => format!("there is no call `{}`; each has its number in brackets\n", clean(number)),
                Some(call) => {
                    let arguments = shown_json(&call.arguments).unwrap_or_default();
                    format!("{BOLD}{}{BOLD:#} {arguments}\n{}\n", clean(&call.tool), clean(&call.text))
                }
            }
        }
        ("why", tool) => explained(tool, hands, caller),
        ("help", _) => {
            let from = HELP.find("  /tools").unwrap_or(0);
            let to = HELP.find("Exit codes").unwrap_or(HELP.len());
            HELP[from..to].trim_end().to_owned() + "\n"
        }
        _ => format!("there is no `/{}`; /help lists what there is\n", clean(word)),
    };
    output.message(&text);
}

fn explained(tool: &str, hands: &Hands, caller: &Caller) -> String {
    let Hands::Road(runtime) = hands else { return String::new() };
    let request = CallRequest {
        name: tool.to_owned(),
        arguments: Raw::of(&serde_json::json!({})).into(),
        trace: Trace::fresh(),
        origin: Origin::default(),
        whole: false,
    };
    match runtime.explain(caller, &request) {
        Some(explanation) => why::shown(caller.id.as_str(), tool, &explanation),
        None => format!("there is no tool `{}`; /tools lists them\n", clean(tool)),
    }
}
