//! Wires a whole Toolgate from a configuration: the only place that connects the other crates.
//!
//! [`Project::load`] reads the files, [`App::builder`] takes the choices of a front end, and the builder opens the
//! execution log, reads the history, starts the telemetry and creates the runtime. [`AppBuilder::build`] makes an app
//! for calls, [`AppBuilder::build_agent`] one with an agent, [`AppBuilder::build_gateway`] the HTTP gateway and
//! [`AppBuilder::build_pipe`] the gateway on a pair of pipes. Messages for people are [`AppEvent`]s.
//!
//! Invariants: this crate prints nothing, ends no process and installs no signal handler; everything an app started is
//! stopped when its work ends, however it ends.
//!
//! # Embedding
//! Tools run in child processes that are started through this executable, so `main` begins with [`run_shim`].
//!
//! ```no_run
//! use std::path::Path;
//! use std::process::ExitCode;
//!
//! use serde_json::json;
//! use toolgate_app::{App, Caller, Environment, Project};
//!
//! fn main() -> ExitCode {
//!     if let Some(code) = toolgate_app::run_shim() {
//!         return code;
//!     }
//!     let tokio = tokio::runtime::Runtime::new().expect("tokio starts");
//!     tokio.block_on(count_words()).expect("the project works");
//!     ExitCode::SUCCESS
//! }
//!
//! async fn count_words() -> Result<(), Box<dyn std::error::Error>> {
//!     let folder = Path::new("examples/quickstart");
//!     let project = Project::load(folder, None, Environment::from_process())?;
//!     let app = App::builder(project).build()?;
//!     app.run(async |app| {
//!         app.discover().await?;
//!         let caller = Caller::owner();
//!         let outcome = app.call(&caller, "word_count", &json!({ "text": "one two" })).await;
//!         println!("{}", serde_json::to_string(&app.runtime().envelope(&caller, &outcome))?);
//!         Ok(())
//!     })
//!     .await
//! }
//! ```

// The future of a run nests those of the agent loop, the pipeline and the client of a server.
#![recursion_limit = "256"]

mod admin;
mod agent;
mod app;
mod callers;
mod check;
mod cluster;
mod credentials;
mod event;
mod gateway;
mod log;
mod names;
mod project;
mod registry;
mod reload;
mod session_keys;
pub mod socket;

use std::process::ExitCode;

use toolgate_mcp::scan::{ScanError, ScanLimits};

pub use crate::admin::replace_file;
pub use crate::agent::{replay_agent, run_store, run_until_stopped};
pub use crate::app::{App, AppBuilder, AppError, StartFailure, UnknownName, servers_with_tool};
pub use crate::callers::{CallerChangeError, CallerEntry, KeyEntry, NewCaller, ProjectCallers};
pub use crate::check::project_warnings;
pub use crate::cluster::{ClusterError, ProjectCluster};
pub use crate::credentials::{CredentialsError, ProjectCredentials, server_tokens, user_state_folder};
pub use crate::event::AppEvent;
pub use crate::gateway::{CommandHandler, GatewayApp, PipeApp, ServeControl, ServeEnd, ServeError};
pub use crate::log::{LogError, LogMode};
pub use crate::names::{NameKind, known_names};
pub use crate::project::{InvalidProject, Project, ProjectFiles, StateFolder};
pub use crate::registry::{ChangeRoute, OpenRegistry, RejectedChange, SubmitError};
pub use crate::reload::access_rules;
/// Re-exported: types of this interface, for programs that embed an app.
pub use toolgate_config::Environment;
pub use toolgate_runtime::questions::Responder;
pub use toolgate_runtime::runtime::StartError;
pub use toolgate_runtime::{CallOutcome, RawJson, Runtime};
pub use toolgate_server::{bind, profile, reference};
pub use toolgate_types::Caller;
pub use toolgate_upstream::connect::with_browser;
pub use toolgate_upstream::process::nesting::enter as enter_project;
pub use toolgate_upstream::process::orphans::adopt as adopt_orphans;
pub use toolgate_upstream::process::shim::main as shim_main;
pub use toolgate_upstream::questions::LoginPage;
pub use toolgate_upstream::{LoginOptions, LogoutOutcome, TokenSource};

/// Runs the shim of a child process, if this process was started as one. Call it first in `main` and return its code:
/// every child process starts through the executable of its parent.
pub fn run_shim() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    args.next().is_some_and(|first| first == "shim").then(|| shim_main(args))
}

/// Parses JSON that a person typed, with the limits of any other input.
///
/// # Errors
/// If it is not JSON, or ambiguous.
pub fn parse_json(text: &str) -> Result<RawJson, ScanError> {
    RawJson::new(text.to_owned().into(), ScanLimits::default())
}
