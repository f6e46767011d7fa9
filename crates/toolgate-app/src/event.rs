//! Events that a person may want to know of while an app starts, runs and stops.
//!
//! The text of an event is its `Display`. Invariant: events are information; nothing waits for their receiver.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use toolgate_agent::model::ModelError;
use toolgate_agent::skills::SkillError;
use toolgate_redact::printable;
use toolgate_runtime::runtime::{ServerStatus, StartError};
use toolgate_store::callers::KeyError;
use toolgate_store::registry::{OpenError, RegistryProblem, RegistryProblems};
use toolgate_store::store::Revision;
use toolgate_types::Secret;
use toolgate_upstream::process::sandbox::MissingLayer;

/// Receives the events of an app.
pub(crate) type EventHandler = Arc<dyn Fn(AppEvent<'_>) + Send + Sync>;

/// An event of an app.
#[derive(Debug)]
#[non_exhaustive]
pub enum AppEvent<'a> {
    /// A server connected, or failed to.
    Server(&'a ServerStatus),
    /// A server that is not required failed, and the gateway starts without it.
    StartedWithout(&'a StartError),
    /// A server that may be downloading its package is not ready yet.
    SlowStart(&'a str),
    /// A server has not answered yet.
    Waiting(&'a str),
    /// Changed files contain secrets that must be masked from now on.
    NewSecrets(&'a [Secret]),
    /// A folder is not a valid skill.
    SkillIgnored(&'a SkillError),
    /// The gateway has no agent, because its model cannot be used.
    NoAgent(&'a ModelError),
    /// The gateway has no agent, because the replicas of its cluster do not share runs.
    NoClusterRuns,
    /// The replicas of the cluster disagree; the names of those that differ from this one.
    Disagreement(&'a [String]),
    /// Another process has the name of this replica.
    ReplicaNameTaken(&'a str),
    /// The database of the cluster is unavailable.
    DatabaseAway(&'a str),
    /// It is available again.
    DatabaseBack,
    /// Other users can change a file or folder of the project.
    Exposed(&'a Path),
    /// The key file cannot be used, so callers with a created key cannot log in.
    KeysUnusable(&'a KeyError),
    /// The keys of sessions cannot be kept, so sessions end with the gateway.
    SessionsNotKept(&'a io::Error),
    /// The sandbox of `code_execution` lacks a layer.
    SandboxIncomplete(&'a MissingLayer),
    /// The registry cannot be opened, so edits of the files have no effect.
    ChangesIgnored(&'a OpenError),
    /// The files were read again on request.
    Reloaded(Revision),
    /// Changed files are invalid, and nothing of them is in use.
    ReloadRejected(&'a RegistryProblems),
    /// These changed sections of the configuration are read at startup only. Empty if none is left.
    RestartNeeded(&'a [String]),
    /// The files cannot be read again, because the registry could not be opened.
    NotReloadable,
    /// Another gateway of the project receives the commands.
    OtherGateway,
    /// Commands cannot reach the gateway.
    NoSocket(&'a io::Error),
    /// The gateway rejects new calls and waits for this number of running ones.
    Draining(usize),
    /// The wait for running calls ended, with this number of calls left.
    DrainTimedOut(usize),
    /// The gateway stops without waiting.
    ForcedStop,
}

impl fmt::Display for AppEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(ServerStatus {
                name,
                transport,
                state,
                protocol_version,
                tools,
                connections,
                ..
            }) => {
                write!(f, "{state} {name} · {transport}")?;
                if let Some(version) = protocol_version {
                    write!(f, " · {version}")?;
                }
                // An API has no protocol version; it has tools once its document is loaded.
                if protocol_version.is_some() || *tools > 0 {
                    write!(f, " · {tools} tools")?;
                }
                if *connections > 1 { write!(f, " · {connections} connections") } else { Ok(()) }
            }
            Self::StartedWithout(error) => {
                write!(f, "warning: {error}")?;
                if let StartError::Server { hint: Some(hint), .. } = error {
                    write!(f, "\nhint: {}", one_line(hint))?;
                }
                f.write_str(
                    "\nnote: it is retried in the background; with `startup: required` the start would fail",
                )
            }
            Self::SlowStart(name) => {
                write!(f, "{name} is still starting; the first start of a package downloads it")
            }
            Self::Waiting(name) => write!(f, "waiting for {name}"),
            Self::NewSecrets(secrets) => write!(f, "{} secrets are masked", secrets.len()),
            Self::SkillIgnored(error) => write!(f, "skill ignored: {}", one_line(error)),
            Self::NoAgent(error) => write!(f, "no agent at /v1/runs: {}", one_line(error)),
            Self::NoClusterRuns => f.write_str("no agent at /v1/runs: replicas do not share runs yet"),
            Self::Disagreement([]) => f.write_str("all replicas have the same configuration and policy"),
            Self::Disagreement(names) => write!(
                f,
                "warning: other replicas have another configuration or policy: {}\nhint: `toolgate cluster status` compares them",
                names.join(", ")
            ),
            Self::ReplicaNameTaken(name) => write!(
                f,
                "warning: another process is the replica `{name}` now; give each its own `cluster.name`"
            ),
            Self::DatabaseAway(reason) => {
                write!(f, "warning: {}; calls go on, changes are refused", one_line(reason))
            }
            Self::DatabaseBack => f.write_str("the database of the cluster is available again"),
            Self::Exposed(path) => {
                let path = one_line(path.display());
                write!(
                    f,
                    "warning: other users can change `{path}`; make it yours, and run `chmod go-w` on it"
                )
            }
            Self::KeysUnusable(error) => {
                write!(
                    f,
                    "warning: callers with a created key cannot log in: {}",
                    one_line(error.with_cause())
                )
            }
            Self::SessionsNotKept(error) => {
                write!(f, "warning: MCP sessions end with this gateway: {}", one_line(error))
            }
            Self::SandboxIncomplete(missing) => write!(f, "warning: {missing}\nhint: {}", missing.hint()),
            Self::ChangesIgnored(error) => write!(f, "file changes are ignored: {}", one_line(error)),
            Self::Reloaded(revision) => write!(f, "reloaded: the registry is at revision {revision}"),
            Self::ReloadRejected(problems) => {
                f.write_str("not reloaded, the old configuration stays active: ")?;
                for (at, RegistryProblem { message, place, .. }) in problems.0.iter().enumerate() {
                    let place = place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
                    let separator = if at == 0 { "" } else { "; " };
                    write!(f, "{separator}{}", one_line(format!("{message}{place}")))?;
                }
                Ok(())
            }
            Self::RestartNeeded([]) => f.write_str("no change of the configuration waits for a restart"),
            Self::RestartNeeded(sections) => {
                let sections: Vec<_> = sections.iter().map(|section| format!("`{section}`")).collect();
                write!(f, "restart to use the changes of {}; all others are in use", sections.join(", "))
            }
            Self::NotReloadable => f.write_str(
                "not reloaded: file changes are ignored, because the registry could not be opened",
            ),
            Self::OtherGateway => {
                f.write_str("note: another `toolgate serve` runs for this project; commands go to that one")
            }
            Self::NoSocket(error) => {
                let error = one_line(error);
                write!(f, "note: no command socket, so commands change the files directly: {error}")
            }
            Self::Draining(active) => {
                write!(f, "stopping: no new calls are accepted, {active} running")
            }
            Self::DrainTimedOut(active) => write!(f, "stopped: {active} calls were still running"),
            Self::ForcedStop => f.write_str("stopped at once"),
        }
    }
}

/// Formats an error on one line. It may quote a file or a server.
fn one_line(error: impl fmt::Display) -> String {
    printable(&error.to_string())
}
