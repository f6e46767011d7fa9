//! `toolgate resources list|read`.

use serde_json::{Value as Json, json};
use toolgate_runtime::Params;
use toolgate_runtime::results::URI_PREFIX;
use toolgate_runtime::runtime::RequestKind;
use toolgate_types::Caller;

use crate::DONE;
use crate::cli::{AnswerMode, ProjectArgs, ResourceArgs, ResourcesCommand};
use crate::command::{app, content, listing};
use crate::output::Output;

pub(crate) fn run(command: &ResourcesCommand, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
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

fn read(args: &ResourceArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    app::with_app(
        project,
        output,
        AnswerMode::Ask,
        |builder| builder.servers(|server| server == args.server),
        async |app, _errors| {
            let runtime = app.runtime();
            let own = runtime.results().filter(|_| args.uri.starts_with(URI_PREFIX));
            let result: Json = match own {
                Some(results) => {
                    let caller = app::find_caller(app, Caller::OWNER)?;
                    let stored = results.read(&caller.id, &args.uri).await?;
                    let text = stored.reply.as_str();
                    let contents = json!([{ "uri": args.uri, "mimeType": "application/json", "text": text }]);
                    json!({ "contents": contents })
                }
                None => {
                    let params = Params::none().with("uri", &args.uri);
                    runtime.request(&args.server, RequestKind::Resource, params).await?.parse()?
                }
            };
            if output.json {
                output.document(&result)?;
                return Ok(DONE);
            }
            for resource in result["contents"].as_array().into_iter().flatten() {
                output.result(&content::resource_text(resource)?);
            }
            Ok(DONE)
        },
    )
}
