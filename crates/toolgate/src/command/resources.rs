//! `toolgate resources list|read`.

use serde_json::{Value as Json, json};
use toolgate_mcp::Params;
use toolgate_runtime::results::SCHEME;
use toolgate_runtime::runtime::Ask;
use toolgate_types::Caller;

use crate::DONE;
use crate::cli::{Answers, Project, ResourceArgs, ResourcesCommand};
use crate::command::{content, listing, live, tools};
use crate::output::Output;

pub(crate) fn run(command: &ResourcesCommand, project: &Project, output: &Output) -> anyhow::Result<u8> {
    match command {
        ResourcesCommand::List => listing::list(
            "uri",
            |offer| {
                let resources = offer.resources.iter().map(|resource| ("resource", resource));
                resources.chain(offer.templates.iter().map(|template| ("template", template))).collect()
            },
            project,
            output,
        ),
        ResourcesCommand::Read(args) => read(args, project, output),
    }
}

fn read(args: &ResourceArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        Answers::Ask,
        |server| server == args.server,
        async |runtime, _errors| {
            let own = runtime.results().filter(|_| args.uri.starts_with(SCHEME));
            let result: Json = match own {
                Some(results) => {
                    let caller = tools::caller(&runtime, Caller::OWNER)?;
                    let kept = results.read(&caller.id, &args.uri).await?;
                    let text = kept.reply.get();
                    let contents = json!([{ "uri": args.uri, "mimeType": "application/json", "text": text }]);
                    json!({ "contents": contents })
                }
                None => {
                    let params = Params::none().with("uri", &args.uri);
                    runtime.ask(&args.server, Ask::Resource, params).await?.parse()?
                }
            };
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
