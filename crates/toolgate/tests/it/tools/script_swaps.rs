//! The file of a script tool is replaced while it is called: only the file that was checked runs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value as Json, json};

const KEY: &str = "the-key-of-the-owner";
const CALLS: usize = 100;
const MAX_CALLS: usize = 20_000;
/// Fewer, because Node.js starts slowly.
const NODE_CALLS: usize = 8;
const CLIENTS: usize = 4;

/// A running gateway. Dropping it stops it.
struct Gateway {
    process: Child,
    port: u16,
}

impl Gateway {
    #[expect(clippy::disallowed_methods, reason = "the tests start programs")]
    fn start(project: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_toolgate"))
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .current_dir(project)
            .env("TOOLGATE_API_KEY", KEY)
            .env("TOOLGATE_LOG", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let ready: Json = serde_json::from_str(&line).expect("one JSON document");
        let address = ready["address"].as_str().expect("an address");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Self { process, port }
    }

    /// Calls the tool, and returns the whole response.
    fn call(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let body = json!({ "arguments": {} }).to_string();
        let request = format!(
            "POST /v1/tools/swapped/call HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nX-API-Key: {KEY}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        response
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SHELL: &str = "#!/bin/sh\necho '\"OUTPUT\"'\n";
/// With this flag, Node.js reads the opened file. Otherwise it reads the path that the descriptor had.
const NODE: &str = "#!/usr/bin/env -S node --preserve-symlinks-main\nconsole.log('\"OUTPUT\"')\n";

fn write_script(path: &Path, script: &str, output: &str, mode: u32) {
    fs_err::write(path, script.replace("OUTPUT", output)).expect("a new file");
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our file");
}

#[test]
fn only_the_checked_file_runs() {
    swap(SHELL, CALLS);
}

#[test]
fn only_the_checked_file_runs_with_node() {
    swap(NODE, NODE_CALLS);
}

/// Replaces a script while clients call it at least this often each.
fn swap(script: &str, calls: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let project = folder.path().join("project");
    let tools = project.join("tools");
    fs_err::create_dir_all(&tools).expect("a new folder");
    let entry = json!({ "name": "swapped", "description": "Says something.", "script_path": "swapped",
        "input_schema": { "type": "object" }, "timeout": "50s" });
    fs_err::write(tools.join("tools.json"), json!({ "tools": [entry] }).to_string()).expect("a new file");
    let (good, foreign) = (folder.path().join("good"), folder.path().join("foreign"));
    write_script(&good, script, "the good one", 0o755);
    // Every user can write to it, so Toolgate refuses to run it. The link leads outside, which is refused too.
    write_script(&foreign, script, "the foreign one", 0o777);
    let target = tools.join("swapped");
    fs_err::hard_link(&good, &target).expect("a new link");
    let gateway = Gateway::start(&project);
    let (stop, ran, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let next = tools.join("next");
            while !stop.load(Ordering::Relaxed) {
                for round in 0..3 {
                    match round {
                        0 => fs_err::hard_link(&good, &next).expect("a new link"),
                        1 => fs_err::hard_link(&foreign, &next).expect("a new link"),
                        _ => symlink(&foreign, &next).expect("a new link"),
                    }
                    fs_err::rename(&next, &target).expect("our folder");
                    // Renaming a link to the same file does nothing.
                    let _ = fs_err::remove_file(&next);
                }
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    // Both outcomes must occur, however the threads are scheduled.
                    let both = || ran.load(Ordering::Relaxed) > 0 && refused.load(Ordering::Relaxed) > 0;
                    for call in 0..MAX_CALLS {
                        if call >= calls && both() {
                            break;
                        }
                        let response = gateway.call();
                        if response.contains("the foreign one") {
                            return Err(response);
                        }
                        let count = if response.contains("the good one") { &ran } else { &refused };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        let results: Vec<_> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(results, vec![Ok(()); CLIENTS]);
    });
    let (ran, refused) = (ran.into_inner(), refused.into_inner());
    assert!(ran > 0 && refused > 0, "{ran} calls ran, {refused} were refused");
}
