//! Cost of a change in a large registry. Prints timings; the figures are in `docs/dev/decisions/json-text-editor.md`.

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use toolgate_store::document::{EntryAction, EntryKind, RegistryDocument};
use toolgate_store::file::FileStore;
use toolgate_store::registry::Registry;

use crate::kit::{add, change, check, map, nowhere, op, paths};

const ENTRIES: usize = 10_000;
const ROUNDS: usize = 15;

fn large_file() -> String {
    let entry = |number: usize| {
        format!(
            r#"    {{
      "name": "tool-{number}", // number {number}
      "description": "Tool number {number}.",
      "command": ["echo", "{number}"],
      "input_schema": {{ "type": "object", "properties": {{ "text": {{ "type": "string" }} }} }}
    }}"#
        )
    };
    let entries: Vec<_> = (0..ENTRIES).map(entry).collect();
    format!("{{\n  \"tools\": [\n{}\n  ]\n}}\n", entries.join(",\n"))
}

/// Returns the median of several runs.
fn median(mut run: impl FnMut(usize) -> Duration) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS).map(&mut run).collect();
    times.sort();
    times[ROUNDS / 2]
}

#[tokio::test]
#[ignore = "a measurement; run it alone with `--nocapture`, in `--profile profiling`"]
async fn change_among_ten_thousand_entries() {
    let text = large_file();
    let parse = median(|_| {
        let start = Instant::now();
        RegistryDocument::parse(EntryKind::Tool, &text).unwrap();
        start.elapsed()
    });
    let document = RegistryDocument::parse(EntryKind::Tool, &text).unwrap();
    let edit = median(|round| {
        let start = Instant::now();
        let mut document = document.clone();
        let patch = EntryAction::Patch(map(json!({ "version": round.to_string() })));
        document.apply("tool-5000", &patch).unwrap();
        assert!(document.text().len() > text.len());
        start.elapsed()
    });
    let folder = TempDir::new().unwrap();
    fs_err::write(folder.path().join("tools.json"), &text).unwrap();
    let store = FileStore::open(paths(folder.path())).await.unwrap();
    let (registry, actor) = Registry::open(store, check(), nowhere()).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(actor.run());
    let mut submits = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("new-{round}");
        let start = Instant::now();
        registry.submit(change(add(&name))).await.unwrap();
        registry.submit(change(op(EntryKind::Tool, &name, EntryAction::Remove))).await.unwrap();
        submits.push(start.elapsed() / 2);
    }
    submits.sort();
    let submit = submits[ROUNDS / 2];
    eprintln!("{} bytes: parse {parse:.1?}, edit {edit:.1?}, plan and commit {submit:.1?}", text.len());
}
