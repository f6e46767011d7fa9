//! `toolgate resources list|read`.

use serde_json::{Value as Json, json};
use toolgate_mcp::Params;

use crate::DONE;
use crate::cli::{Answers, Project, ResourceArgs, ResourcesCommand};
use crate::command::{content, live};
use crate::output::{BOLD, DIM, Output};

pub(crate) fn run(command: &ResourcesCommand, project: &Project, output: &Output) -> anyhow::Result<u8> {
    match command {
        ResourcesCommand::List => list(project, output),
        ResourcesCommand::Read(args) => read(args, project, output),
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
                let Some(offer) = offer.as_ref() else { continue };
                let kinds = [("resource", &offer.resources), ("template", &offer.templates)];
                for (kind, resource) in
                    kinds.into_iter().flat_map(|(kind, all)| all.iter().map(move |one| (kind, one)))
                {
                    all.push(json!({ "uri": resource.id, "kind": kind, "server": server, "title": resource.title, "description": resource.description, "definition": resource.definition }));
                }
            }
            if output.json {
                output.document(&all)?;
            } else {
                for resource in &all {
                    let text = |name: &str| resource[name].as_str().unwrap_or_default();
                    output.result(&format!(
                        "{BOLD}{}{BOLD:#} {DIM}of {}{DIM:#}  {}\n",
                        text("uri"),
                        text("server"),
                        text("title")
                    ));
                }
            }
            Ok(live::tell(&errors, output))
        },
    )
}

fn read(args: &ResourceArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        Answers::Ask,
        |server| server == args.server,
        async |runtime, _errors| {
            let params = Params::none().with("uri", &args.uri);
            let result: Json =
                runtime.request(&args.server, "resources/read", params, None).await?.parse()?;
            if output.json {
                output.document(&result)?;
                return Ok(DONE);
            }
            for resource in result["contents"].as_array().into_iter().flatten() {
                output.result(&content::resource(resource)?);
            }
            Ok(DONE)
        },
    )
}
