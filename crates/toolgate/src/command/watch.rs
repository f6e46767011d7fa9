//! `toolgate servers --watch`: stays, and tells what changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use serde_json::json;
use toolgate_runtime::runtime::ServerStatus;
use toolgate_runtime::{Catalog, CatalogTool, Runtime, ToolState};
use toolgate_store::registry::{Problem, Registry};

use crate::command::registry::{self, Files};
use crate::command::{live, tools};
use crate::output::{BOLD, Output};

/// Runs until it is dropped, which Ctrl-C does.
pub(crate) async fn run(runtime: &Arc<Runtime>, files: Files, output: &Output) -> anyhow::Result<u8> {
    let publish = registry::used_by(runtime, output);
    let (registry, actor) = files.open(Arc::clone(&publish)).await?;
    // What was written since the project was loaded.
    publish(registry.state()).await;
    let mut changes = runtime.changes();
    let tell = async {
        let (mut servers, mut catalog) = (BTreeMap::new(), Arc::new(Catalog::default()));
        loop {
            tell_servers(&mut servers, runtime.servers(), output)?;
            let now = runtime.catalog();
            tell_tools(&catalog, &now, output)?;
            catalog = now;
            changes.changed().await?;
        }
    };
    tokio::select! {
        told = tell => told,
        never = runtime.keep() => match never {},
        told = tell_refusals(registry, output) => told,
        () = actor.run() => bail!("nobody looks after the registry any more"),
    }
}

/// Tells when files were written that are not used, and when they are in order again.
async fn tell_refusals(registry: Registry, output: &Output) -> anyhow::Result<u8> {
    let (mut states, mut before) = (registry.watch(), None);
    loop {
        states.changed().await?;
        let now = states.borrow_and_update().refused.clone();
        if now == before {
            continue;
        }
        let problems = now.as_ref().map_or(&[][..], |problems| &problems.0);
        if output.json {
            output.line(&json!({ "event": "registry", "refused": now.is_some(), "problems": problems }))?;
        } else {
            for Problem { message, place, .. } in problems {
                let place = place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
                output.result(&format!("not taken over: {message}{place}\n"));
            }
        }
        before = now;
    }
}

fn tell_servers(
    before: &mut BTreeMap<String, (&'static str, Option<String>)>,
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
            output.line(&json!({ "event": "server", "name": name, "state": "removed" }))?;
        } else {
            output.result(&format!("removed {BOLD}{name}{BOLD:#}\n"));
        }
    }
    for status in now {
        let state = (status.state, status.reason.clone());
        if before.insert(status.name.clone(), state.clone()) == Some(state) {
            continue;
        }
        if output.json {
            output.line(&json!({ "event": "server", "name": status.name, "state": status.state, "reason": status.reason, "tools": status.tools }))?;
        } else {
            output.result(&live::line(&status));
        }
    }
    Ok(())
}

fn tell_tools(before: &Catalog, now: &Catalog, output: &Output) -> anyhow::Result<()> {
    // A tool is the same one under another name.
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
            output.line(&event)?;
        } else {
            output.result(&format!("{change} {BOLD}{}{BOLD:#}{}\n", tool.name, tools::held(tool)));
        }
    }
    Ok(())
}
