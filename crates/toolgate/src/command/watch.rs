//! `toolgate servers --watch`: prints changes of servers and tools until Ctrl-C.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use serde_json::json;
use toolgate_app::App;
use toolgate_redact::printable;
use toolgate_runtime::runtime::ServerStatus;
use toolgate_runtime::{Catalog, CatalogTool, ToolState};
use toolgate_store::registry::{Registry, RegistryProblem};

use crate::command::{app, tools};
use crate::output::{BOLD, Output};

/// Runs until it is dropped, by Ctrl-C.
pub(crate) async fn run(app: &App, output: &Output) -> anyhow::Result<u8> {
    let runtime = app.runtime();
    let registry = app.open_registry().await?;
    registry.publish().await;
    let handle = registry.registry().clone();
    let mut changes = runtime.changes();
    let print = async {
        let (mut servers, mut catalog) = (BTreeMap::new(), Arc::new(Catalog::default()));
        loop {
            print_servers(&mut servers, runtime.servers(), output)?;
            let now = runtime.catalog();
            print_tools(&catalog, &now, output)?;
            catalog = now;
            changes.changed().await?;
        }
    };
    tokio::select! {
        outcome = print => outcome,
        never = runtime.watch_servers() => match never {},
        outcome = print_rejections(handle, output) => outcome,
        () = registry.run() => bail!("the registry stopped"),
    }
}

/// Prints when edited files are rejected, and when they are valid again.
async fn print_rejections(registry: Registry, output: &Output) -> anyhow::Result<u8> {
    let (mut states, mut before) = (registry.watch(), None);
    loop {
        states.changed().await?;
        let now = states.borrow_and_update().rejection.clone();
        if now == before {
            continue;
        }
        let problems = now.as_ref().map_or(&[][..], |problems| &problems.0);
        if output.json {
            output
                .json_line(&json!({ "event": "registry", "refused": now.is_some(), "problems": problems }))?;
        } else {
            for RegistryProblem { message, place, .. } in problems {
                let place =
                    place.as_ref().map(|place| format!(" ({})", printable(place))).unwrap_or_default();
                output.result(&format!("rejected: {}{place}\n", printable(message)));
            }
        }
        before = now;
    }
}

fn print_servers(
    before: &mut BTreeMap<String, (&'static str, Option<String>, usize)>,
    now: Vec<ServerStatus>,
    output: &Output,
) -> anyhow::Result<()> {
    let mut gone = Vec::new();
    before.retain(|name, _| {
        let there = now.iter().any(|status| status.name == *name);
        if !there {
            gone.push(name.clone());
        }
        there
    });
    for name in gone {
        if output.json {
            output.json_line(&json!({ "event": "server", "name": name, "state": "removed" }))?;
        } else {
            output.result(&format!("removed {BOLD}{name}{BOLD:#}\n"));
        }
    }
    for status in now {
        let state = (status.state, status.reason.clone(), status.connections);
        if before.insert(status.name.clone(), state.clone()) == Some(state) {
            continue;
        }
        if output.json {
            output.json_line(&json!({ "event": "server", "name": status.name, "state": status.state, "reason": status.reason, "tools": status.tools, "connections": status.connections }))?;
        } else {
            output.result(&app::status_line(&status));
        }
    }
    Ok(())
}

fn print_tools(before: &Catalog, now: &Catalog, output: &Output) -> anyhow::Result<()> {
    // A renamed tool is still the same tool.
    let key = |tool: &Arc<CatalogTool>| (tool.server.clone(), tool.original.clone());
    let old: BTreeMap<_, _> = before.tools().map(|tool| (key(tool), tool)).collect();
    let new: BTreeMap<_, _> = now.tools().map(|tool| (key(tool), tool)).collect();
    let gone = old.iter().filter(|(key, _)| !new.contains_key(key)).map(|(_, tool)| ("removed", *tool));
    let here = new.iter().filter_map(|(key, tool)| {
        let change = match (old.get(key), &tool.state) {
            (Some(old), state) if old.name == tool.name && old.hash == tool.hash && old.state == *state => {
                return None;
            }
            (_, ToolState::Quarantined { .. }) => "held back",
            (_, ToolState::Removed { .. }) => "removed",
            (None, ToolState::Ready) => "added",
            (Some(_), ToolState::Ready) => "changed",
        };
        Some((change, *tool))
    });
    for (change, tool) in gone.chain(here) {
        if output.json {
            let mut event = serde_json::to_value(tool.as_ref())?;
            event["event"] = json!("tool");
            event["change"] = json!(change);
            output.json_line(&event)?;
        } else {
            let (name, note) = (printable(&tool.name), tools::quarantine_note(tool));
            output.result(&format!("{change} {BOLD}{name}{BOLD:#}{note}\n"));
        }
    }
    Ok(())
}
