//! The queue on real files: order, batches, rejections, and edits by other programs.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::task::JoinSet;
use toolgate_store::document::{EntryAction, EntryError, EntryKind, RegistryDocument};
use toolgate_store::file::FileStore;
use toolgate_store::registry::{
    ChangeError, PublishFn, Registry, RegistryChange, RegistryState, ToolAuthorizer,
};
use toolgate_store::store::Revision;

use crate::kit::{add, change, check, nowhere, op, paths, tool};

const PATIENCE: Duration = Duration::from_secs(60);

async fn open(folder: &Path, publish: PublishFn) -> (Registry, JoinSet<()>) {
    let store = FileStore::open(paths(folder)).await.unwrap();
    let (registry, actor) = Registry::open(store, check(), publish).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(actor.run());
    (registry, tasks)
}

fn on_disk(folder: &Path) -> Vec<String> {
    let text = fs_err::read_to_string(folder.join("tools.json")).unwrap();
    RegistryDocument::parse(EntryKind::Tool, &text).unwrap().names().map(|name| name.to_string()).collect()
}

async fn until(registry: &Registry, what: &str, holds: impl Fn(&RegistryState) -> bool) {
    let mut watch = registry.watch();
    let waited = tokio::time::timeout(PATIENCE, watch.wait_for(|state| holds(state))).await;
    assert!(waited.is_ok(), "{what}: {:?}", registry.state().rejection);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_at_once() {
    let folder = TempDir::new().unwrap();
    let batches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&batches);
    let count: PublishFn = Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {}.boxed()
    });
    let (registry, _tasks) = open(folder.path(), count).await;
    let first = registry.submit(change(add("first"))).await.unwrap();
    let stale = Revision::of_contents([None, Some(b"before")]);
    let distinct = (0..500).map(|n| change(add(&format!("distinct{n}"))));
    let same = (0..500).map(|_| change(add("same")));
    let update = |_| RegistryChange {
        expect: Some(stale),
        ..change(op(EntryKind::Tool, "first", EntryAction::Replace(tool(2))))
    };
    let all = distinct.chain(same).chain((0..100).map(update));
    let outcomes = join_all(all.map(|change| registry.submit(change))).await;
    let (distinct, rest) = outcomes.split_at(500);
    let (same, stale) = rest.split_at(500);
    assert!(distinct.iter().all(Result::is_ok));
    assert_eq!(same.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let exists =
        |outcome: &&Result<_, _>| matches!(outcome, Err(ChangeError::Entry(EntryError::Exists { .. })));
    assert_eq!(same.iter().filter(exists).count(), 499);
    assert!(
        stale.iter().all(
            |outcome| matches!(outcome, Err(ChangeError::Conflict { current }) if *current != first.rev)
        )
    );
    let state = registry.state();
    let listed: Vec<_> = state.checked.tools.iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(listed, on_disk(folder.path()), "the published state equals the file");
    assert_eq!(listed.len(), 502);
    let batches = batches.load(Ordering::Relaxed);
    assert!(batches <= 40, "{batches} batches");
}

#[tokio::test]
async fn change_is_in_use_before_it_is_acknowledged() {
    let folder = TempDir::new().unwrap();
    let used = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&used);
    let publish: PublishFn = Arc::new(move |state| {
        let seen = Arc::clone(&seen);
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            seen.lock().unwrap().push(state.rev);
        }
        .boxed()
    });
    let (registry, _tasks) = open(folder.path(), publish).await;
    let done = registry.submit(change(add("a"))).await.unwrap();
    assert_eq!(*used.lock().unwrap(), [done.rev]);
    assert_eq!(registry.state().rev, done.rev);
}

#[tokio::test]
async fn invalid_change_is_rejected_alone() {
    let folder = TempDir::new().unwrap();
    let (registry, _tasks) = open(folder.path(), nowhere()).await;
    let bad = |name: &str| {
        op(
            EntryKind::Tool,
            name,
            EntryAction::Add(crate::kit::map(serde_json::json!({ "description": "bad" }))),
        )
    };
    let changes = [
        add("a"),
        bad("b"),
        op(EntryKind::Tool, "a", EntryAction::Replace(tool(2))),
        bad("c"),
        add("d"),
        add("a"),
    ];
    let outcomes = join_all(changes.map(|op| registry.submit(change(op)))).await;
    let codes: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().map_or_else(ChangeError::code, |_| "done")).collect();
    assert_eq!(codes, ["done", "invalid", "done", "invalid", "done", "already_exists"]);
    assert_eq!(outcomes[1].as_ref().unwrap_err().to_string(), "rejected: tool `b` is bad");
    assert_eq!(on_disk(folder.path()), ["a", "d"]);
    assert!(fs_err::read_to_string(folder.path().join("tools.json")).unwrap().contains("version 2"));
}

#[tokio::test]
async fn only_the_first_change_with_a_revision_is_made() {
    let folder = TempDir::new().unwrap();
    let (registry, _tasks) = open(folder.path(), nowhere()).await;
    let rev = registry.state().rev;
    let with = |name: &str| RegistryChange { expect: Some(rev), ..change(add(name)) };
    let outcomes = join_all(["a", "b"].map(|name| registry.submit(with(name)))).await;
    assert!(outcomes[0].is_ok() && matches!(outcomes[1], Err(ChangeError::Conflict { .. })), "{outcomes:?}");
    let Err(ChangeError::Conflict { current }) = outcomes[1] else { unreachable!() };
    assert_eq!(current, registry.state().rev, "the error returns the current revision");
}

#[tokio::test]
async fn edits_by_other_programs_are_used() {
    let folder = TempDir::new().unwrap();
    let (registry, _tasks) = open(folder.path(), nowhere()).await;
    registry.submit(change(add("a"))).await.unwrap();
    let file = folder.path().join("tools.json");
    let text = "{\n  // by hand\n  \"tools\": [\n    {\"name\": \"hand\"}\n  ]\n}\n";
    fs_err::write(&file, text).unwrap();
    let is_hand =
        |state: &RegistryState| state.checked.tools.first().is_some_and(|tool| tool.name.as_str() == "hand");
    until(&registry, "an edit is noticed", is_hand).await;

    // An edit that has not been noticed yet: the change is applied on top of it.
    fs_err::write(&file, text.replace("hand", "other")).unwrap();
    let rev = registry.state().rev;
    registry.submit(change(add("b"))).await.unwrap();
    assert_eq!(on_disk(folder.path()), ["other", "b"]);
    assert!(fs_err::read_to_string(&file).unwrap().contains("// by other"));

    fs_err::write(&file, text).unwrap();
    let outcome = registry.submit(RegistryChange { expect: Some(rev), ..change(add("c")) }).await;
    assert!(outcome.is_ok(), "the file is at that revision again: {outcome:?}");
    fs_err::write(&file, text.replace("hand", "other")).unwrap();
    let outcome = registry.submit(RegistryChange { expect: Some(rev), ..change(add("d")) }).await;
    assert!(matches!(outcome, Err(ChangeError::Conflict { .. })), "{outcome:?}");
    assert_eq!(on_disk(folder.path()), ["other"]);
}

#[tokio::test]
async fn invalid_edits_are_neither_used_nor_overwritten() {
    let folder = TempDir::new().unwrap();
    let (registry, _tasks) = open(folder.path(), nowhere()).await;
    registry.submit(change(add("a"))).await.unwrap();
    let (rev, file) = (registry.state().rev, folder.path().join("tools.json"));
    for wrong in ["{\"tools\": [", "{\"tools\": [{\"name\": \"x\", \"description\": \"bad\"}]}", "[]"] {
        fs_err::write(&file, wrong).unwrap();
        until(&registry, "it is refused", |state| state.rejection.is_some()).await;
        assert_eq!(
            (registry.state().rev, registry.state().checked.tools.len()),
            (rev, 1),
            "the last valid state stays in use"
        );
        let outcome = registry.submit(change(add("b"))).await;
        assert!(matches!(outcome, Err(ChangeError::FilesRejected(_))), "{outcome:?}");
        assert_eq!(fs_err::read_to_string(&file).unwrap(), wrong, "the file is unchanged");
        fs_err::write(&file, "{\"tools\": [{\"name\": \"a\"}]}").unwrap();
        until(&registry, "it is mended", |state| state.rejection.is_none()).await;
        fs_err::remove_file(&file).unwrap();
        until(&registry, "it is gone", |state| state.checked.tools.is_empty()).await;
        registry.submit(change(add("a"))).await.unwrap();
    }
}

#[tokio::test]
async fn removes_temporary_files_and_keeps_symlinks() {
    let folder = TempDir::new().unwrap();
    let real = folder.path().join("elsewhere.json");
    fs_err::write(&real, "{\"tools\": []}").unwrap();
    fs_err::os::unix::fs::symlink(&real, folder.path().join("tools.json")).unwrap();
    let left = folder.path().join(".elsewhere.json.00.toolgate-tmp");
    fs_err::write(&left, "{\"too").unwrap();
    let others = folder.path().join(".other.json.00.toolgate-tmp");
    fs_err::write(&others, "").unwrap();
    let (registry, _tasks) = open(folder.path(), nowhere()).await;
    assert!(!left.exists() && others.exists());
    registry.submit(change(add("a"))).await.unwrap();
    assert!(folder.path().join("tools.json").is_symlink());
    assert_eq!(on_disk(folder.path()), ["a"]);
}

#[tokio::test]
async fn keeps_file_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mcp.json");
    fs_err::write(&file, "{}").unwrap();
    fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let (registry, _tasks) = open(folder.path(), nowhere()).await;
    registry.submit(change(op(EntryKind::Server, "a", EntryAction::Add(tool(1))))).await.unwrap();
    assert_eq!(fs_err::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

/// Permission checks see each change on top of the ones before it, also within one batch.
#[tokio::test]
async fn changes_are_authorized_by_what_they_change() {
    let folder = TempDir::new().unwrap();
    let (registry, _tasks) = open(folder.path(), nowhere()).await;
    registry.submit(change(add("a"))).await.unwrap();
    // Allows every change but one of the description.
    let same = ToolAuthorizer::new(|change| {
        let changed =
            change.before.zip(change.after).is_some_and(|(one, two)| one.description != two.description);
        if changed { vec!["tools:describe".parse().unwrap()] } else { Vec::new() }
    });
    let patch = |text: &str| RegistryChange {
        authorize: Some(same.clone()),
        ..change(op(
            EntryKind::Tool,
            "a",
            EntryAction::Patch(serde_json::json!({ "description": text }).as_object().unwrap().clone()),
        ))
    };
    let changes = [
        patch("version 1"),
        change(op(EntryKind::Tool, "a", EntryAction::Replace(tool(2)))),
        patch("version 1"),
        patch("version 2"),
        change(add("b")),
    ];
    let outcomes = join_all(changes.map(|change| registry.submit(change))).await;
    let made: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(made, [true, true, false, true, true], "{outcomes:?}");
    assert!(
        matches!(&outcomes[2], Err(ChangeError::Unauthorized { missing }) if missing[0].as_str() == "tools:describe")
    );
    let state = registry.state();
    assert!(state.checked.tools[0].description.contains("version 2"), "{state:?}");
    assert_eq!(on_disk(folder.path()), ["a", "b"]);
}
