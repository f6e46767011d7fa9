//! Replicas: names, announcements, migrations, and requests to drain.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use toolgate_postgres::{Database, DatabaseError, DatabaseOptions, ReplicaIdentity};

use crate::postgres::{TestDatabase, shared_server};

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn unique(name: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn options(url: String, name: &str) -> DatabaseOptions {
    DatabaseOptions {
        url,
        authorities: None,
        identity: ReplicaIdentity {
            name: name.to_owned(),
            run: unique("run"),
            version: "1".to_owned(),
            config: "c".to_owned(),
            policy: "p".to_owned(),
            registry: "r".to_owned(),
        },
        stale_after: Duration::from_secs(1),
        copy_folder: None,
        observes: false,
    }
}

/// Starts a replica.
pub(crate) fn start(database: &TestDatabase<'_>, name: &str) -> Database {
    Database::start(options(database.url(), name)).unwrap()
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_methods, reason = "what is waited for is another process")]
pub(crate) fn wait_until(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "timed out");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn live(database: &Database) -> Vec<String> {
    let replicas = database.status().replicas;
    replicas.into_iter().filter(|one| one.live).map(|one| one.name).collect()
}

#[test]
fn replicas_that_start_at_once_create_the_tables_once() {
    let database = shared_server().create_database();
    let replicas: Vec<Database> = std::thread::scope(|scope| {
        let started: Vec<_> =
            ["a", "b", "c", "d"].map(|name| scope.spawn(|| start(&database, name))).into_iter().collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    wait_until(|| replicas.iter().all(|one| live(one) == ["a", "b", "c", "d"]));
    assert_eq!(database.sql("SELECT version FROM toolgate.schema_version"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_leaves_frees_its_name() {
    let database = shared_server().create_database();
    let (one, two) = (start(&database, "a"), start(&database, "b"));
    wait_until(|| live(&two) == ["a", "b"]);
    let again = Database::start(options(database.url(), "a"));
    assert!(matches!(again, Err(DatabaseError::NameTaken(name)) if name == "a"));
    one.leave().await;
    wait_until(|| live(&two) == ["b"]);
    start(&database, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_drain_reaches_its_replica_once() {
    let database = shared_server().create_database();
    let (one, two) = (start(&database, "a"), start(&database, "b"));
    assert!(!one.request_drain("gone").await.unwrap());
    assert!(one.request_drain("b").await.unwrap());
    wait_until(|| *two.drain_requests().borrow());
    assert!(!*one.drain_requests().borrow());
    two.leave().await;
    let restarted = start(&database, "b");
    assert!(!*restarted.drain_requests().borrow(), "the request was for the process before");
}

#[test]
fn tables_of_a_newer_version_are_left_alone() {
    let database = shared_server().create_database();
    drop(start(&database, "a"));
    database.sql("UPDATE toolgate.schema_version SET version = 7, oldest = 1");
    drop(start(&database, "b"));
    database.sql("UPDATE toolgate.schema_version SET oldest = 5");
    let refused = Database::start(options(database.url(), "c"));
    assert!(matches!(refused, Err(DatabaseError::Newer { version: 7, own: 1 })));
}

#[test]
fn wrong_connection_strings_are_explained() {
    for (url, message) in [
        ("nonsense", "not a connection string"),
        ("postgres:///x", "names no host"),
        ("postgres://%2Fnowhere/x", "unavailable"),
    ] {
        let mut options = options(url.to_owned(), "a");
        options.stale_after = Duration::ZERO;
        let error = Database::start(options).unwrap_err().to_string();
        assert!(error.contains(message), "{url}: {error}");
    }
}
