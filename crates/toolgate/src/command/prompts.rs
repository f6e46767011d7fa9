//! `toolgate prompts list|get`.

use anyhow::bail;
use serde_json::json;
use toolgate_redact::printable;
use toolgate_runtime::{Operation, RawJson};

use crate::DONE;
use crate::cli::{AnswerMode, ProjectArgs, PromptArgs, PromptsCommand};
use crate::command::app::AppChoice;
use crate::command::{app, content, listing, tools};
use crate::output::{BOLD, Output};

pub(crate) fn run(command: &PromptsCommand, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    match command {
        PromptsCommand::List => listing::list(
            "name",
            |offer| offer.prompts.iter().map(|prompt| ("prompt", prompt)).collect(),
            project,
            output,
        ),
        PromptsCommand::Get(args) => get(args, project, output),
    }
}

fn get(args: &PromptArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    app::with_app(
        project,
        output,
        AppChoice::new(AnswerMode::Ask).with_servers(|server| server == args.server).with_log(),
        async |app, _errors| {
            let runtime = app.runtime();
            let mut offers = runtime.offers();
            offers.retain(|(server, _)| *server == args.server);
            let known = offers.iter().flat_map(|(_, offer)| offer.prompts.iter());
            if !offers.is_empty()
                && !known.into_iter().any(|prompt| prompt.id == args.name && prompt.fault.is_none())
            {
                bail!(
                    "there is no prompt `{}` of `{}`; `toolgate prompts list` shows them all",
                    args.name,
                    args.server
                );
            }
            // Arguments of prompts are always strings.
            let texts = json!({ "properties": args.pairs.iter().filter_map(|pair| Some((pair.split_once('=')?.0.to_owned(), json!({ "type": "string" })))).collect::<serde_json::Map<_, _>>() });
            let arguments = tools::parse_pairs(&args.pairs, &texts)?;
            let caller = app::find_caller(app, &args.caller)?;
            let arguments = RawJson::from_value(&arguments);
            let operation = Operation::prompt(args.server.clone(), args.name.clone(), arguments);
            let (origin, progress) = app::call_origin(project, AnswerMode::Ask, &args.server, output);
            let outcome = runtime.execute_boxed(&caller, operation.with_origin(origin)).await;
            drop(progress);
            let result = app::operation_reply(outcome)?;
            if output.json {
                output.document(&result)?;
                return Ok(DONE);
            }
            for message in result["messages"].as_array().into_iter().flatten() {
                let role = printable(message["role"].as_str().unwrap_or_default());
                let text = content::blocks_text(std::slice::from_ref(&message["content"]))?;
                output.result(&format!("{BOLD}{role}{BOLD:#}: {text}"));
            }
            Ok(DONE)
        },
    )
}
