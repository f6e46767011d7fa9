//! `code_execution`: code that works, code that fails, and code that attacks.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::door::{Door, OWNER, request, until};
use crate::program::{Program, Run};

/// Keeps a process for long, and names it for us.
const SLEEP: &str = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(3000)\n";

/// A project that runs code, with what else is said about that.
fn project(rules: Json, more: Json) -> Program {
    let program = Program::new(&[(".env", "SECRET=hunter2-in-the-file\n")]).with("TOOLGATE_LOG", "off");
    // Only what is meant to be late is late, however busy the machine is.
    let mut code = json!({ "enabled": true, "timeout": "10m" });
    code.as_object_mut().expect("a map").extend(rules.as_object().cloned().unwrap_or_default());
    let mut whole = json!({ "code_execution": code });
    whole.as_object_mut().expect("a map").extend(more.as_object().cloned().unwrap_or_default());
    program.write("toolgate.yaml", whole.to_string());
    program.with("API_SECRET", "hunter2-in-the-environment")
}

/// Runs it, after which nothing is left of its folder.
fn run(program: &Program, arguments: Json) -> (Json, Run) {
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

/// Data goes in, a summary and files come out.
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
    let file = |name: &str| files.iter().find(|file| file["path"] == name).expect("it is there");
    assert_eq!(files.len(), 3, "what it was given is not given back: {files:?}");
    assert_eq!(file("summary.txt")["text"], "2 rows");
    assert!(file("picture.bin")["base64"].as_str().is_some_and(|text| text.starts_with("AAECAwQF")));
    let uri = file("large.txt")["uri"].as_str().expect("it is kept");
    let read = program.run(&format!("tools call read_result uri={uri} grep=needle"));
    assert_eq!(read.stdout, "5001: the needle\n", "{read}");
    // Where nothing is kept, that is told.
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
fn what_fails_says_why() {
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

/// Whatever it tries, it sees the system and its own folder, and reaches nobody.
#[test]
fn the_sandbox_holds() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = tcp.local_addr().expect("it is bound").port();
    let program = project(json!({}), json!({}));
    let _unix = UnixListener::bind(program.path("service.socket")).expect("it can be made");
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
    let said = result["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{output}"));
    assert!(!said.contains("DONE") && !said.contains("hunter2"), "{said}");
    assert_eq!(said.matches(" kept ").count(), 23, "{said}");
    assert!(said.contains("alive"), "programs of the system run: {said}");
    assert!(!said.contains("API_SECRET"), "{said}");
    assert_eq!(result["data"]["files"], json!([]), "a link is not followed: {result}");
    assert_eq!(program.read(".env"), "SECRET=hunter2-in-the-file\n");
    assert!(!program.path("new").exists() && !program.path("main.py").exists());
}

/// What the operator lets it read, it reads; without the sandbox it may do what we may.
#[test]
fn the_sandbox_is_as_wide_as_it_is_said_to_be() {
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
    // Even so: nothing of our environment, and no link is followed when files are taken.
    let result = shell(
        &open,
        "echo $API_SECRET; ln -s ../../../.env link; ln ../../../.env hard; mkdir d; ln -s / d/root",
    );
    assert_eq!((&result["data"]["stdout"], &result["data"]["files"]), (&json!("\n"), &json!([])), "{result}");
}

/// Each limit ends it, says so, and leaves no process.
#[test]
fn limits_hold() {
    let program = |rules: Json| project(rules, json!({}));
    let told = |result: &Json, code: &str, says: &str| {
        assert_eq!(result["error"]["code"], code, "{result}");
        let text = format!("{} {}", result["error"]["message"], result["error"]["hint"]);
        assert!(text.contains(says), "{result}");
    };
    let late = python(&program(json!({ "timeout": "1s" })), "print('begun')\nwhile True: pass");
    told(&late, "timeout", "begun");
    told(&late, "timeout", "`code_execution.timeout`");
    let limited = program(
        json!({ "max_output": "10KiB", "max_disk": "1MiB", "max_memory": "200MiB", "max_processes": 8 }),
    );
    told(&shell(&limited, "yes"), "output_too_large", "`code_execution.max_output`");
    told(&shell(&limited, "yes >&2"), "output_too_large", "`code_execution.max_output`");
    told(&python(&limited, "x = bytearray(10**9)"), "tool_execution_error", "MemoryError");
    let many = "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        break\nx = bytearray(os.urandom(1)) * (90 << 20)\ntime.sleep(3000)";
    told(&python(&limited, many), "tool_execution_error", "`code_execution.max_memory`");
    // With a fuse: for the superuser no limit of the kernel counts, and others want to start something meanwhile.
    told(
        &shell(&limited, "bomb() { sleep 0.1; bomb | bomb & }; bomb; sleep 3000"),
        "tool_execution_error",
        "`code_execution.max_processes`",
    );
    let daemons = "for i in $(seq 20); do setsid -f sleep 3000; done; sleep 3000";
    told(&shell(&limited, daemons), "tool_execution_error", "`code_execution.max_processes`");
    let one = python(&limited, "open('x', 'wb').write(bytes(2 << 20))");
    told(&one, "tool_execution_error", "File too large");
    let all =
        "import time\nfor n in range(10):\n    open(f'{n}', 'wb').write(bytes(200 << 10))\ntime.sleep(3000)";
    told(&python(&limited, all), "tool_execution_error", "`code_execution.max_disk`");
    let files = "import time\nfor n in range(10_000):\n    open(f'{n}', 'w')\ntime.sleep(3000)";
    told(&python(&program(json!({})), files), "tool_execution_error", "5000 files");
    let some = python(&program(json!({})), "for n in range(100): open(f'{n:03}', 'w').write('x')");
    assert_eq!(some["data"]["files"].as_array().map(Vec::len), Some(32), "{some}");
    assert_eq!(some["data"]["filesLeftOut"], 68);
}

/// A program that makes itself independent is gone with its call all the same.
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
    let pid = result["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned();
    until("the end of the daemon", || !is_alive(&pid));
}

/// Waits until code has said which process it is.
fn pid_of(program: &Program) -> String {
    let mut pid = String::new();
    until("code that runs", || {
        for folder in fs_err::read_dir(program.path(".toolgate/scratch")).into_iter().flatten().flatten() {
            pid = fs_err::read_to_string(folder.path().join("pid")).unwrap_or_default();
        }
        !pid.is_empty()
    });
    pid
}

#[test]
fn whoever_leaves_takes_its_code_along() {
    let callers = json!([{ "id": "ann", "permissions": ["mail:*"], "api_key": "key-of-ann" }]);
    let program =
        project(json!({ "timeout": "10m" }), json!({ "callers": callers })).with("TOOLGATE_API_KEY", OWNER);
    let door = Door::of(program);
    let arguments = json!({ "language": "python", "code": SLEEP });
    assert_eq!(door.call("key-of-ann", "code_execution", &arguments).status, 404, "deny by default");
    let body = json!({ "arguments": arguments }).to_string();
    let headers = [&format!("X-API-Key: {OWNER}"), "Content-Type: application/json"];
    let mut stream = door.connect();
    let bytes = request("POST /v1/tools/code_execution/call", &headers, &body);
    stream.write_all(bytes.as_bytes()).expect("it is sent");
    let pid = pid_of(&door.program);
    drop(stream);
    until("the end of the code", || !is_alive(&pid));
    until("the folder to go", || {
        fs_err::read_dir(door.program.path(".toolgate/scratch")).is_ok_and(|mut left| left.next().is_none())
    });
    // Killed in the middle of a call, we leave no process; the next one removes the folder.
    let mut stream = door.connect();
    stream.write_all(bytes.as_bytes()).expect("it is sent");
    let pid = pid_of(&door.program);
    let Door { program, running, .. } = door;
    drop(running);
    until("the end of the code", || !is_alive(&pid));
    assert_eq!(shell(&program, "echo next")["data"]["stdout"], "next\n");
}

/// A kernel without Landlock: the system call is taken away, and nothing is run.
#[test]
#[expect(clippy::disallowed_methods, reason = "what takes a system call away is a program of its own")]
fn where_the_kernel_cannot_nothing_runs() {
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
            .expect("there is Python");
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
fn off_unless_it_is_wanted() {
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
