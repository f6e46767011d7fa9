//! `toolgate policy test FILE`: what other rules would have decided about the calls that were made.

use serde_json::json;
use toolgate_audit::{Filter, Reader};
use toolgate_config::{Environment, load_rules};
use toolgate_policy::Policy;
use toolgate_runtime::replay::{Flip, Replay};
use toolgate_types::Caller;

use crate::cli::{Answers, PolicyCommand, PolicyTestArgs, Project};
use crate::command::{live, log, tools};
use crate::output::{BOLD, DIM, Output};
use crate::{DONE, FAILED, REFUSED};

pub(crate) fn run(command: &PolicyCommand, project: &Project, output: &Output) -> anyhow::Result<u8> {
    match command {
        PolicyCommand::Test(args) => test(args, project, output),
    }
}

fn test(args: &PolicyTestArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let (rules, report) = load_rules(&args.rules, &Environment::of_process());
    let Some(rules) = rules else {
        output.message(&report.render());
        if output.json {
            output.document(&json!({ "ok": false, "problems": report.entries() }))?;
        }
        return Ok(REFUSED);
    };
    output.message(&report.render());
    let version = rules.version().to_owned();
    let policy = Policy::new(Some(rules));
    let filter = Filter {
        tool: args.tool.clone(),
        caller: args.caller.clone(),
        since: args.since,
        ..Filter::default()
    };
    let readers: Vec<_> = log::folders(project, output).iter().map(Reader::new).collect();
    live::with(
        project,
        output,
        Answers::Decline,
        |_| true,
        async |runtime, errors| {
            // A server that is not there takes its tools along, which the numbers below say.
            live::tell(&errors, output);
            let owner = tools::caller(&runtime, Caller::OWNER)?;
            let queries = readers.iter().map(|reader| reader.query(filter.clone()));
            let queries = queries.collect::<Result<Vec<_>, _>>()?;
            let replay = runtime.replay(&policy, Some(&owner), queries.into_iter().flatten())?;
            if output.json {
                let mut document = serde_json::to_value(&replay)?;
                document["policy"] = json!(version);
                output.document(&document)?;
            } else {
                output.result(&shown(&replay));
            }
            Ok(if replay.flips.is_empty() { DONE } else { FAILED })
        },
    )
}

fn shown(replay: &Replay) -> String {
    let line = |flip: &Flip| {
        let Flip { caller, tool, from, to, certain, count, rules, call } = flip;
        let by = if rules.is_empty() { String::new() } else { format!(" by {}", rules.join(", ")) };
        let doubt = if *certain { "" } else { ", not certain: its arguments are not all in the record" };
        let (from, to, calls) = (from.label(), to.label(), calls(*count));
        format!(
            "{BOLD}{from} → {to}{BOLD:#}  {caller}  {tool}  {calls}{by}{doubt}{DIM}, such as {call}{DIM:#}\n"
        )
    };
    let mut text: String = replay.flips.iter().map(line).collect();
    let flipped: u64 = replay.flips.iter().map(|flip| flip.count).sum();
    let certain: u64 = replay.flips.iter().filter(|flip| flip.certain).map(|flip| flip.count).sum();
    let Replay { replayed, uncertain, gone, .. } = replay;
    text.push_str(&format!(
        "{}: {flipped} would flip, {} would not; {uncertain} of them with arguments that are not all in \
         the record, of which {} would flip\n",
        calls(*replayed),
        replayed - flipped,
        flipped - certain,
    ));
    if *gone > 0 {
        let gone = calls(*gone);
        text.push_str(&format!("{gone} passed over: the tool or the caller is not there any more\n"));
    }
    text
}

fn calls(count: u64) -> String {
    format!("{count} {}", if count == 1 { "call" } else { "calls" })
}
