//! `toolgate why CALLER TOOL [JSON]`: explains a policy decision.

use anyhow::Context as _;
use serde_json::json;
use toolgate_app::{parse_json, servers_with_tool};
use toolgate_redact::printable;
use toolgate_runtime::{Explanation, Operation};

use crate::cli::{AnswerMode, ProjectArgs, WhyArgs};
use crate::command::app::{self, AppChoice};
use crate::command::tools;
use crate::output::{BOLD, Output, quoted_lines};
use crate::{DONE, FAILED};

pub(crate) fn run(args: &WhyArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let WhyArgs { caller, tool, arguments } = args;
    app::with_app(
        project,
        output,
        AppChoice::new(AnswerMode::Decline).with_servers(servers_with_tool(tool, &project.folder)),
        async |app, _errors| {
            let runtime = app.runtime();
            let who = app::find_caller(app, caller)?;
            let arguments =
                parse_json(arguments).with_context(|| format!("`{arguments}` is not valid JSON"))?;
            let request = Operation::tool(tool.clone(), arguments);
            let explanation = runtime.explain(&who, &request);
            let explanation = explanation.ok_or_else(|| tools::unknown_tool(tool, &runtime.catalog()))?;
            let code = if explanation.decision == "allow" && explanation.held_back.is_none() {
                DONE
            } else {
                FAILED
            };
            if output.json {
                let mut document = serde_json::to_value(&explanation)?;
                document["caller"] = json!(caller);
                document["tool"] = json!(tool);
                output.document(&document)?;
            } else {
                output.result(&explanation_text(caller, tool, &explanation));
            }
            Ok(code)
        },
    )
}

pub(crate) fn explanation_text(caller: &str, tool: &str, explanation: &Explanation) -> String {
    let Explanation { decision, visible, permissions, rules, through, question, failed, policy, held_back } =
        explanation;
    let (caller, tool) = (printable(caller), printable(tool));
    let mut text = format!("{BOLD}{decision}{BOLD:#}: {caller} and {tool}\n");
    for demand in permissions {
        let state = if demand.granted { "granted" } else { "not granted" };
        let through = match &demand.through {
            Some(group) => format!(" through group {}", printable(group)),
            None => String::new(),
        };
        text.push_str(&format!("  requires {}: {state}{through}\n", demand.permission));
    }
    if !rules.is_empty() {
        let through = match through.as_slice() {
            [] => String::new(),
            groups => format!(", through {}", printable(&groups.join(", "))),
        };
        text.push_str(&format!("  decided by: {}{through}\n", printable(&rules.join(", "))));
    }
    if let Some(question) = question {
        text.push_str(&format!("  would ask: {}\n", quoted_lines(question)));
    }
    if let Some(failed) = failed {
        text.push_str(&format!("  could not be decided: {}\n", printable(failed)));
    }
    if let Some(reason) = held_back {
        text.push_str(&format!("  quarantined for everyone: {}\n", printable(reason)));
    }
    let visibility = if *visible { "can see" } else { "cannot see" };
    text.push_str(&format!("  {caller} {visibility} the tool; policy {policy}\n"));
    text
}
