//! `toolgate run TEXT`: runs one task with the agent.

use anyhow::Context as _;
use toolgate_agent::RunEvent;
use toolgate_agent::journal::parts_text;
use toolgate_agent::model::Part;
use toolgate_app::run_until_stopped;

use crate::cli::{ProjectArgs, RunArgs};
use crate::command::agent::printer::Printer;
use crate::command::agent::{self, ReadyAgent};
use crate::command::attachment;
use crate::output::{Output, error_with_hint, quoted_lines};

pub(crate) const HELP: &str = "\
Examples:
  toolgate run 'what time is it in Tokyo?'
  toolgate run --image chart.png 'what does this show?'
  toolgate run --json 'sum up report.csv' | jq -r 'select(.event == \"ended\").answer'
  toolgate run --resume 019a8f0c                 continue a stopped run
  toolgate run --record run.jsonl 'say hello'    record replies and results, without secrets
  toolgate run --replay run.jsonl                replay them, without model and tools

The answer goes to stdout, everything else to stderr. With --json every event is a JSON object on its
own line; the last one is `ended`. `agent` in toolgate.yaml configures model, tools and budgets; see
docs/agent.md. Ctrl-C stops the run and everything it started.

Exit codes: 0 answered, 1 the run failed, nothing was done or a budget is used up, 2 wrong usage,
78 invalid configuration, 130 stopped by Ctrl-C.";

pub(crate) fn run(args: &RunArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let printer = Printer::new(output);
    let on_event = |event: RunEvent| printer.print_event(event);
    if let Some(recording) = &args.replay {
        return agent::replay(recording, async |ReadyAgent { agent, caller }, recording| {
            let mut run = agent.begin(caller)?;
            let mut code = crate::DONE;
            for parts in recording.user_messages() {
                if !output.json {
                    output.message(&format!("> {}\n", quoted_lines(&parts_text(parts))));
                }
                code = agent::exit_code(&run.ask(parts.clone(), &on_event).await);
            }
            Ok(code)
        });
    }
    let parts = match &project.host {
        Some(host) => host.task(),
        None => task_parts(args)?,
    };
    agent::with_agent(&args.agent, project, output, async |ReadyAgent { agent, caller }| {
        let mut run = match &args.resume {
            Some(id) => {
                let id = agent.runs.resolve(id).map_err(agent::run_error)?;
                agent.resume(&id, caller).map_err(agent::run_error)?
            }
            None => agent.begin(caller)?,
        };
        let fresh = args.resume.is_none() || !parts.is_empty();
        let stopped = agent::stopped(project);
        let ended = run_until_stopped(&mut run, fresh.then_some(parts), &on_event, stopped).await;
        Ok(agent::exit_code(&ended))
    })
}

/// Waits for Ctrl-C.
pub(crate) async fn ctrl_c() {
    let _ = tokio::signal::ctrl_c().await;
}

/// Returns the task: text and attachments.
pub(crate) fn task_parts(args: &RunArgs) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::new();
    if let Some(text) = &args.text {
        let text = if text == "-" {
            std::io::read_to_string(std::io::stdin()).context("cannot read the task from stdin")?
        } else {
            text.clone()
        };
        if text.trim().is_empty() {
            return Err(error_with_hint(
                "the task is empty",
                "give a task: `toolgate run 'what time is it?'`",
            ));
        }
        parts.push(Part::Text { text });
    }
    for path in &args.attach {
        parts.push(attachment::read_attachment(path)?);
    }
    Ok(parts)
}
