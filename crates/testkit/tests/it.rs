//! Smoke tests of the program. Its modes are covered by the tests of other crates; this integration test also makes
//! `cargo test --workspace` build the program.
#![expect(clippy::disallowed_methods, reason = "a test, which starts the program")]

#[path = "../built.rs"]
mod built;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

#[test]
fn finds_program_built_by_cargo() {
    assert_eq!(built::testkit().canonicalize().unwrap().to_str(), Some(env!("CARGO_BIN_EXE_testkit")));
}

#[test]
fn program_is_stale_if_a_source_is_newer() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, second: u64| {
        let path = folder.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs_err::File::create(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
        path
    };
    let program = at("program", 20);
    let sources = [folder.path().join("src"), at("Cargo.toml", 20)];
    at("src/deep/main.rs", 10);
    assert!(built::is_current(&program, &sources));
    at("src/deep/main.rs", 21);
    assert!(!built::is_current(&program, &sources));
    assert!(!built::is_current(&folder.path().join("missing"), &sources));
}

#[test]
fn good_server_answers() {
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-11-25" } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "echo", "arguments": { "a": 1 } } }),
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_testkit"))
        .arg("good")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in lines {
        writeln!(stdin, "{line}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let answers: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let [hello, echo] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(hello["result"]["serverInfo"]["name"], "testkit");
    assert_eq!(echo["result"]["content"][0]["text"], r#"{"a":1}"#);
}

#[test]
fn unknown_mode_prints_usage() {
    let output = Command::new(env!("CARGO_BIN_EXE_testkit")).arg("perfect").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: testkit MODE"));
}
