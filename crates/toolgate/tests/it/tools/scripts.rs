//! Tools of one's own, run for real: Python files and executables, good ones and bad ones.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value as Json, json};

use crate::door::until;
use crate::program::Program;
use crate::servers::left_behind;

/// A tool: its file, what is in it, and what its entry says beside.
type Tool<'a> = (&'a str, &'a str, Json);

/// A project with these tools, named as their files are.
pub(crate) fn project(tools: &[Tool<'_>]) -> Program {
    let program = Program::new(&[]);
    let mut entries = Vec::new();
    for (file, text, keys) in tools {
        let name = file.split('.').next().expect("a name");
        let mut entry = json!({ "name": name, "description": "Does something.", "script_path": file,
            "input_schema": { "type": "object" }, "timeout": "50s" });
        let keys = keys.as_object().expect("keys of an entry").clone();
        entry.as_object_mut().expect("an entry").extend(keys);
        entries.push(entry);
        write_script(&program, file, text);
    }
    program.write("tools/tools.json", json!({ "tools": entries }).to_string());
    program
}

/// A script; one that is not Python can be executed.
pub(crate) fn write_script(program: &Program, file: &str, text: &str) {
    let path = format!("tools/{file}");
    program.write(&path, text);
    if !file.ends_with(".py") {
        mode(program, &path, 0o755);
    }
}

fn mode(program: &Program, path: &str, bits: u32) {
    let permissions = std::fs::Permissions::from_mode(bits);
    fs_err::set_permissions(program.path(path), permissions).expect("it is our file");
}

/// Calls a tool, and gives the whole envelope.
pub(crate) fn call(program: &Program, tool: &str, arguments: &Json) -> Json {
    let run = program.run_list(&["tools", "call", tool, "--args", &arguments.to_string(), "--json"]);
    let envelope: Json = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("no document: {run}"));
    assert_eq!(run.code == 0, envelope["status"] == "success", "{run}");
    envelope
}

/// Its error: the code and the words.
fn error(envelope: &Json) -> (&str, &str) {
    let error = &envelope["error"];
    (error["code"].as_str().unwrap_or_default(), error["message"].as_str().unwrap_or_default())
}

/// One Python tool, called once.
fn python(source: &str, arguments: Json) -> Json {
    call(&project(&[("tool.py", source, json!({}))]), "tool", &arguments)
}

/// One shell script, called once.
fn shell(source: &str, arguments: Json) -> Json {
    call(&project(&[("tool.sh", &format!("#!/bin/sh\n{source}\n"), json!({}))]), "tool", &arguments)
}

#[test]
fn the_quickstart_runs() {
    let program = Program::new(&[]);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart");
    for (file, bits) in [
        ("toolgate.yaml", 0o644),
        ("mcp.json", 0o644),
        ("tools/tools.json", 0o644),
        ("tools/word_count.py", 0o644),
        ("tools/disk_usage.sh", 0o755),
    ] {
        program.write(file, fs_err::read(format!("{folder}/{file}")).expect("an example"));
        mode(&program, file, bits);
    }
    // It promises to be fast, and Python may not be on a busy machine.
    until("it answers", || {
        let run = program.run_list(&["tools", "call", "word_count", "text=a b c"]);
        run.code == 0 && run.stdout.trim() == r#"{"lines":1,"words":3,"characters":5}"#
    });
    let usage = call(&program, "disk_usage", &json!({ "folder": "." }));
    assert!(usage["data"]["kilobytes"].as_u64().is_some_and(|size| size > 0), "{usage}");
}

#[test]
fn what_cannot_run_says_what_to_do() {
    let program = project(&[
        ("missing.py", "", json!({})),
        ("plain.sh", "#!/bin/sh\necho 1\n", json!({})),
        ("invalid.sh", "#!/bin/sh\necho '{\"a\": '\n", json!({})),
        (
            "shape.sh",
            "#!/bin/sh\necho '{\"n\": \"no number\"}'\n",
            json!({ "output_schema": { "type": "object", "properties": { "n": { "type": "integer" } } } }),
        ),
        ("fails.sh", "#!/bin/sh\necho 'no such card' >&2\nexit 1\n", json!({})),
        ("nothing.sh", "echo no first line\n", json!({})),
        ("lost.sh", "#!/no/such/interpreter\n", json!({})),
        ("open.py", "def run(args): return 1\n", json!({})),
    ]);
    fs_err::remove_file(program.path("tools/missing.py")).expect("it was written");
    mode(&program, "tools/plain.sh", 0o644);
    mode(&program, "tools/open.py", 0o666);
    for (tool, code, said, hint) in [
        (
            "missing",
            "tool_execution_error",
            "the script `tools/missing.py` of tool `missing` does not exist",
            "create it",
        ),
        ("plain", "tool_execution_error", "plain.sh` is not executable", "chmod +x"),
        ("invalid", "tool_execution_error", "its stdout is not JSON: ", ""),
        ("shape", "invalid_output", "is not of type", ""),
        ("fails", "tool_execution_error", "`tools/fails.sh` exited with code 1: no such card", ""),
        ("nothing", "tool_execution_error", "a script needs a first line such as `#!/bin/sh`", ""),
        ("lost", "tool_execution_error", "the interpreter in its first line does not exist", ""),
        ("open", "tool_execution_error", "is writable by every user", "chmod o-w"),
    ] {
        let envelope = call(&program, tool, &json!({ "password": "hunter2hunter2" }));
        assert_eq!(error(&envelope).0, code, "{envelope}");
        assert!(error(&envelope).1.contains(said), "{envelope}");
        assert!(envelope["error"]["hint"].as_str().unwrap_or_default().contains(hint), "{envelope}");
    }
    // What was given is written down, without its secrets.
    let log = program.run("log --json").stdout;
    assert!(log.contains("fails.sh") && !log.contains("hunter2"), "{log}");
}

#[test]
fn a_script_does_not_leave_its_folder() {
    let program = project(&[("inside.sh", "#!/bin/sh\necho in\n", json!({})), ("late.sh", "", json!({}))]);
    program.write("outside.sh", "#!/bin/sh\necho out\n");
    mode(&program, "outside.sh", 0o755);
    let link = |target: &str, name: &str| {
        let _ = fs_err::remove_file(program.path(name));
        std::os::unix::fs::symlink(program.path(target), program.path(name)).expect("a link can be made");
    };
    link("outside.sh", "tools/late.sh");
    let run = program.run("check");
    assert_eq!(run.code, 78, "{run}");
    // One that becomes such a link while it is used is noticed, too.
    link("tools/inside.sh", "tools/late.sh");
    let door = crate::door::Door::of(program.with("TOOLGATE_API_KEY", crate::door::OWNER));
    let _ = fs_err::remove_file(door.program.path("tools/inside.sh"));
    std::os::unix::fs::symlink(door.program.path("outside.sh"), door.program.path("tools/inside.sh"))
        .expect("a link can be made");
    let answer = door.call(crate::door::OWNER, "inside", &json!({}));
    assert_eq!(answer.told().1, "tool_execution_error", "{answer:?}");
    assert!(answer.body.contains("leads outside of its folder"), "{answer:?}");
}

#[test]
fn what_a_script_answers() {
    let text = |envelope: &Json| envelope["data"][0]["text"].clone();
    assert_eq!(shell("echo '{\"n\": 1.0}'", json!({}))["data"], json!({ "n": 1.0 }));
    assert_eq!(text(&shell("cat", json!({ "a": "b" }))), Json::Null);
    assert_eq!(shell("cat", json!({ "a": "b" }))["data"], json!({ "a": "b" }));
    assert_eq!(text(&shell("echo hello; echo world", json!({}))), "hello\nworld");
    assert_eq!(text(&shell("echo '[1,2]'", json!({}))), "[1,2]");
    assert_eq!(shell("true", json!({}))["data"], json!([]));
    let image = r#"echo '{"content":[{"type":"image","data":"","mimeType":"image/png"}]}'"#;
    assert_eq!(shell(image, json!({}))["data"][0]["type"], "image");
    let said = shell(r#"echo '{"content":[{"type":"text","text":"no"}],"isError":true}'"#, json!({}));
    assert_eq!(error(&said), ("tool_execution_error", "no"));
    assert_eq!(python("def run(args):\n  return 'hello'", json!({}))["data"][0]["text"], "hello");
    assert_eq!(python("def run(args):\n  return args['a'] + 1", json!({ "a": 2 }))["data"][0]["text"], "3");
    assert_eq!(python("def run(args):\n  pass", json!({}))["data"], json!([]));
    assert_eq!(
        python(
            "import asyncio\nasync def run(args):\n  await asyncio.sleep(0)\n  return args",
            json!({ "a": "ü" })
        )["data"],
        json!({ "a": "ü" })
    );
}

#[test]
fn what_is_no_answer() {
    for (source, said) in [
        ("return {'a': float('nan')}", "not JSON: ValueError: Out of range float values"),
        ("return {1, 2}", "not JSON: TypeError: Object of type set"),
        ("return '\\ud800'", "not JSON: UnicodeEncodeError"),
        ("a = []; a.append(a); return a", "not JSON: ValueError: Circular reference"),
        ("raise KeyError('card')", "KeyError: 'card'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("return args['nothing']", "KeyError: 'nothing'"),
    ] {
        let envelope = python(&format!("def run(args):\n  {source}"), json!({}));
        assert_eq!(error(&envelope).0, "tool_execution_error", "{source}: {envelope}");
        assert!(error(&envelope).1.contains(said), "{source}: {envelope}");
        // Where it happened is for the log alone.
        assert!(!envelope.to_string().contains("Traceback"), "{envelope}");
    }
    let large = python("def run(args):\n  return 'x' * (64 << 20)", json!({}));
    assert_eq!(error(&large).0, "output_too_large", "{large}");
    let utf8 = shell("printf 'caf\\351'", json!({}));
    assert!(error(&utf8).1.contains("not valid UTF-8 at byte 3"), "{utf8}");
    let schema = json!({ "output_schema": { "type": "object", "required": ["n"] } });
    let program = project(&[("tool.py", "def run(args):\n  return args", schema)]);
    assert_eq!(error(&call(&program, "tool", &json!({}))).0, "invalid_output");
    assert_eq!(call(&program, "tool", &json!({ "n": 1 }))["data"], json!({ "n": 1 }));
}

#[test]
fn where_it_went_wrong_is_in_the_log() {
    let program =
        project(&[("tool.py", "def deep():\n  return 1 / 0\ndef run(args):\n  return deep()", json!({}))]);
    let envelope = call(&program, "tool", &json!({}));
    assert_eq!(error(&envelope), ("tool_execution_error", "ZeroDivisionError: division by zero"));
    let log = program.run("log --json").stdout;
    assert!(log.contains("in deep") && log.contains("tool.py") && !log.contains("<string>"), "{log}");
}

#[test]
fn a_python_file_that_cannot_be_loaded() {
    for (source, said, hint) in [
        ("def run(args:\n", "SyntaxError", ""),
        (
            "import no_such_module\ndef run(args): pass",
            "No module named 'no_such_module'",
            "pip install no_such_module",
        ),
        ("def other(args): pass", "has no function `run`", "to one of these: other"),
        ("", "has no function `run`", "def run(args):"),
        ("raise RuntimeError('at once')", "RuntimeError: at once", ""),
        ("import os; os._exit(7)", "exited with code 7 before it had loaded", ""),
    ] {
        let envelope = python(source, json!({}));
        assert_eq!(error(&envelope).0, "tool_execution_error", "{envelope}");
        assert!(error(&envelope).1.contains(said), "{source}: {envelope}");
        assert!(
            envelope["error"]["hint"].as_str().unwrap_or_default().contains(hint),
            "{source}: {envelope}"
        );
    }
    let program = project(&[("tool.py", "import no_such_module", json!({}))]);
    program.write("tools/requirements.txt", "no_such_module\n");
    let envelope = call(&program, "tool", &json!({}));
    let hint = envelope["error"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("python3 -m venv") && hint.contains("requirements.txt"), "{envelope}");
}

/// What `python3 -m venv .venv` makes, without what takes long: a link to the interpreter, and a folder of packages,
/// which is returned. What is called `python3` may be a script that sets variables; this is not.
#[expect(clippy::disallowed_methods, reason = "the interpreter itself knows where it is")]
fn virtual_environment(program: &Program) -> String {
    let asked = "import os, sys; print(os.path.realpath(sys.executable), '%d.%d' % sys.version_info[:2])";
    let asked = std::process::Command::new("python3").args(["-c", asked]).output().expect("there is Python");
    let said = String::from_utf8(asked.stdout).expect("text");
    let (real, version) = said.trim().rsplit_once(' ').expect("two words");
    fs_err::create_dir_all(program.path(".venv/bin")).expect("a folder");
    std::os::unix::fs::symlink(real, program.path(".venv/bin/python")).expect("a link");
    let home = real.rsplit_once('/').expect("a path").0;
    program.write(".venv/pyvenv.cfg", format!("home = {home}\ninclude-system-site-packages = false\n"));
    format!(".venv/lib/python{version}/site-packages")
}

#[test]
fn a_virtual_environment_is_used() {
    let program = project(&[("tool.py", "import card\ndef run(args):\n  return card.NAME", json!({}))]);
    let packages = virtual_environment(&program);
    program.write(&format!("{packages}/card.py"), "NAME = 'from the environment'\n");
    let envelope = call(&program, "tool", &json!({}));
    assert_eq!(envelope["data"][0]["text"], "from the environment", "{envelope}");
}

#[test]
fn how_a_function_may_take_its_arguments() {
    let schema = json!({ "input_schema": { "type": "object", "properties": {
        "text": { "type": "string" }, "times": { "type": "integer" } } } });
    let arguments = json!({ "text": "ab", "times": 2 });
    for source in [
        "def run(args): return args['text'] * args['times']",
        "def run(args, context): return args['text'] * args['times'] if context['agentId'] == 'owner' else 'no'",
        "def run(args, ctx): return args['text'] * args['times'] if ctx['tool'] == 'tool' else 'no'",
        "def run(args, *, context=None): return args['text'] * args['times'] if context['traceId'] else 'no'",
        "def run(text, times=1): return text * times",
        "def run(text, times, context): return text * times if context['correlationId'] else 'no'",
        "def run(**given): return given['text'] * given['times']",
        "class Tool:\n  def __call__(self, args): return args['text'] * args['times']\nrun = Tool()",
    ] {
        let program = project(&[("tool.py", source, schema.clone())]);
        assert_eq!(call(&program, "tool", &arguments)["data"][0]["text"], "abab", "{source}");
    }
}

#[test]
fn what_is_printed_does_not_spoil_the_result() {
    let source = "import os, subprocess, sys\nprint('at the start')\ndef run(args):\n  \
        print('hello'); sys.stdout.write('{}'); os.write(1, b'\\0\\0\\0\\1r'); subprocess.run(['echo', 'child'])\n  \
        return {'read': sys.stdin.read()}";
    assert_eq!(python(source, json!({}))["data"], json!({ "read": "" }));
    let flood = "import os\ndef run(args):\n  os.write(2, b'x' * 1000)\n  \
        [os.write(1, b'y' * 60000) for _ in range(1000)]\n  return 1";
    assert_eq!(python(flood, json!({}))["data"][0]["text"], "1");
    assert_eq!(shell("yes no | head -c 50000000 >&2; echo '{}'", json!({}))["data"], json!({}));
    let endless = shell("exec yes", json!({}));
    assert_eq!(error(&endless).0, "output_too_large", "{endless}");
    // Arguments that nobody reads hold nobody up.
    let unread = shell("echo done", json!({ "text": "x".repeat(100_000) }));
    assert_eq!(unread["data"][0]["text"], "done");
}

/// What a script sees of its surroundings.
#[test]
fn a_script_gets_what_it_is_given_and_no_more() {
    let source = "import json, os\ndef run(args):\n  umask = os.umask(0)\n  \
        fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd'))\n  \
        links = [os.readlink(f'/proc/self/fd/{fd}') for fd in fds if os.path.exists(f'/proc/self/fd/{fd}')]\n  \
        return {'env': dict(os.environ), 'fds': links, 'cwd': os.getcwd(), 'umask': umask}";
    let sh = "#!/bin/sh\nenv; echo cwd=$(pwd); echo umask=$(umask); ls -l /proc/self/fd | grep -c -e pipe -e socket\n";
    let env = json!({ "env": { "DECLARED": "${GIVEN}" } });
    let mut program = project(&[("look.py", source, env.clone()), ("see.sh", sh, env)]).with("GIVEN", "yes");
    for n in 0..5 {
        program = program.with(&format!("SECRET_{n}"), "hidden-value");
    }
    virtual_environment(&program);
    let looked = call(&program, "look", &json!({}));
    let known = ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "DECLARED"];
    let names: Vec<_> = looked["data"]["env"].as_object().expect("variables").keys().collect();
    assert!(names.iter().all(|name| known.contains(&name.as_str())), "{names:?}");
    assert_eq!(looked["data"]["env"]["DECLARED"], "yes");
    assert_eq!(
        (&looked["data"]["umask"], &looked["data"]["cwd"]),
        (&json!(0o077), &json!("[project]/tools"))
    );
    // Nothing of Toolgate's: two pipes to talk through, stderr twice, nothing on stdin, and the listing itself.
    let fds = looked["data"]["fds"].as_array().expect("a list");
    assert!(
        fds.iter().all(|fd| fd.as_str().is_some_and(|fd| fd.starts_with("pipe:") || fd == "/dev/null")),
        "{fds:?}"
    );
    assert!(fds.len() <= 6, "{fds:?}");
    let seen = call(&program, "see", &json!({}));
    let seen = seen["data"][0]["text"].as_str().expect("text").to_owned();
    assert!(seen.ends_with("cwd=[project]/tools\numask=0077\n3") && seen.contains("DECLARED=yes"), "{seen}");
    for name in ["TOOL=see", "CALLER=owner", "CORRELATION_ID=", "TRACE_ID="] {
        assert!(seen.contains(&format!("TOOLGATE_{name}")), "{seen}");
    }
    assert!(!seen.contains("SECRET_"), "{seen}");
    // A secret that it was given does not come back in what is told of its failure.
    let program = project(&[(
        "leak.sh",
        "#!/bin/sh\necho \"no: $KEY\" >&2; exit 4\n",
        json!({ "env": { "KEY": "quite-a-secret" } }),
    )]);
    let leaked = call(&program, "leak", &json!({}));
    assert_eq!(error(&leaked).1, "`tools/leak.sh` exited with code 4: no: ***");
}

#[test]
fn memory_is_limited() {
    let source = "held = []\ndef run(args):\n  held.append(bytearray(args['mib'] << 20))\n  return len(held)";
    let program =
        project(&[("tool.py", source, json!({})), ("small.py", source, json!({ "max_memory": "128MiB" }))]);
    assert_eq!(call(&program, "tool", &json!({ "mib": 300 }))["data"][0]["text"], "1");
    let failed = call(&program, "small", &json!({ "mib": 300 }));
    let said = "MemoryError: the tool needs more than its `max_memory` of 128MiB";
    assert_eq!(error(&failed), ("tool_execution_error", said));
    let failed = call(&program, "tool", &json!({ "mib": 2000 }));
    assert!(error(&failed).1.contains("max_memory` of 1GiB"), "{failed}");
    let little = project(&[("tool.py", source, json!({ "max_memory": "1MiB" }))]).run("check");
    assert_eq!(little.code, 78, "{little}");
    assert!(little.stderr.contains("`1MiB` is too little memory in tool `tool`"), "{little}");
}

#[test]
fn a_worker_that_dies_is_told_of_honestly() {
    let source =
        "import os, signal\ndef run(args):\n  print('last words')\n  os.kill(os.getpid(), signal.SIGKILL)";
    let envelope = python(source, json!({}));
    assert_eq!(
        error(&envelope),
        (
            "tool_execution_error",
            "the process of `tools/tool.py` was killed by signal 9 (SIGKILL) during the call: last words"
        )
    );
    assert_eq!(envelope["error"]["outcome"], "unknown");
    let envelope = shell("kill -9 $$", json!({}));
    assert_eq!(envelope["error"]["outcome"], "unknown");
}

/// A child, a child in a session of its own, a daemon forked twice, and one that ignores SIGTERM; all of them hold
/// stdout.
const FORKS: &str = "sleep 600 &\nsetsid sleep 600 &\n(setsid sleep 600 &) &\n(trap '' TERM; sleep 600; sleep 600) &\nsleep 600";

#[test]
fn a_timeout_ends_all_that_was_started() {
    let marker = format!("{}-forks", std::process::id());
    let keys = json!({ "timeout": "1s", "env": { "TOOLGATE_TEST_MARKER": marker } });
    let source = format!("import subprocess\ndef run(args):\n  subprocess.run(['sh', '-c', {FORKS:?}])");
    let program = project(&[
        ("cold.sh", &format!("#!/bin/sh\n{FORKS}\n"), keys.clone()),
        ("warm.py", &source, keys.clone()),
        (
            "quick.sh",
            &format!("#!/bin/sh\n{}\necho '{{}}'\n", FORKS.rsplit_once('\n').expect("lines").0),
            json!({ "env": keys["env"] }),
        ),
    ]);
    for tool in ["cold", "warm"] {
        let envelope = call(&program, tool, &json!({}));
        assert_eq!(error(&envelope).0, "timeout", "{envelope}");
        assert_eq!(envelope["error"]["outcome"], "unknown");
        // Whoever has left waits for nothing: what was started is gone when the command is.
        assert_eq!(left_behind(&format!("TOOLGATE_TEST_MARKER={marker}")), 0, "{tool}");
    }
    // One that ends by itself takes with it what it left behind.
    assert_eq!(call(&program, "quick", &json!({}))["data"], json!({}));
    until("nothing is left", || left_behind(&format!("TOOLGATE_TEST_MARKER={marker}")) == 0);
}
