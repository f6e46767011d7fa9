//! Embeds Toolgate in another program: loads a project, calls one of its tools, prints the result.
//!
//! `cargo run -p toolgate-app --example embed -- examples/quickstart`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use toolgate_app::{App, Caller, Environment, Project};

fn main() -> ExitCode {
    // Tools run in child processes, and these start through this executable.
    if let Some(code) = toolgate_app::run_shim() {
        return code;
    }
    let folder =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("examples/quickstart"), PathBuf::from);
    let result = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|tokio| tokio.block_on(count_words(&folder, "one two three")));
    match result {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Calls the tool `word_count` of the project, as the owner of its files.
pub(crate) async fn count_words(folder: &Path, text: &str) -> Result<Json, Box<dyn Error>> {
    let project = Project::load(folder, None, Environment::from_process())?;
    // Without a terminal, questions get no answer. Calls are recorded in the execution log of the project.
    let app = App::builder(project).on_event(|event| eprintln!("{event}")).build()?;
    app.run(async |app| {
        let failed_servers = app.discover().await?;
        failed_servers.iter().for_each(|error| eprintln!("{error}"));
        let caller = Caller::owner();
        let work = async { app.call(&caller, "word_count", &json!({ "text": text })).await };
        // A long-running program keeps its tools current like this.
        let outcome = app.keep_current(work).await;
        // The result with hints and metadata.
        Ok(serde_json::to_value(app.runtime().envelope(&caller, &outcome))?)
    })
    .await
}
