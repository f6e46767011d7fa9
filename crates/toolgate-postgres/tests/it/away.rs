//! The database crashes, stalls or cannot be reached.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use toolgate_postgres::{Database, DatabaseOptions};
use toolgate_store::callers::CallerStore;
use toolgate_store::cluster::{CallerDocument, DocumentStore, TaintStore};

use crate::callers::{author, caller, id};
use crate::postgres::TestServer;
use crate::replicas::{options, start, wait_until};

/// Acknowledged changes survive a crash of the server, and the replicas go on by themselves.
#[test]
fn nothing_acknowledged_is_lost_in_a_crash() {
    let mut server = TestServer::start();
    let url = server.create_database().url();
    let replicas = ["a", "b"].map(|name| Database::start(options(url.clone(), name)).unwrap());
    let stores = replicas.clone().map(|one| CallerDocument::new(Arc::new(one)));
    let mut acknowledged = Vec::new();
    for crash in 0..5 {
        let added = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (at, store) in stores.iter().enumerate() {
                let added = &added;
                scope.spawn(move || {
                    let store: &dyn CallerStore = store;
                    for number in 0..30 {
                        let id = id(&format!("c{crash}-{at}-{number}"));
                        match store.add_caller(caller(&id), author(1)) {
                            Ok(_) => added.lock().unwrap().push(id),
                            // The server is down; it is back soon.
                            Err(_) => std::thread::sleep(Duration::from_millis(5)),
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20 + 10 * crash));
            server.crash();
        });
        acknowledged.extend(added.into_inner().unwrap());
        let is_back = |one: &Database| one.status().away_for.is_none();
        wait_until(|| replicas.iter().all(is_back));
    }
    assert!(!acknowledged.is_empty());
    wait_until(|| {
        stores.iter().all(|store| {
            let known = store.read().unwrap().callers;
            acknowledged.iter().all(|id| known.iter().any(|caller| caller.id == *id))
        })
    });
}

/// A server that accepts statements and does not answer them counts as absent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_server_counts_as_absent() {
    let server = TestServer::start();
    let one = start(&server.create_database(), "a");
    one.insert("ann", None, Duration::from_secs(60)).await.unwrap();
    // The processes that serve the connections stop as well: they are children of the server.
    server.signal_all("-STOP");
    let started = tokio::time::Instant::now();
    assert!(one.contains("ann", None).await.is_err());
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    wait_until(|| one.status().away_for.is_some());
    let refused = tokio::time::Instant::now();
    assert!(one.insert("bob", None, Duration::from_secs(1)).await.is_err());
    assert!(refused.elapsed() < Duration::from_millis(200), "calls of an outage do not wait for it");
    wait_until(|| one.is_stale());
    server.signal_all("-CONT");
    wait_until(|| one.status().away_for.is_none());
    assert!(one.contains("ann", None).await.unwrap() && !DocumentStore::is_stale(&one));
}

/// A replica starts from its copy; credentials in it do not count before the database is seen.
#[test]
fn starts_from_the_last_copy() {
    let folder = TempDir::new().unwrap();
    let with_copy = |url: String, name: &str| DatabaseOptions {
        copy_folder: Some(folder.path().join("state")),
        ..options(url, name)
    };
    let server = TestServer::start();
    let url = server.create_database().url();
    let first = Database::start(with_copy(url.clone(), "a")).unwrap();
    let store: &dyn CallerStore = &CallerDocument::new(Arc::new(first));
    store.add_caller(caller(&id("ann")), author(1)).unwrap();
    drop(server);
    let away = Database::start(with_copy(url.clone(), "b")).unwrap();
    let store = CallerDocument::new(Arc::new(away.clone()));
    assert_eq!(store.read().unwrap().callers.len(), 1);
    assert!(away.status().away_for.is_some() && CallerStore::is_stale(&store));
    let store: &dyn CallerStore = &store;
    assert!(store.add_caller(caller(&id("bob")), author(1)).is_err(), "nothing changes without the database");
    assert!(Database::start(options(url, "c")).is_err(), "there is no copy");
}
