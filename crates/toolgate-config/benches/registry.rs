//! Measures acknowledged changes per second in a registry of 10,000 tools, with 64 clients.
//!
//! Run it with `cargo xtask bench registry`. Every change is validated as a configuration, written and synced, and the
//! runtime's catalog is swapped before it is acknowledged. `REGISTRY_FOLDER` selects the disk.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "the figures are what it is run for")]
#![expect(clippy::disallowed_methods, reason = "real time is what is measured")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde_json::{Map, Value as Json, json};
use tokio::task::JoinSet;
use toolgate_config::{Environment, load, load_with_overlay};
use toolgate_runtime::Runtime;
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_store::document::{EntryAction, EntryKind, EntryOp};
use toolgate_store::file::{FileStore, RegistryPaths};
use toolgate_store::registry::{CheckFn, CheckInput, CheckedRegistry, PublishFn, Registry, RegistryProblems};

const TOOLS: usize = 10_000;
const CLIENTS: usize = 64;
const CHANGES: usize = 60;
/// Required changes per second.
const TARGET_PER_SECOND: f64 = 500.0;

fn entry(n: usize, version: usize) -> Map<String, Json> {
    let entry = json!({
        "name": format!("tool_{n}"),
        "description": format!("Version {version} of a tool that does something useful with a record. Use it for records."),
        "version": "1.0.0",
        "input_schema": {
            "type": "object",
            "properties": { "id": { "type": "string" }, "limit": { "type": "integer", "minimum": 1 } },
            "required": ["id"],
        },
        "category": "query",
        "tags": ["records"],
    });
    entry.as_object().unwrap().clone()
}

fn main() {
    let folder = match std::env::var_os("REGISTRY_FOLDER") {
        Some(folder) => tempfile::tempdir_in(folder).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tools: Vec<_> = (0..TOOLS).map(|n| Json::Object(entry(n, 0))).collect();
    let text = serde_json::to_string_pretty(&json!({ "tools": tools })).unwrap();
    println!("{:<40} {:>9} bytes", "tools.json", text.len());
    fs_err::write(folder.path().join("tools.json"), text).unwrap();
    fs_err::write(folder.path().join("mcp.json"), "{\"servers\": {}}\n").unwrap();
    let yaml = "registries: { tools: tools.json, mcp: mcp.json }\n";
    fs_err::write(folder.path().join("toolgate.yaml"), yaml).unwrap();
    runtime.block_on(measure(folder.path()));
}

async fn measure(folder: &Path) {
    let environment = Environment::default();
    let config = load(folder, None, &environment).config.unwrap();
    let registries = config.registries.clone();
    let gate = Arc::new(Runtime::new(RuntimeSetup {
        read_document: toolgate_config::parse_document,
        own: config.tools,
        settings: config.tool_settings,
        servers: config.servers,
        limits: config.limits,
        ..RuntimeSetup::default()
    }));
    let (project, files) = (folder.to_owned(), registries.clone());
    let check: CheckFn = Arc::new(move |candidate: CheckInput<'_>| {
        let texts = [(&files.tools, &candidate.texts.tools), (&files.servers, &candidate.texts.servers)];
        let texts: BTreeMap<_, _> =
            texts.into_iter().filter_map(|(path, text)| Some((path.clone()?, text.clone()?))).collect();
        let config = load_with_overlay(&project, None, &environment, texts)
            .config
            .ok_or(RegistryProblems(Vec::new()))?;
        Ok(CheckedRegistry { tools: config.tools, servers: config.servers, ..CheckedRegistry::default() })
    });
    let used = Arc::clone(&gate);
    let publish: PublishFn = Arc::new(move |state| {
        let gate = Arc::clone(&used);
        async move { gate.replace(state.checked.tools.clone(), Vec::new(), Vec::new(), Vec::new()).await }
            .boxed()
    });
    let started = Instant::now();
    let store = FileStore::open(RegistryPaths { tools: registries.tools, servers: registries.servers })
        .await
        .unwrap();
    let (registry, actor) = Registry::open(store, check, publish).await.unwrap();
    println!("{:<40} {:>9.1?}", "opened and checked", started.elapsed());
    let mut running = JoinSet::new();
    running.spawn(actor.run());
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(work(registry.clone(), client));
    }
    let mut times: Vec<Duration> = clients.join_all().await.into_iter().flatten().collect();
    let rate = times.len() as f64 / started.elapsed().as_secs_f64();
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
    assert_eq!(gate.catalog().tools().count(), registry.state().checked.tools.len());
    let verdict = if rate >= TARGET_PER_SECOND { "met" } else { "missed" };
    println!(
        "{:<40} {rate:>9.0} acknowledged/s, the bar of {TARGET_PER_SECOND} is {verdict}",
        format!("{} changes, {CLIENTS} clients", times.len())
    );
    println!("{:<40} {:>9.1} ms p50, {:.1} ms p99", "from asking to acknowledged", at(50), at(99));
}

/// Changes entries of one client, one after another.
async fn work(registry: Registry, client: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for change in 0..CHANGES {
        let n = client + CLIENTS * fastrand::usize(..TOOLS / CLIENTS);
        let (name, act) = match change % 4 {
            0 => (format!("new_{client}_{change}"), {
                let mut entry = entry(0, change);
                entry.insert("name".to_owned(), json!(format!("new_{client}_{change}")));
                EntryAction::Add(entry)
            }),
            1 => (format!("new_{client}_{}", change - 1), EntryAction::Remove),
            2 => (format!("tool_{n}"), EntryAction::Replace(entry(n, change))),
            _ => (format!("tool_{n}"), EntryAction::Patch(entry(n, change))),
        };
        let started = Instant::now();
        registry.submit(EntryOp { kind: EntryKind::Tool, name, action: act }.into()).await.unwrap();
        times.push(started.elapsed());
    }
    times
}
