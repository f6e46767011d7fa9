//! `toolgate why CALLER TOOL [JSON]`: a decision with its reasons.

use anyhow::{Context as _, anyhow};
use serde_json::json;
use toolgate_mcp::scan::Limits;
use toolgate_mcp::{Raw, Trace};
use toolgate_runtime::{CallRequest, Explanation, Origin};

use crate::cli::{Answers, Project, WhyArgs};
use crate::command::{live, tools};
use crate::output::{BOLD, Output};
use crate::{DONE, FAILED};

pub(crate) fn run(args: &WhyArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let WhyArgs { caller, tool, arguments } = args;
    live::with(project, output, Answers::Decline, tools::may_have(tool, project), async |runtime, _errors| {
        let who = tools::caller(&runtime, caller)?;
        let arguments = Raw::new(arguments.clone().into(), Limits::default())
            .with_context(|| format!("`{arguments}` is not valid JSON"))?;
        let request = CallRequest {
            name: tool.clone(),
            arguments: arguments.into(),
            trace: Trace::fresh(),
            origin: Origin::default(),
            whole: false,
        };
        let explanation = runtime
            .explain(&who, &request)
            .ok_or_else(|| anyhow!("there is no tool `{tool}`; `toolgate tools list` shows them all"))?;
        let code =
            if explanation.decision == "allow" && explanation.held_back.is_none() { DONE } else { FAILED };
        if output.json {
            let mut document = serde_json::to_value(&explanation)?;
            document["caller"] = json!(caller);
            document["tool"] = json!(tool);
            output.document(&document)?;
        } else {
            output.result(&shown(caller, tool, &explanation));
        }
        Ok(code)
    })
}

pub(crate) fn shown(caller: &str, tool: &str, explanation: &Explanation) -> String {
    let Explanation { decision, visible, permissions, rules, question, failed, policy, held_back } =
        explanation;
    let mut text = format!("{BOLD}{decision}{BOLD:#}: {caller} and {tool}\n");
    for demand in permissions {
        let given = if demand.given { "given" } else { "not given" };
        text.push_str(&format!("  demands {}: {given}\n", demand.permission));
    }
    if !rules.is_empty() {
        text.push_str(&format!("  decided by: {}\n", rules.join(", ")));
    }
    if let Some(question) = question {
        text.push_str(&format!("  would ask: {question}\n"));
    }
    if let Some(failed) = failed {
        text.push_str(&format!("  could not be decided: {failed}\n"));
    }
    if let Some(reason) = held_back {
        text.push_str(&format!("  held back from everyone: {reason}\n"));
    }
    let seen = if *visible { "can see" } else { "cannot see" };
    text.push_str(&format!("  {caller} {seen} the tool; policy {policy}\n"));
    text
}
