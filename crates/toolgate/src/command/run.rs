//! `toolgate run TEXT`: one task for the agent.

use anyhow::Context as _;
use tokio::time::Instant;
use toolgate_agent::journal::words;
use toolgate_agent::model::Part;
use toolgate_agent::run::Run;
use toolgate_agent::{Ended, Event};

use crate::cli::{Project, RunArgs};
use crate::command::agent::printer::Printer;
use crate::command::agent::{self, Ready};
use crate::command::attach;
use crate::output::{Output, hinted};

pub(crate) const HELP: &str = "\
Examples:
  toolgate run 'what time is it in Tokyo?'
  toolgate run --image chart.png 'what does this show?'
  toolgate run --json 'sum up report.csv' | jq -r 'select(.event == \"ended\").answer'
  toolgate run --resume 019a8f0c          go on with a run that was stopped
  toolgate run --record run.jsonl 'say hello'    keep what the model and the tools said, without secrets
  toolgate run --replay run.jsonl                the same again, without model and tools

The answer goes to stdout, everything else to stderr. With --json every event is an object on a line of its
own; the last is `ended`. `agent` in toolgate.yaml says which model, which tools and how much a run may use;
docs/agent.md. Ctrl-C stops the run and all that it started.

Exit codes: 0 there is an answer, 1 the run failed or a budget is used up, 2 wrong usage, 78 configuration
refused, 130 stopped by Ctrl-C.";

pub(crate) fn run(args: &RunArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let printer = Printer::new(output);
    let tell = |event: Event| printer.tell(event);
    if let Some(tape) = &args.replay {
        return agent::replay(tape, async |Ready { agent, caller }, tape| {
            let mut run = agent.begin(caller)?;
            let mut code = crate::DONE;
            for parts in tape.asked() {
                if !output.json {
                    output.message(&format!("> {}\n", words(parts)));
                }
                code = agent::code(&run.ask(parts.clone(), &tell).await);
            }
            Ok(code)
        });
    }
    let parts = parts(args)?;
    agent::with(&args.agent, project, output, async |Ready { agent, caller }| {
        let mut run = match &args.resume {
            Some(id) => {
                let id = agent.runs.resolve(id).map_err(agent::untaken)?;
                agent.resume(&id, caller).map_err(agent::untaken)?
            }
            None => agent.begin(caller)?,
        };
        let fresh = args.resume.is_none() || !parts.is_empty();
        let ended = until_stopped(&mut run, fresh.then_some(parts), &tell, ctrl_c()).await;
        Ok(agent::code(&ended))
    })
}

/// Resolves with Ctrl-C.
pub(crate) async fn ctrl_c() {
    let _ = tokio::signal::ctrl_c().await;
}

/// Goes round until there is an answer, or somebody stops it.
pub(crate) async fn until_stopped(
    run: &mut Run<'_>,
    parts: Option<Vec<Part>>,
    tell: &(dyn Fn(Event) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Ended {
    let began = Instant::now();
    let going = async {
        match parts {
            Some(parts) => run.ask(parts, tell).await,
            None => run.go_on(tell).await,
        }
    };
    let ended = tokio::select! {
        ended = going => Some(ended),
        () = stop => None,
    };
    match ended {
        Some(ended) => ended,
        None => run.interrupted(began, tell),
    }
}

/// What the person says: words, pictures, sounds.
fn parts(args: &RunArgs) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::new();
    if let Some(text) = &args.text {
        let text = if text == "-" {
            std::io::read_to_string(std::io::stdin()).context("the task cannot be read from stdin")?
        } else {
            text.clone()
        };
        if text.trim().is_empty() {
            return Err(hinted("there is nothing to do", "give a task: `toolgate run 'what time is it?'`"));
        }
        parts.push(Part::Text { text });
    }
    for path in &args.attach {
        parts.push(attach::part(path)?);
    }
    Ok(parts)
}
