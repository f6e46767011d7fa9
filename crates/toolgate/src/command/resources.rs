//! `toolgate resources list|read`.

use toolgate_runtime::Operation;

use crate::DONE;
use crate::cli::{AnswerMode, ProjectArgs, ResourceArgs, ResourcesCommand};
use crate::command::app::AppChoice;
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
        AppChoice::new(AnswerMode::Ask).with_servers(|server| server == args.server).with_log(),
        async |app, _errors| {
            let runtime = app.runtime();
            let caller = app::find_caller(app, &args.caller)?;
            let operation = Operation::resource(args.uri.clone(), Some(args.server.clone()));
            let (origin, progress) = app::call_origin(project, AnswerMode::Ask, &args.server, output);
            let outcome = runtime.execute_boxed(&caller, operation.with_origin(origin)).await;
            drop(progress);
            let result = app::operation_reply(outcome)?;
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
