//! `toolgate cluster`: the replicas, and the tools and servers that they share.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use toolgate_app::ProjectCluster;
use toolgate_redact::printable;
use toolgate_store::cluster::{ClusterStatus, Replica};

use crate::cli::{ClusterCommand, ProjectArgs};
use crate::command::app;
use crate::output::{BOLD, Output, error_with_hint};
use crate::{DONE, FAILED, INVALID_CONFIG};

pub(crate) fn run(command: &ClusterCommand, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let Some(loaded) = app::load_project(project, output)? else { return Ok(INVALID_CONFIG) };
    let connected = ProjectCluster::connect(&loaded.config).map_err(|error| {
        let hint = error.hint();
        error_with_hint(error.to_string(), hint)
    })?;
    let Some(cluster) = connected else {
        let hint = "add `cluster: { database: …, secret: … }` to toolgate.yaml; see docs/cluster.md";
        return Err(error_with_hint("this project is not a cluster", hint));
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        ClusterCommand::Status => print_status(&cluster.status(), output),
        ClusterCommand::Push => print_files("pushed", &tokio.block_on(cluster.push())?, output),
        ClusterCommand::Pull => print_files("pulled", &cluster.pull()?, output),
        ClusterCommand::Drain { name } => {
            if !tokio.block_on(cluster.request_drain(name))? {
                let message = format!("there is no replica `{}`", printable(name));
                return Err(error_with_hint(message, "`toolgate cluster status` lists them"));
            }
            if output.json {
                output.document(&json!({ "draining": name }))?;
            } else {
                output.result(&format!("{} finishes its calls and stops\n", printable(name)));
            }
            Ok(DONE)
        }
    }
}

/// Prints the replicas. Live replicas are compared with the first one.
fn print_status(status: &ClusterStatus, output: &Output) -> anyhow::Result<u8> {
    let live: Vec<&Replica> = status.replicas.iter().filter(|replica| replica.live).collect();
    let same = |of: fn(&Replica) -> &str| live.windows(2).all(|pair| of(pair[0]) == of(pair[1]));
    let agree = same(|replica| &replica.config) && same(|replica| &replica.policy);
    if output.json {
        output.document(&json!({ "agree": agree, "replicas": status.replicas }))?;
    } else {
        let width = status.replicas.iter().map(|replica| replica.name.len()).max().unwrap_or(0);
        for Replica { name, version, config, policy, registry, seen_ms_ago, live, drain, .. } in
            &status.replicas
        {
            let state = match (live, drain) {
                (true, false) => "live".to_owned(),
                (true, true) => "draining".to_owned(),
                (false, _) => {
                    let ago = Duration::from_millis(u64::try_from(*seen_ms_ago).unwrap_or_default());
                    format!("gone for {} s", ago.as_secs())
                }
            };
            let policy: String = policy.trim_start_matches("sha256:").chars().take(12).collect();
            output.result(&format!(
                "{BOLD}{:width$}{BOLD:#}  {state}  version {version}  config {config}  policy {policy}  registry {registry}\n",
                printable(name)
            ));
        }
        if live.is_empty() {
            output.message("no replica is running\n");
        } else if !agree {
            output.message("warning: the live replicas have different configurations or policies\n");
        }
    }
    Ok(if agree { DONE } else { FAILED })
}

fn print_files(verb: &str, files: &[PathBuf], output: &Output) -> anyhow::Result<u8> {
    if output.json {
        output.document(&json!({ verb: files }))?;
    } else if files.is_empty() {
        output.message("there are no tools and servers to share\n");
    } else {
        for file in files {
            output.result(&format!("{verb} {}\n", file.display()));
        }
    }
    Ok(DONE)
}
