//! Processes that are killed after each step of a change of the credential store: each folder, file, write, sync, rename
//! and removal.
//!
//! The test starts itself as the process to kill. That process counts the steps that the state folder reports, and kills
//! itself after a given one. The last run of each change completes, so every step of it was tested.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use toolgate_state::STEP_TARGET;
use toolgate_store::credentials::{CredentialError, CredentialStore, FileCredentials, KeySource, StoreKey};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::credentials::{id, open_files, token};

const FOLDER: &str = "TOOLGATE_STEPS_FOLDER";
const CHANGE: &str = "TOOLGATE_STEPS_CHANGE";
const STEP: &str = "TOOLGATE_STEPS_STEP";
/// More steps than any change has.
const MAX_STEPS: usize = 100;
const SIGKILL: i32 = 9;

/// Credentials that exist before the change, and one that the change stores, replaces or removes.
const OTHERS: [&str; 2] = ["bob", "eve"];
const CHANGED: &str = "ann";

/// Kills a process after each step of a change. Returns the number of steps.
fn survives(change: &str, prepare: impl Fn(&Path), check: impl Fn(&Path, bool)) -> usize {
    for step in 1..MAX_STEPS {
        let folder = TempDir::new().unwrap();
        prepare(folder.path());
        let was_killed = run(folder.path(), change, step);
        check(folder.path(), was_killed);
        // The files that the killed process left do not prevent the change.
        assert!(!run(folder.path(), change, usize::MAX), "{change}, step {step}: not completed");
        check(folder.path(), false);
        if !was_killed {
            return step - 1;
        }
    }
    panic!("`{change}` has more than {MAX_STEPS} steps");
}

/// Runs a change in another process; returns true if it was killed.
#[expect(clippy::disallowed_methods, reason = "it kills itself")]
fn run(folder: &Path, change: &str, step: usize) -> bool {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["credential_steps::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(CHANGE, change)
        .env(STEP, step.to_string())
        .output()
        .unwrap();
    let was_killed = run.status.signal() == Some(SIGKILL);
    assert!(was_killed || run.status.success(), "{change}, step {step}: {run:?}");
    was_killed
}

fn put(store: &FileCredentials, caller: &str, secret: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.put(&id(caller, "web"), token(secret))).unwrap();
}

fn secret_of(store: &FileCredentials, caller: &str) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let found = runtime.block_on(store.get(&id(caller, "web"))).unwrap();
    found.map(|credential| credential.secret.expose().to_owned())
}

fn store_others(folder: &Path) {
    let store = open_files(folder);
    OTHERS.iter().for_each(|caller| put(&store, caller, caller));
}

fn store_all(folder: &Path) {
    store_others(folder);
    put(&open_files(folder), CHANGED, "old");
}

/// Checks that the store opens, that the other credentials are there, and that the changed one is as expected.
fn check(store: &FileCredentials, others: &[&str], possible: &[Option<&str>]) {
    for caller in others {
        assert_eq!(secret_of(store, caller).as_deref(), Some(*caller));
    }
    let found = secret_of(store, CHANGED);
    assert!(possible.contains(&found.as_deref()), "{found:?} is not one of {possible:?}");
}

#[test]
fn the_first_credential() {
    let steps = survives(
        "put",
        |_| {},
        |folder, was_killed| {
            let possible = if was_killed { &[None, Some("new")][..] } else { &[Some("new")] };
            check(&open_files(folder), &[], possible);
        },
    );
    assert!(steps > 12, "{steps} steps: the key, the ring and the credential are missing");
}

#[test]
fn a_replaced_credential() {
    let steps = survives("put", store_all, |folder, was_killed| {
        let possible = if was_killed { &[Some("old"), Some("new")][..] } else { &[Some("new")] };
        check(&open_files(folder), &OTHERS, possible);
    });
    assert_eq!(steps, 5, "create, write, sync, rename, sync the folder");
}

#[test]
fn a_removed_credential() {
    let steps = survives("remove", store_all, |folder, was_killed| {
        let possible = if was_killed { &[Some("old"), None][..] } else { &[None] };
        check(&open_files(folder), &OTHERS, possible);
    });
    assert_eq!(steps, 2, "remove, sync the folder");
}

#[test]
fn a_new_key_in_the_place_of_the_old_one() {
    let steps = survives("rekey", store_all, |folder, _| {
        check(&open_files(folder), &OTHERS, &[Some("old")]);
    });
    // Two rings, the key, and three credentials.
    assert_eq!(steps, 6 * 5);
}

/// Keys of the operator, in hexadecimal.
const OLD_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const NEW_KEY: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

fn key(text: &str) -> StoreKey {
    StoreKey::parse(text, "a key of the test").unwrap()
}

fn open_with(folder: &Path, text: &str) -> Result<FileCredentials, CredentialError> {
    FileCredentials::open(folder.join(".toolgate/credentials"), KeySource::Given(key(text)))
}

#[test]
fn a_new_key_from_elsewhere() {
    let prepare = |folder: &Path| {
        let store = open_with(folder, OLD_KEY).unwrap();
        OTHERS.iter().for_each(|caller| put(&store, caller, caller));
        put(&store, CHANGED, "old");
    };
    let steps = survives("rekey elsewhere", prepare, |folder, was_killed| {
        let opened: Vec<_> =
            [OLD_KEY, NEW_KEY].iter().filter_map(|text| open_with(folder, text).ok()).collect();
        assert!(!opened.is_empty(), "neither key opens the store");
        assert!(was_killed || open_with(folder, OLD_KEY).is_err(), "the old key still opens the store");
        opened.iter().for_each(|store| check(store, &OTHERS, &[Some("old")]));
    });
    assert_eq!(steps, 5 * 5, "two rings and three credentials");
}

/// Counts the steps of the state folder, and kills the process after one.
struct KillAfter {
    left: AtomicUsize,
}

impl Subscriber for KillAfter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == STEP_TARGET && *metadata.level() == Level::TRACE
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            unreachable!("SIGKILL ends the process");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The process that is killed.
#[test]
#[ignore = "run by the other tests"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let step: usize = std::env::var(STEP).unwrap().parse().unwrap();
    tracing::subscriber::set_global_default(KillAfter { left: AtomicUsize::new(step) }).unwrap();
    match std::env::var(CHANGE).unwrap().as_str() {
        "put" => put(&open_files(&folder), CHANGED, "new"),
        "remove" => {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(open_files(&folder).remove(&id(CHANGED, "web"))).unwrap();
        }
        "rekey" => assert_eq!(open_files(&folder).rekey(None).unwrap(), OTHERS.len() + 1),
        "rekey elsewhere" => {
            let store = open_with(&folder, OLD_KEY).or_else(|_| open_with(&folder, NEW_KEY)).unwrap();
            assert_eq!(store.rekey(Some(key(NEW_KEY))).unwrap(), OTHERS.len() + 1);
        }
        change => panic!("no such change: {change}"),
    }
}
