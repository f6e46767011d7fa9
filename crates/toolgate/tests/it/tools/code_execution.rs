//! `code_execution`: working, failing and hostile code.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, request, wait_until};
use crate::support::program::{Program, RunOutput};

/// Sleeps until it is stopped.
const SLEEP: &str = "import time\ntime.sleep(3000)\n";

/// Creates a project with `code_execution` and these settings.
fn project(rules: Json, more: Json) -> Program {
    let program = Program::new(&[(".env", "SECRET=hunter2-in-the-file\n")]).with("TOOLGATE_LOG", "off");
    // Timeouts must not depend on the load of the machine.
    let mut code = json!({ "enabled": true, "timeout": "10m" });
    code.as_object_mut().expect("a map").extend(rules.as_object().cloned().unwrap_or_default());
    let mut whole = json!({ "code_execution": code });
    whole.as_object_mut().expect("a map").extend(more.as_object().cloned().unwrap_or_default());
    program.write("toolgate.yaml", whole.to_string());
    program.with("API_SECRET", "hunter2-in-the-environment")
}

/// Runs code and checks that its folder is deleted.
fn run(program: &Program, arguments: Json) -> (Json, RunOutput) {
    let run =
        program.run_list(&["tools", "call", "code_execution", "--json", "--args", &arguments.to_string()]);
    nothing_is_left(program);
    (run.json(), run)
}

fn nothing_is_left(program: &Program) {
    let left: Vec<_> =
        fs_err::read_dir(program.path(".toolgate/scratch")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn python(program: &Program, code: &str) -> Json {
    run(program, json!({ "language": "python", "code": code })).0
}

fn shell(program: &Program, code: &str) -> Json {
    run(program, json!({ "language": "shell", "code": code })).0
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).join("cmdline").exists()
}

/// Input files go in, output and files come out.
#[test]
fn data_is_processed() {
    let program = project(json!({}), json!({ "results": {} }));
    let code = "
import csv, sys
rows = list(csv.DictReader(open('data/sales.csv')))
print(sum(int(row['amount']) for row in rows), sys.stdin.read(), end='')
open('summary.txt', 'w').write(f'{len(rows)} rows')
open('picture.bin', 'wb').write(bytes(range(256)))
open('large.txt', 'w').write('a line\\n' * 5000 + 'the needle')
";
    let arguments = json!({ "language": "python", "code": code, "stdin": "euros",
        "files": [{ "path": "data/sales.csv", "text": "day,amount\n1,20\n2,22\n" }] });
    let (result, output) = run(&program, arguments);
    let data = &result["data"];
    assert_eq!(
        (&data["exitCode"], &data["stdout"], &data["stderr"]),
        (&json!(0), &json!("42 euros"), &json!("")),
        "{output}"
    );
    let files = data["files"].as_array().expect("a list");
    let file = |name: &str| files.iter().find(|file| file["path"] == name).expect("the file exists");
    assert_eq!(files.len(), 3, "input files are not returned: {files:?}");
    assert_eq!(file("summary.txt")["text"], "2 rows");
    assert!(file("picture.bin")["base64"].as_str().is_some_and(|text| text.starts_with("AAECAwQF")));
    let uri = file("large.txt")["uri"].as_str().expect("the file is stored");
    let read = program.run(&format!("tools call read_result uri={uri} grep=needle"));
    assert_eq!(read.stdout, "5001: the needle\n", "{read}");
    // Without stored results, the output says so.
    let alone = project(json!({}), json!({}));
    let data = python(&alone, "open('large.txt', 'w').write('x' * 100_000)")["data"].clone();
    assert!(data["files"][0]["note"].as_str().is_some_and(|note| note.contains("`results`")), "{data}");
    let shell = shell(&alone, "echo $((6 * 7)); echo careful >&2; echo $HOME > home");
    assert_eq!((&shell["data"]["stdout"], &shell["data"]["stderr"]), (&json!("42\n"), &json!("careful")));
    assert!(
        shell["data"]["files"][0]["text"].as_str().is_some_and(|text| text.contains(".toolgate/scratch"))
    );
}

#[test]
fn errors_are_reported() {
    let program = project(json!({}), json!({}));
    let (result, output) = run(
        &program,
        json!({ "language": "python", "code": "print('so far')\nraise ValueError('no such card')" }),
    );
    let error = &result["error"];
    assert_eq!((output.code, &error["code"]), (1, &json!("tool_execution_error")), "{output}");
    let message = error["message"].as_str().expect("a text");
    for part in ["exited with code 1", "ValueError: no such card", "so far"] {
        assert!(message.contains(part), "{message}");
    }
    let log = program.run("log --tool code_execution --status error --json");
    assert!(log.stdout.contains("raise ValueError"), "the code that failed is in the log: {log}");
    let killed = shell(&program, "kill -9 $$");
    assert!(killed["error"]["message"].as_str().is_some_and(|text| text.contains("SIGKILL")), "{killed}");
    for path in ["../x", "/etc/x", "a/../../x", ""] {
        let (result, _) = run(
            &program,
            json!({ "language": "shell", "code": "true", "files": [{ "path": path, "text": "" }] }),
        );
        assert_eq!(result["error"]["code"], "invalid_arguments", "{path}");
    }
    let other = project(json!({ "python": "no-such-python" }), json!({}));
    let error = python(&other, "print(1)")["error"].clone();
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("`code_execution.python`")), "{error}");
}

/// Hostile code sees only the system and its own folder, and has no network.
#[test]
fn the_sandbox_holds() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = tcp.local_addr().expect("it is bound").port();
    let program = project(json!({}), json!({}));
    let _unix = UnixListener::bind(program.path("service.socket")).expect("a socket");
    let here = program.project.display().to_string();
    let code = format!(
        r#"
import ctypes, os, signal, socket
def attempt(name, what):
    try:
        print(name, 'DONE', what())
    except BaseException as error:
        print(name, 'kept', type(error).__name__)
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), 'no')
parent = os.getppid()
attempt('env', lambda: open('{here}/.env').read())
attempt('up', lambda: open('../../../.env').read())
attempt('link', lambda: (os.symlink('{here}/.env', 'l'), open('l').read()))
attempt('hardlink', lambda: os.link('{here}/.env', 'h'))
attempt('list', lambda: os.listdir('{here}'))
attempt('root', lambda: os.listdir('/'))
attempt('environ', lambda: open(f'/proc/{{parent}}/environ').read())
attempt('self', lambda: open('/proc/self/environ').read())
attempt('shadow', lambda: open('/etc/shadow').read())
attempt('home', lambda: os.listdir('/root'))
attempt('write', lambda: open('{here}/new', 'w'))
attempt('tmp', lambda: open('/tmp/toolgate-test-new', 'w'))
attempt('usr', lambda: open('/usr/new', 'w'))
attempt('rename', lambda: os.rename('.main.py', '{here}/main.py'))
attempt('remove', lambda: os.remove('{here}/.env'))
attempt('tcp', lambda: socket.create_connection(('127.0.0.1', {port})))
attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt('unix', lambda: socket.socket(socket.AF_UNIX).connect('{here}/service.socket'))
attempt('signal', lambda: os.kill(parent, signal.SIGKILL))
attempt('ptrace', lambda: call(101 if os.uname().machine == 'x86_64' else 117, 16, parent, 0, 0))
attempt('namespace', lambda: call(272 if os.uname().machine == 'x86_64' else 97, 0x10000000))
attempt('ring', lambda: call(425, 8, 0))
attempt('memfd', lambda: os.memfd_create('x'))
print(sorted(os.environ))
import subprocess, tempfile, json, hashlib, sqlite3
print(subprocess.run(['sh', '-c', 'cat "$0"; echo alive', '{here}/.env'], capture_output=True, text=True).stdout)
tempfile.NamedTemporaryFile().write(b'x')
"#
    );
    let (result, output) = run(&program, json!({ "language": "python", "code": code }));
    let stdout = result["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{output}"));
    assert!(!stdout.contains("DONE") && !stdout.contains("hunter2"), "{stdout}");
    assert_eq!(stdout.matches(" kept ").count(), 23, "{stdout}");
    assert!(stdout.contains("alive"), "programs of the system run: {stdout}");
    assert!(!stdout.contains("API_SECRET"), "{stdout}");
    assert_eq!(result["data"]["files"], json!([]), "a link is not followed: {result}");
    assert_eq!(program.read(".env"), "SECRET=hunter2-in-the-file\n");
    assert!(!program.path("new").exists() && !program.path("main.py").exists());
}

/// Code can read the configured folders; without the sandbox it has the rights of the gateway.
#[test]
fn the_sandbox_follows_the_config() {
    let program = project(json!({ "read": ["shared"] }), json!({}));
    program.write("shared/data.txt", "for all");
    let at = |name: &str| format!("cat {}", program.path(name).display());
    assert_eq!(shell(&program, &at("shared/data.txt"))["data"]["stdout"], "for all");
    let write = shell(&program, &format!("echo x > {}", program.path("shared/new").display()));
    assert_eq!(write["error"]["code"], "tool_execution_error", "it may read, and no more");
    let absent = project(json!({ "read": ["nowhere"] }), json!({})).run("check");
    assert!(absent.code == 78 && absent.stderr.contains("`nowhere` does not exist"), "{absent}");
    let open = project(json!({ "sandbox": false }), json!({}));
    assert_eq!(shell(&open, "cat ../../../.env")["data"]["stdout"], "SECRET=hunter2-in-the-file\n");
    // Even so, the environment is empty, and no link is followed when files are collected.
    let result = shell(
        &open,
        "echo $API_SECRET; ln -s ../../../.env link; ln ../../../.env hard; mkdir d; ln -s / d/root",
    );
    assert_eq!((&result["data"]["stdout"], &result["data"]["files"]), (&json!("\n"), &json!([])), "{result}");
}

/// Every limit ends the code, is reported, and leaves no process.
#[test]
fn limits_hold() {
    let program = |rules: Json| project(rules, json!({}));
    let assert_error = |result: &Json, code: &str, says: &str| {
        assert_eq!(result["error"]["code"], code, "{result}");
        let text = format!("{} {}", result["error"]["message"], result["error"]["hint"]);
        assert!(text.contains(says), "{result}");
    };
    let late = python(&program(json!({ "timeout": "1s" })), "print('begun')\nwhile True: pass");
    assert_error(&late, "timeout", "begun");
    assert_error(&late, "timeout", "`code_execution.timeout`");
    let limited = program(
        json!({ "max_output": "10KiB", "max_disk": "1MiB", "max_memory": "200MiB", "max_processes": 8 }),
    );
    assert_error(&shell(&limited, "yes"), "output_too_large", "`code_execution.max_output`");
    assert_error(&shell(&limited, "yes >&2"), "output_too_large", "`code_execution.max_output`");
    assert_error(&python(&limited, "x = bytearray(10**9)"), "tool_execution_error", "MemoryError");
    let many = "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        break\nx = bytearray(os.urandom(1)) * (90 << 20)\ntime.sleep(3000)";
    assert_error(&python(&limited, many), "tool_execution_error", "`code_execution.max_memory`");
    // The loop is bounded: root is exempt from the process limit of the kernel, and other tests need processes.
    assert_error(
        &shell(&limited, "bomb() { sleep 0.1; bomb | bomb & }; bomb; sleep 3000"),
        "tool_execution_error",
        "`code_execution.max_processes`",
    );
    let daemons = "for i in $(seq 20); do setsid -f sleep 3000; done; sleep 3000";
    assert_error(&shell(&limited, daemons), "tool_execution_error", "`code_execution.max_processes`");
    let one = python(&limited, "open('x', 'wb').write(bytes(2 << 20))");
    assert_error(&one, "tool_execution_error", "File too large");
    let all =
        "import time\nfor n in range(10):\n    open(f'{n}', 'wb').write(bytes(200 << 10))\ntime.sleep(3000)";
    assert_error(&python(&limited, all), "tool_execution_error", "`code_execution.max_disk`");
    let files = "import time\nfor n in range(10_000):\n    open(f'{n}', 'w')\ntime.sleep(3000)";
    assert_error(&python(&program(json!({})), files), "tool_execution_error", "5000 files");
    let some = python(&program(json!({})), "for n in range(100): open(f'{n:03}', 'w').write('x')");
    assert_eq!(some["data"]["files"].as_array().map(Vec::len), Some(32), "{some}");
    assert_eq!(some["data"]["filesLeftOut"], 68);
}

/// Daemons end with their call.
#[test]
fn nothing_outlives_its_call() {
    let program = project(json!({}), json!({}));
    let daemon = "import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('pid', 'w').write(str(os.getpid()))
        os.rename('pid', 'ready')
        for fd in (0, 1, 2): os.close(fd)
        time.sleep(3000)
    os._exit(0)
while not os.path.exists('ready'): time.sleep(0.01)
print(open('ready').read())";
    let result = python(&program, daemon);
    assert_eq!(result["status"], "success", "{result}");
    wait_until("the end of the daemon", || processes_of(&program).is_empty());
}

/// Waits until the code runs, and returns the id of its process.
fn pid_of(program: &Program) -> String {
    let mut pid = String::new();
    wait_until("code that runs", || {
        let is_code = |pid: &String| {
            let line = fs_err::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with(b".main.py\0") && !line.windows(4).any(|part| part == b"shim")
        };
        pid = processes_of(program).into_iter().find(is_code).unwrap_or_default();
        !pid.is_empty()
    });
    pid
}

/// The processes that run in a scratch folder of the project. Inside of the sandbox they have other ids.
fn processes_of(program: &Program) -> Vec<String> {
    let scratch = program.path(".toolgate/scratch");
    let all = fs_err::read_dir("/proc").expect("there is `/proc`").flatten();
    all.filter(|entry| fs_err::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&scratch)))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_disconnect_ends_the_code() {
    let callers = json!([{ "id": "ann", "permissions": ["mail:*"], "api_key": "key-of-ann" }]);
    let program =
        project(json!({ "timeout": "10m" }), json!({ "callers": callers })).with("TOOLGATE_API_KEY", OWNER);
    let gateway = Gateway::serve(program);
    let arguments = json!({ "language": "python", "code": SLEEP });
    assert_eq!(gateway.call("key-of-ann", "code_execution", &arguments).status, 404, "deny by default");
    let body = json!({ "arguments": arguments }).to_string();
    let headers = [&format!("X-API-Key: {OWNER}"), "Content-Type: application/json"];
    let mut stream = gateway.connect();
    let bytes = request("POST /v1/tools/code_execution/call", &headers, &body);
    stream.write_all(bytes.as_bytes()).expect("it is sent");
    let pid = pid_of(&gateway.program);
    drop(stream);
    wait_until("the end of the code", || !is_alive(&pid));
    wait_until("the folder to go", || {
        fs_err::read_dir(gateway.program.path(".toolgate/scratch"))
            .is_ok_and(|mut left| left.next().is_none())
    });
    // SIGKILL during a call leaves no process; the next start removes the folder.
    let mut stream = gateway.connect();
    stream.write_all(bytes.as_bytes()).expect("it is sent");
    let pid = pid_of(&gateway.program);
    let Gateway { program, running, .. } = gateway;
    drop(running);
    wait_until("the end of the code", || !is_alive(&pid));
    assert_eq!(shell(&program, "echo next")["data"]["stdout"], "next\n");
}

/// Without Landlock (the system call is blocked) no code runs.
#[test]
#[expect(clippy::disallowed_methods, reason = "what takes a system call away is a program of its own")]
fn nothing_runs_without_kernel_support() {
    let program = project(json!({}), json!({}));
    let without = r"
import ctypes, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)]
rules = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('rules', ctypes.c_void_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.cast(rules, ctypes.c_void_p))), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";
    let call = |program: &Program| {
        let arguments = json!({ "language": "shell", "code": "echo ran" }).to_string();
        let words = [
            "-c",
            without,
            env!("CARGO_BIN_EXE_toolgate"),
            "tools",
            "call",
            "code_execution",
            "--json",
            "--args",
            &arguments,
        ];
        let output = Command::new("python3")
            .args(words)
            .current_dir(&program.project)
            .output()
            .expect("Python is installed");
        serde_json::from_slice::<Json>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let refused = call(&program);
    assert_eq!(refused["error"]["code"], "service_unavailable", "{refused}");
    assert!(
        refused["error"]["hint"]
            .as_str()
            .is_some_and(|hint| hint.contains("`code_execution.sandbox: false`"))
    );
    let open = project(json!({ "sandbox": false }), json!({}));
    assert_eq!(call(&open)["data"]["stdout"], "ran\n");
}

#[test]
fn off_by_default() {
    for rules in [json!({ "sandbox": false }), json!({ "enabled": false }), json!({})] {
        let program = Program::new(&[("toolgate.yaml", &json!({ "code_execution": rules }).to_string())]);
        let error =
            program.run("tools call code_execution language=shell code=true --json").json()["error"].clone();
        assert_eq!(error["code"], "tool_not_found");
        assert!(
            error["hint"].as_str().is_some_and(|hint| hint.contains("`code_execution` in toolgate.yaml")),
            "{error}"
        );
    }
    let program = project(json!({}), json!({}));
    let shown = program.run("tools show code_execution --json").json();
    assert_eq!((&shown["category"], &shown["idempotent"]), (&json!("mutation"), &json!(false)), "{shown}");
    let listed = program.run("tools list");
    assert!(listed.stdout.contains("code_execution"), "{listed}");
    let why = program.run("why owner code_execution");
    assert!(why.stdout.contains("requires tools:code_execution: granted"), "{why}");
}
