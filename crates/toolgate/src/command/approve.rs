//! `toolgate servers approve NAME`: a person looks at what a server changed, and lets it through.

use std::io::{BufRead, IsTerminal};

use anyhow::bail;
use serde_json::{Value as Json, json};
use similar::{ChangeTag, TextDiff};
use toolgate_runtime::runtime::Waiting;
use toolgate_types::ServerName;
use toolgate_types::clean::clean;

use crate::cli::{Answers, ApproveArgs, Project};
use crate::command::live;
use crate::output::{BOLD, Output, hinted};
use crate::{DONE, FAILED};

pub(crate) fn run(args: &ApproveArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let ApproveArgs { name, tools, yes } = args;
    live::with(
        project,
        output,
        Answers::Decline,
        |server| server == name,
        async |runtime, errors| {
            if runtime.servers().is_empty() {
                bail!("there is no MCP server `{name}`; `toolgate servers` lists them");
            }
            if live::tell(&errors, output) != DONE {
                return Ok(FAILED);
            }
            let mut waiting = runtime.waiting(name);
            if let Some(tool) = tools.iter().find(|tool| !waiting.iter().any(|one| is(one, tool))) {
                bail!(
                    "no tool `{tool}` of `{name}` waits for approval; `toolgate servers show {name}` lists them"
                );
            }
            waiting.retain(|one| tools.is_empty() || tools.iter().any(|tool| is(one, tool)));
            if waiting.is_empty() && runtime.is_approved(name) {
                if output.json {
                    output.document(&json!({ "server": name, "tools": [], "approved": true }))?;
                } else {
                    output.result(&format!("nothing of {BOLD}{name}{BOLD:#} waits for approval\n"));
                }
                return Ok(DONE);
            }
            waiting.iter().for_each(|one| output.message(&shown(one)));
            let approved = *yes || confirmed(waiting.len(), name, output)?;
            if approved {
                runtime.approve(&name.parse::<ServerName>()?, &waiting).await?;
            }
            let names: Vec<_> = waiting.iter().map(|one| &one.tool.original).collect();
            if output.json {
                output.document(&json!({ "server": name, "tools": names, "approved": approved }))?;
            } else if approved {
                let count = names.len();
                output.result(&format!("approved {BOLD}{name}{BOLD:#}: {count} definitions let through\n"));
                output.next("keep toolgate.lock with the project; others then trust the same definitions");
            } else {
                output.result("nothing was changed\n");
            }
            Ok(if approved { DONE } else { FAILED })
        },
    )
}

fn is(waiting: &Waiting, tool: &str) -> bool {
    waiting.tool.original == tool || waiting.tool.name == tool
}

fn confirmed(count: usize, name: &str, output: &Output) -> anyhow::Result<bool> {
    if output.json || !std::io::stdin().is_terminal() {
        return Err(hinted("nobody is at the terminal to say yes", "`--yes` says it"));
    }
    output.message(&format!("let {count} definitions of {name} through? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What a person decides by: why it waits, and the definition line by line.
fn shown(waiting: &Waiting) -> String {
    let lines = |definition: &Json| {
        let text = serde_json::to_string_pretty(definition).unwrap_or_default();
        // Line ends in a description are what makes it readable.
        clean(&text.replace("\\n", "\n")).into_owned()
    };
    let (was, is) = (waiting.was.as_ref().map(lines).unwrap_or_default(), lines(&waiting.is));
    let reason = match &waiting.tool.state {
        toolgate_runtime::ToolState::Quarantined { reason, .. } => reason.as_str(),
        toolgate_runtime::ToolState::Ready => "",
    };
    let mut text = format!("{BOLD}{}{BOLD:#}: {reason}\n", waiting.tool.name);
    for change in TextDiff::from_lines(&was, &is).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        text.push_str(&format!("  {sign} {}\n", change.value().trim_end()));
    }
    text
}
