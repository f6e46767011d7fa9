//! `toolgate prompts list|get`.

use serde_json::{Value as Json, json};
use toolgate_mcp::Params;

use crate::DONE;
use crate::cli::{Answers, Project, PromptArgs, PromptsCommand};
use crate::command::servers::first_line;
use crate::command::{content, live, tools};
use crate::output::{BOLD, DIM, Output};

pub(crate) fn run(command: &PromptsCommand, project: &Project, output: &Output) -> anyhow::Result<u8> {
    match command {
        PromptsCommand::List => list(project, output),
        PromptsCommand::Get(args) => get(args, project, output),
    }
}

fn list(project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        Answers::Ask,
        |_| true,
        async |runtime, errors| {
            let mut all = Vec::new();
            for (server, offer) in runtime.offers() {
                for prompt in offer.iter().flat_map(|offer| &offer.prompts) {
                    all.push(json!({ "name": prompt.id, "server": server, "title": prompt.title, "description": prompt.description, "definition": prompt.definition }));
                }
            }
            if output.json {
                output.document(&all)?;
            } else {
                for prompt in &all {
                    let text = |name: &str| prompt[name].as_str().unwrap_or_default();
                    let line = first_line(text("description"));
                    output.result(&format!(
                        "{BOLD}{}{BOLD:#} {DIM}of {}{DIM:#}  {line}\n",
                        text("name"),
                        text("server")
                    ));
                }
            }
            Ok(live::tell(&errors, output))
        },
    )
}

fn get(args: &PromptArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        Answers::Ask,
        |server| server == args.server,
        async |runtime, _errors| {
            // Arguments of prompts are texts.
            let texts = json!({ "properties": args.pairs.iter().filter_map(|pair| Some((pair.split_once('=')?.0.to_owned(), json!({ "type": "string" })))).collect::<serde_json::Map<_, _>>() });
            let arguments = tools::pairs(&args.pairs, &texts)?;
            let params = Params::none().with("name", &args.name).with("arguments", &arguments);
            let result: Json = runtime.request(&args.server, "prompts/get", params, None).await?.parse()?;
            if output.json {
                output.document(&result)?;
                return Ok(DONE);
            }
            for message in result["messages"].as_array().into_iter().flatten() {
                let role = message["role"].as_str().unwrap_or_default();
                let text = content::shown(std::slice::from_ref(&message["content"]))?;
                output.result(&format!("{BOLD}{role}{BOLD:#}: {text}"));
            }
            Ok(DONE)
        },
    )
}
