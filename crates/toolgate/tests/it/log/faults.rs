//! The execution log after SIGKILL, on a full disk, and with failing system calls.
//!
//! The full disk is a real file system of one megabyte, and `strace` injects the errors. On machines that do not allow
//! it, these tests print so.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::log::audit::records;
use crate::support::gateway::{Gateway, OWNER, request, wait_until};
use crate::support::program::{Program, report_skipped};
use crate::support::test_server::testkit;

/// Creates a project with a server that counts its calls; `read` is idempotent, `write` is not, and the server calls
/// `look` read-only.
fn project(audit: &str) -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off");
    let file = program.path("tools").display().to_string();
    let server = json!({ "command": testkit(), "args": ["scripted", file] });
    program.write("mcp.json", json!({ "servers": { "s": server } }).to_string());
    let tool = |name: &str| json!({ "name": name, "description": name, "inputSchema": { "type": "object" } });
    let mut look = tool("look");
    look["annotations"] = json!({ "readOnlyHint": true });
    program.write("tools", json!({ "tools": [tool("read"), tool("write"), look] }).to_string());
    let settings = "toolbox: { tools: [{ name: read, idempotent: true }] }";
    program.write("toolgate.yaml", format!("registries: {{ mcp: mcp.json }}\n{settings}\naudit: {audit}\n"));
    program
}

/// Returns the number of calls the server got.
fn server_calls(program: &Program) -> usize {
    let log = fs_err::read_to_string(program.path("tools.log")).unwrap_or_default();
    log.lines().filter(|line| *line == "tools/call").count()
}

fn count(program: &Program, kind: &str) -> usize {
    records(program, ".toolgate/log").iter().filter(|record| record["kind"] == kind).count()
}

/// Fails unless the log verifies and is writable.
fn assert_whole(program: &Program) {
    let run = program.run("tools call write");
    assert_eq!(run.code, 0, "{run}");
    let run = program.run("log verify");
    assert_eq!(run.code, 0, "{run}");
    // Every call the server got is in the log.
    assert!(count(program, "begin") >= server_calls(program));
    assert_recorded_once(program);
}

/// Fails if a call has more than one begin or more than one end, or if an end has no begin.
fn assert_recorded_once(program: &Program) {
    let mut calls: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for record in records(program, ".toolgate/log") {
        let Some(id) = record["call"].as_str() else { continue };
        let (begins, ends) = calls.entry(id.to_owned()).or_default();
        *begins += usize::from(record["kind"] == "begin");
        *ends += usize::from(record["kind"] == "end");
    }
    assert!(calls.values().all(|(begins, ends)| *begins == 1 && *ends <= 1), "{calls:?}");
}

#[test]
fn killed_at_any_moment() {
    kills(15);
}

#[test]
#[ignore = "takes some minutes"]
fn two_hundred_kills_of_the_executable() {
    kills(200);
}

fn kills(times: usize) {
    let program = project("{ reserve: none }");
    // The kills are spread over the measured duration of a call.
    let took = program.run("tools call write").took;
    let mut answered = 1;
    for kill in 0..times {
        let tool = if kill % 2 == 0 { "write" } else { "read" };
        let mut command = program.command(&["tools", "call", tool]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        // The kill must hit at an arbitrary moment, so nothing is waited for.
        std::thread::sleep(took.mul_f64(f64::from(fastrand::u32(..130)) / 100.0));
        let _ = child.kill();
        answered += usize::from(child.wait().expect("it ends").success());
        let whole = program.run("log verify --json").json();
        let faults = whole["faults"].as_array().expect("a list");
        assert!(faults.len() <= 1, "one line may be torn: {faults:?}");
        let (begins, ends) = (count_complete(&program, "begin"), count_complete(&program, "end"));
        assert!(begins >= server_calls(&program) && ends >= answered, "{begins} {ends} {answered}");
    }
    assert_whole(&program);
}

/// Counts records, ignoring a torn line.
fn count_complete(program: &Program, kind: &str) -> usize {
    let files = program.files();
    let lines = files.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "jsonl"));
    let text: String = lines.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
    let kind = format!("\"kind\":\"{kind}\"");
    text.lines().filter(|line| line.ends_with('}') && line.contains(&kind)).count()
}

/// Every system call of the log fails once: the first one, the second one, and so on.
#[test]
fn every_system_call_of_the_log_fails_once() {
    let cases: [(&str, &[&str], u32); 3] = [
        ("pwrite64", &["EIO", "ENOSPC"], 4),
        ("fdatasync", &["EIO"], 4),
        ("openat", &["EMFILE", "ENOSPC"], 5),
    ];
    for (call, errors, most) in cases {
        for error in errors {
            for nth in 1..=most {
                if !fails_once(call, error, nth) {
                    return;
                }
            }
        }
    }
}

fn fails_once(call: &str, error: &str, nth: u32) -> bool {
    let program = project("{ reserve: none }");
    assert_eq!(program.run("tools call write").code, 0);
    let (folder, trace) = (program.path(".toolgate/log/1"), program.path("trace"));
    let files: Vec<_> = fs_err::read_dir(&folder)
        .expect("the log exists")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    let mut wrapper: Vec<String> = ["strace", "-f", "-o"].map(str::to_owned).to_vec();
    wrapper.push(trace.display().to_string());
    for path in files.iter().chain([&folder]) {
        wrapper.extend(["-P".to_owned(), path.display().to_string()]);
    }
    let inject = format!("inject={call}:error={error}:when={nth}");
    wrapper.extend(["-e".to_owned(), format!("trace={call}"), "-e".to_owned(), inject]);
    let works = ["strace", "-f", "-o", "/dev/null", "true"];
    let Some(mut command) = program.command_under(&wrapper, &works, &["tools", "call", "write", "--json"])
    else {
        return false;
    };
    let before = server_calls(&program);
    let output = command.output().expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = fs_err::read_to_string(&trace).expect("strace writes it").contains("INJECTED");
    let which = format!("{call} {error} {nth}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
    // Refused calls were not made, and calls that were made are answered.
    assert_eq!(server_calls(&program) - before, usize::from(output.status.success()), "{which}");
    assert!(failed || output.status.success(), "{which}");
    assert_whole(&program);
    true
}

/// On a full disk, calls with effects are refused, idempotent ones continue if configured, and everything works again
/// with free space.
#[test]
fn a_full_disk() {
    for on_full in ["deny", "allow"] {
        full(on_full);
    }
}

fn full(on_full: &str) {
    let program = project(&format!("{{ on_full: {on_full} }}"));
    assert_eq!(program.run("tools list").code, 0, "the tools are known");
    let log = program.path(".toolgate/log");
    fs_err::create_dir_all(&log).expect("the script is written");
    let log = log.display().to_string();
    // The script runs inside the mount namespace of the disk. Calls are counted by the files they leave outside.
    let script = r#"
        mount -t tmpfs -o size=1m tmpfs "$LOG" || exit 99
        "$0" tools call write || exit 98
        dd if=/dev/zero of="$LOG/filler" bs=4k 2>/dev/null
        # What is left of the last page takes a call or two.
        n=0; while [ $n -lt 50 ] && "$0" tools call write; do n=$((n + 1)); done; echo "fitted $n"
        for n in 1 2 3; do "$0" tools call write --json; echo "code $?"; done
        "$0" tools call read --json; echo "read $?"
        "$0" log verify; echo "verify $?"
        rm "$LOG/filler"
        "$0" tools call write; echo "after $?"
        "$0" tools call read; echo "after $?"
        "$0" log verify; echo "verify $?"
    "#;
    let wrapper: Vec<String> = ["unshare", "-m", "sh", "-c", script].map(str::to_owned).to_vec();
    let works = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", &log];
    let Some(mut command) = program.command_under(&wrapper, &works, &[]) else { return };
    let output = command.env("LOG", &log).output().expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.matches("code 1").count(), 3, "{all}");
    assert_eq!(
        stdout.matches(r#""code": "storage_unavailable""#).count(),
        if on_full == "deny" { 4 } else { 3 },
        "{all}"
    );
    assert!(stdout.contains(if on_full == "deny" { "read 1" } else { "read 0" }), "{all}");
    assert_eq!(stdout.matches("after 0").count(), 2, "{all}");
    assert_eq!(stdout.matches("verify 0").count(), 2, "{all}");
    let fitted =
        stdout.lines().find_map(|line| line.strip_prefix("fitted ")).and_then(|n| n.parse::<usize>().ok());
    let fitted = fitted.expect("a number");
    assert!(fitted < 50, "{all}");
    // One before, two after, and the idempotent one if allowed.
    assert_eq!(server_calls(&program), fitted + if on_full == "deny" { 3 } else { 4 }, "{all}");
}

/// A program that injects faults into a running process until it is dropped.
struct FaultInjector(Child);

impl FaultInjector {
    /// Injects a fault, such as `error=EIO`, into a system call of a process. Returns `None` if `strace` may not attach
    /// to it here.
    #[expect(clippy::disallowed_methods, reason = "the process between the test and the executable")]
    fn attach(process: u32, call: &str, fault: &str) -> Option<Self> {
        let arguments = ["-f", "-p", &process.to_string(), "-o", "/dev/null"];
        let inject = format!("inject={call}:{fault}");
        let mut command = Command::new("strace");
        command.args(arguments).args(["-e", &format!("trace={call}"), "-e", &inject]).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                report_skipped(&format!("strace cannot be started: {error}"));
                return None;
            }
        };
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let line = stderr.lines().next().and_then(Result::ok).unwrap_or_default();
        let injector = Self(child);
        if !line.contains("attached") {
            report_skipped(&format!("strace cannot attach: {line}"));
            return None;
        }
        Some(injector)
    }
}

impl Drop for FaultInjector {
    fn drop(&mut self) {
        // It detaches when it ends.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A disk that fails while the gateway runs: the call is refused and recorded once, `/metrics` counts the error, and
/// calls work again afterwards.
#[test]
fn failing_syncs_are_counted_and_calls_recorded_once() {
    let gateway = Gateway::start(&json!({}));
    let call = || gateway.call(OWNER, "echo", &json!({ "message": "x" })).status_and_code();
    assert_eq!(call().0, 200);
    let sync_errors = || {
        let metrics = gateway.get("/metrics", OWNER).body;
        let name = r#"toolgate_log_errors_total{operation="sync"} "#;
        let count = metrics.lines().find_map(|line| line.strip_prefix(name)).map(str::parse::<u64>);
        count.expect("the counter exists").expect("a number")
    };
    assert_eq!(sync_errors(), 0);
    let process = gateway.running.child.id();
    let Some(injector) = FaultInjector::attach(process, "fdatasync", "error=EIO") else { return };
    let before = gateway.seen().len();
    assert_eq!(call(), (503, "storage_unavailable".to_owned()));
    assert_eq!(gateway.seen().len(), before, "the call was not sent");
    assert!(sync_errors() >= 1);
    drop(injector);
    wait_until("a call succeeds again", || call().0 == 200);
    assert_recorded_once(&gateway.program);
    let verified = gateway.program.run("log verify");
    assert_eq!(verified.code, 0, "{verified}");
}

/// A call that must not be repeated waits for one sync, and a call of a tool that its server calls read-only for none:
/// both are answered while every later sync hangs.
#[test]
fn calls_wait_for_one_sync_at_most() {
    let gateway = Gateway::serve(project("{ reserve: none }").with("TOOLGATE_API_KEY", OWNER));
    let call = |tool: &str| gateway.call(OWNER, tool, &json!({})).status_and_code();
    let process = gateway.running.child.id();
    // Longer than a test waits for an answer.
    let fault = "delay_enter=120000000:when=2+";
    let Some(injector) = FaultInjector::attach(process, "fdatasync", fault) else { return };
    for tool in ["write", "look", "read"] {
        assert_eq!(call(tool), (200, "none".to_owned()), "{tool}");
    }
    assert_eq!(server_calls(&gateway.program), 3);
    assert_eq!((count(&gateway.program, "begin"), count(&gateway.program, "end")), (3, 3));
    drop(injector);
    assert_eq!(call("write").0, 200);
    assert_recorded_once(&gateway.program);
}

/// A caller that disconnects while the begin of its call waits for a slow disk leaves one call in the log.
#[test]
fn disconnect_during_the_begin_record_is_recorded_once() {
    let gateway = Gateway::start(&json!({}));
    let process = gateway.running.child.id();
    let Some(injector) = FaultInjector::attach(process, "fdatasync", "delay_enter=4000000") else { return };
    let body = json!({ "arguments": { "message": "x" } }).to_string();
    let headers = [&*format!("Authorization: Bearer {OWNER}"), "Content-Type: application/json"];
    let mut stream = gateway.connect();
    stream.write_all(request("POST /v1/tools/echo/call", &headers, &body).as_bytes()).expect("it is open");
    wait_until("the begin is written", || count(&gateway.program, "begin") > 0);
    drop(stream);
    wait_until("the end is written", || count(&gateway.program, "end") > 0);
    drop(injector);
    // The record of another call: everything about the first one is in the log by then.
    assert_eq!(gateway.call(OWNER, "missing", &json!({})).status, 404);
    assert_eq!((count(&gateway.program, "begin"), count(&gateway.program, "end")), (2, 2));
    assert_recorded_once(&gateway.program);
    assert_eq!(gateway.seen().len(), 0, "the call was not sent");
}
