//! `toolgate servers approve|reject NAME`: shows the changed definitions of a server, and approves or rejects them.

use std::io::IsTerminal;

use anyhow::bail;
use serde_json::{Value as Json, json};
use similar::{ChangeTag, TextDiff};
use toolgate_redact::printable;
use toolgate_redact::sanitize::sanitize;
use toolgate_runtime::runtime::PendingApproval;
use toolgate_types::{Caller, ServerName};

use crate::cli::{AnswerMode, ApproveArgs, ProjectArgs};
use crate::command::agent::keys;
use crate::command::app::{self, AppChoice};
use crate::output::{BOLD, Output, error_with_hint};
use crate::{DONE, FAILED};

/// The decision on the definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    Approve,
    Reject,
}

impl Review {
    fn verb(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Reject => "rejected",
        }
    }
}

pub(crate) fn run(
    args: &ApproveArgs,
    review: Review,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    let ApproveArgs { name, tools, yes } = args;
    app::with_app(
        project,
        output,
        AppChoice::new(AnswerMode::Decline).with_servers(|server| server == name),
        async |app, errors| {
            let runtime = app.runtime();
            if runtime.servers().is_empty() {
                bail!("there is no MCP server `{name}`; `toolgate servers` lists them");
            }
            if app::report_errors(&errors, output) != DONE {
                return Ok(FAILED);
            }
            let mut waiting = runtime.pending_approvals(name);
            if review == Review::Approve && !tools.is_empty() {
                // A person may change its mind, for tools that it names.
                waiting.extend(runtime.rejected_definitions(name));
            }
            if let Some(tool) = tools.iter().find(|tool| !waiting.iter().any(|one| is_named(one, tool))) {
                bail!(
                    "no tool `{tool}` of `{name}` waits for approval; `toolgate servers show {name}` lists them"
                );
            }
            waiting.retain(|one| tools.is_empty() || tools.iter().any(|tool| is_named(one, tool)));
            if waiting.is_empty() && (review == Review::Reject || runtime.is_approved(name)) {
                if output.json {
                    output.document(&json!({ "server": name, "tools": [], review.done(): true }))?;
                } else {
                    output.result(&format!("no tool of {BOLD}{name}{BOLD:#} waits for approval\n"));
                }
                return Ok(DONE);
            }
            waiting.iter().for_each(|one| output.message(&definition_diff(one)));
            let is_confirmed = *yes || confirm(review, waiting.len(), name, output)?;
            let server = name.parse::<ServerName>()?;
            match review {
                _ if !is_confirmed => {}
                Review::Approve => runtime.approve(&server, &waiting).await?,
                Review::Reject => runtime.reject(&server, &waiting, Caller::OWNER).await?,
            }
            let names: Vec<_> = waiting.iter().map(|one| &one.tool.original).collect();
            if output.json {
                output.document(&json!({ "server": name, "tools": names, review.done(): is_confirmed }))?;
            } else if is_confirmed {
                let (done, count) = (review.done(), names.len());
                output.result(&format!("{done} {BOLD}{name}{BOLD:#}: {count} definitions\n"));
                output.next_step("commit toolgate.lock, so that others trust the same definitions");
            } else {
                output.result("nothing was changed\n");
            }
            Ok(if is_confirmed { DONE } else { FAILED })
        },
    )
}

fn is_named(waiting: &PendingApproval, tool: &str) -> bool {
    waiting.tool.original == tool || waiting.tool.name == tool
}

fn confirm(review: Review, count: usize, name: &str, output: &Output) -> anyhow::Result<bool> {
    if output.json || !std::io::stdin().is_terminal() {
        return Err(error_with_hint(
            "confirmation needed, but stdin is not a terminal",
            "pass `--yes` to confirm",
        ));
    }
    Ok(keys::yes_line(&format!("{} {count} definitions of {}? [y/N] ", review.verb(), printable(name))))
}

/// Formats a definition for review: the reason for the quarantine, and a diff.
fn definition_diff(waiting: &PendingApproval) -> String {
    let lines = |definition: &Json| {
        let text = serde_json::to_string_pretty(definition).unwrap_or_default();
        // Real line breaks make descriptions readable.
        sanitize(&text.replace("\\n", "\n")).into_owned()
    };
    let (was, is) =
        (waiting.old_definition.as_ref().map(lines).unwrap_or_default(), lines(&waiting.new_definition));
    let reason = waiting.tool.state.reason().unwrap_or_default();
    let mut text = format!("{BOLD}{}{BOLD:#}: {}\n", printable(&waiting.tool.name), printable(reason));
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
