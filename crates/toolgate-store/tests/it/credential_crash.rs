//! Processes that are killed while they store credentials and replace the key.
//!
//! The test starts itself as the process to kill, each time on the files that the previous one left.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use toolgate_store::credentials::CredentialStore;

use crate::credentials::{id, open_files, token};

const FOLDER: &str = "TOOLGATE_CREDENTIALS_FOLDER";
const CALLERS: usize = 4;

#[test]
fn acknowledged_credentials_survive_kills() {
    let folder = TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut acknowledged = [0; CALLERS];
    let mut total = 0;
    for kill in 0..12 {
        for (caller, number) in run_and_kill(folder.path()) {
            acknowledged[caller] = number;
            total += 1;
        }
        let store = open_files(folder.path());
        for (caller, number) in acknowledged.iter_mut().enumerate() {
            let stored = runtime.block_on(store.get(&id(&format!("c{caller}"), "web"))).unwrap();
            let stored: u64 = stored.map_or(0, |credential| credential.secret.expose().parse().unwrap());
            // One more may have been stored, and not been acknowledged.
            assert!(
                (*number..=*number + 1).contains(&stored),
                "kill {kill}: caller {caller} has {stored}, acknowledged was {number}"
            );
            *number = stored;
        }
    }
    assert!(total > 12, "{total} changes are too few to say anything");
}

/// Returns the acknowledged numbers by caller.
#[expect(clippy::disallowed_methods, reason = "it is killed on purpose")]
fn run_and_kill(folder: &Path) -> Vec<(usize, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["credential_crash::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("ACK ") {
        assert!(output.read_line(&mut text).unwrap() > 0, "the child ended by itself: {text}");
    }
    let reader = std::thread::spawn(move || {
        let _ = output.read_to_string(&mut text);
        text
    });
    // A random moment: the kill must not wait for anything.
    std::thread::sleep(Duration::from_micros(fastrand::u64(0..120_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    let text = reader.join().unwrap();
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let parse = |line: &str| {
        let (caller, number) = line.split_once("ACK ")?.1.split_once(' ')?;
        Some((caller.parse().ok()?, number.parse().ok()?))
    };
    text[..whole].lines().filter_map(parse).collect()
}

/// The process that is killed.
#[test]
#[ignore = "run by the other test"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = open_files(&folder);
    for round in 0.. {
        let caller = round % CALLERS;
        let id = id(&format!("c{caller}"), "web");
        let stored = runtime.block_on(store.get(&id)).unwrap();
        let number: u64 = stored.map_or(0, |credential| credential.secret.expose().parse().unwrap());
        runtime.block_on(store.put(&id, token(&(number + 1).to_string()))).unwrap();
        let mut output = std::io::stdout().lock();
        writeln!(output, "\nACK {caller} {}", number + 1).unwrap();
        output.flush().unwrap();
        drop(output);
        store.rekey(None).unwrap();
    }
}
