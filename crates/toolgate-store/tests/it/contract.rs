//! The contract of every registry store. To test one, implement [`SharedPlace`] and name it in `store_contract`.

use std::future::Future;
use std::time::Duration;

use toolgate_store::document::{EntryAction, EntryKind};
use toolgate_store::store::{CommitError, RegistryDocuments, RegistrySnapshot, Revision, Store};

use crate::kit::{add, map, op, tool};

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// State shared by several stores, as by several processes.
pub(crate) trait SharedPlace {
    type Store: Store;

    fn new() -> Self;
    fn open(&self) -> impl Future<Output = Self::Store>;
}

fn documents(snapshot: &RegistrySnapshot) -> &RegistryDocuments {
    snapshot.documents.as_ref().expect("the entries can be read")
}

fn names(snapshot: &RegistrySnapshot, kind: EntryKind) -> Vec<String> {
    documents(snapshot).get(kind).expect("there is a file").names().map(|name| name.to_string()).collect()
}

pub(crate) async fn committed_changes_are_visible(place: impl SharedPlace) {
    let store = place.open().await;
    let before = store.snapshot().await.unwrap();
    let server = op(EntryKind::Server, "files", EntryAction::Add(map(serde_json::json!({ "command": "x" }))));
    let done = store.commit(Some(before.rev), vec![add("b"), add("a"), server]).await.unwrap();
    assert_ne!(done.rev, before.rev);
    for snapshot in [store.snapshot().await.unwrap(), place.open().await.snapshot().await.unwrap()] {
        assert_eq!(snapshot.rev, done.rev);
        assert_eq!(snapshot.texts, done.texts);
        assert_eq!(names(&snapshot, EntryKind::Tool), ["b", "a"], "in their order");
        assert_eq!(names(&snapshot, EntryKind::Server), ["files"]);
    }
}

pub(crate) async fn every_action_is_applied(place: impl SharedPlace) {
    let store = place.open().await;
    store.commit(None, vec![add("a"), add("b")]).await.unwrap();
    let patch =
        EntryAction::Patch(map(serde_json::json!({ "version": "2", "input_schema": { "type": null } })));
    let ops = vec![
        op(EntryKind::Tool, "a", EntryAction::Replace(tool(7))),
        op(EntryKind::Tool, "b", patch),
        add("c"),
        op(EntryKind::Tool, "c", EntryAction::Remove),
    ];
    let snapshot = store.commit(None, ops).await.unwrap();
    let tools = documents(&snapshot).tools.as_ref().unwrap();
    assert!(tools.entry("a").unwrap().contains("version 7"));
    let patched: serde_json::Value = serde_json::from_str(tools.entry("b").unwrap()).unwrap();
    assert_eq!((&patched["version"], &patched["input_schema"]), (&"2".into(), &serde_json::json!({})));
    assert_eq!(names(&snapshot, EntryKind::Tool), ["a", "b"]);
}

pub(crate) async fn commit_is_all_or_nothing(place: impl SharedPlace) {
    let store = place.open().await;
    let before = store.commit(None, vec![add("a")]).await.unwrap();
    for bad in [
        add("a"),
        op(EntryKind::Tool, "z", EntryAction::Remove),
        op(EntryKind::Server, "z", EntryAction::Replace(tool(1))),
    ] {
        let outcome = store.commit(None, vec![add("b"), bad]).await;
        assert!(matches!(outcome, Err(CommitError::Entry(_))), "{outcome:?}");
        assert_eq!(store.snapshot().await.unwrap().rev, before.rev);
        assert_eq!(place.open().await.snapshot().await.unwrap().rev, before.rev);
    }
}

pub(crate) async fn stale_revision_is_rejected(place: impl SharedPlace) {
    let (one, two) = (place.open().await, place.open().await);
    let old = one.snapshot().await.unwrap().rev;
    let new = one.commit(Some(old), vec![add("a")]).await.unwrap().rev;
    let outcome = two.commit(Some(old), vec![add("b")]).await;
    assert!(matches!(outcome, Err(CommitError::Conflict { current }) if current == new), "{outcome:?}");
    // Without a precondition it is applied on top of the other store's change.
    let both = two.commit(None, vec![add("b")]).await.unwrap();
    assert_eq!(names(&both, EntryKind::Tool), ["a", "b"]);
}

pub(crate) async fn one_of_concurrent_commits_wins(place: impl SharedPlace) {
    let stores = futures_util::future::join_all((0..6).map(|_| place.open())).await;
    for round in 0..5 {
        let rev = stores[0].snapshot().await.unwrap().rev;
        let names: Vec<String> = (0..stores.len()).map(|at| format!("t{round}_{at}")).collect();
        let commits = stores.iter().zip(&names).map(|(store, name)| store.commit(Some(rev), vec![add(name)]));
        let outcomes = futures_util::future::join_all(commits).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    }
    let last = place.open().await.snapshot().await.unwrap();
    assert_eq!(names(&last, EntryKind::Tool).len(), 5);
}

pub(crate) async fn revision_identifies_the_contents(place: impl SharedPlace) {
    let store = place.open().await;
    let empty = store.commit(None, vec![add("x")]).await.unwrap().rev;
    let added = store.commit(None, vec![add("a")]).await.unwrap().rev;
    let removed = store.commit(None, vec![op(EntryKind::Tool, "a", EntryAction::Remove)]).await.unwrap().rev;
    assert_eq!((empty, removed), (removed, empty), "the same state has the same revision");
    assert_ne!(added, removed);
    assert_eq!(added.to_string().parse::<Revision>(), Ok(added));
    assert_eq!(
        store.commit(Some(removed), Vec::new()).await.unwrap().rev,
        removed,
        "nothing changes nothing"
    );
}

pub(crate) async fn watchers_see_the_last_change(place: impl SharedPlace) {
    let (one, two) = (place.open().await, place.open().await);
    let mut watch = two.watch();
    let mut last = one.snapshot().await.unwrap().rev;
    for name in ["a", "b", "c"] {
        last = one.commit(None, vec![add(name)]).await.unwrap().rev;
    }
    let told = tokio::time::timeout(PATIENCE, watch.wait_for(|rev| *rev == last)).await;
    assert!(told.is_ok(), "no notification");
}

macro_rules! store_contract {
    ($name:ident, $place:ty) => {
        store_contract!($name, $place,
            committed_changes_are_visible every_action_is_applied commit_is_all_or_nothing stale_revision_is_rejected
            one_of_concurrent_commits_wins revision_identifies_the_contents watchers_see_the_last_change);
    };
    ($name:ident, $place:ty, $($rule:ident)*) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $rule() {
                    $crate::contract::$rule(<$place as $crate::contract::SharedPlace>::new()).await;
                }
            )*
        }
    };
}

pub(crate) use store_contract;
