//! Script tools: Python files and executables, valid and broken ones.

use serde_json::{Value as Json, json};

use crate::support::gateway::wait_until;
use crate::support::program::Program;
use crate::support::scripts::{call, mode, project};
use crate::support::test_server::processes_left;

/// Returns the code and the message of an error.
fn error(envelope: &Json) -> (&str, &str) {
    let error = &envelope["error"];
    (error["code"].as_str().unwrap_or_default(), error["message"].as_str().unwrap_or_default())
}

/// Calls a Python tool once.
fn python(source: &str, arguments: Json) -> Json {
    call(&project(&[("tool.py", source, json!({}))]), "tool", &arguments)
}

/// Calls a shell script once.
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
    // The tool promises to be fast, which Python may miss on a busy machine.
    wait_until("it answers", || {
        let run = program.run_list(&["tools", "call", "word_count", "text=a b c"]);
        run.code == 0 && run.stdout.trim() == r#"{"lines":1,"words":3,"characters":5}"#
    });
    let usage = call(&program, "disk_usage", &json!({ "folder": "." }));
    assert!(usage["data"]["kilobytes"].as_u64().is_some_and(|size| size > 0), "{usage}");
}

#[test]
fn startup_errors_have_hints() {
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
    for (tool, code, expected, hint) in [
        (
            "missing",
            "tool_unusable",
            "the script `tools/missing.py` of tool `missing` does not exist",
            "create it",
        ),
        ("plain", "tool_unusable", "plain.sh` is not executable", "chmod +x"),
        ("invalid", "tool_execution_error", "its stdout is not JSON: ", ""),
        ("shape", "invalid_output", "is not of type", ""),
        ("fails", "tool_execution_error", "`tools/fails.sh` exited with code 1: no such card", ""),
        ("nothing", "tool_unusable", "a script needs a first line such as `#!/bin/sh`", ""),
        ("lost", "tool_unusable", "the interpreter in its first line does not exist", ""),
        ("open", "tool_unusable", "is writable by every user", "chmod o-w"),
    ] {
        let envelope = call(&program, tool, &json!({ "password": "hunter2hunter2" }));
        assert_eq!(error(&envelope).0, code, "{envelope}");
        let class = if code == "tool_execution_error" { "business" } else { "system" };
        assert_eq!(envelope["error"]["class"], class, "{envelope}");
        assert!(error(&envelope).1.contains(expected), "{envelope}");
        assert!(envelope["error"]["hint"].as_str().unwrap_or_default().contains(hint), "{envelope}");
    }
    // The arguments are logged with secrets masked.
    let log = program.run("log --json").stdout;
    assert!(log.contains("fails.sh") && !log.contains("hunter2"), "{log}");
}

#[test]
fn scripts_must_be_in_their_folder() {
    let program = project(&[("inside.sh", "#!/bin/sh\necho in\n", json!({})), ("late.sh", "", json!({}))]);
    program.write("outside.sh", "#!/bin/sh\necho out\n");
    mode(&program, "outside.sh", 0o755);
    let link = |target: &str, name: &str| {
        let _ = fs_err::remove_file(program.path(name));
        std::os::unix::fs::symlink(program.path(target), program.path(name)).expect("a symbolic link");
    };
    link("outside.sh", "tools/late.sh");
    let run = program.run("check");
    assert_eq!(run.code, 78, "{run}");
    // A file replaced by such a link at run time is noticed as well.
    link("tools/inside.sh", "tools/late.sh");
    let gateway = crate::support::gateway::Gateway::serve(
        program.with("TOOLGATE_API_KEY", crate::support::gateway::OWNER),
    );
    let _ = fs_err::remove_file(gateway.program.path("tools/inside.sh"));
    std::os::unix::fs::symlink(gateway.program.path("outside.sh"), gateway.program.path("tools/inside.sh"))
        .expect("a symbolic link");
    let answer = gateway.call(crate::support::gateway::OWNER, "inside", &json!({}));
    assert_eq!(answer.status_and_code().1, "tool_unusable", "{answer:?}");
    assert!(answer.body.contains("leads outside of its folder"), "{answer:?}");
}

#[test]
fn valid_results() {
    let text = |envelope: &Json| envelope["data"][0]["text"].clone();
    assert_eq!(shell("echo '{\"n\": 1.0}'", json!({}))["data"], json!({ "n": 1.0 }));
    assert_eq!(text(&shell("cat", json!({ "a": "b" }))), Json::Null);
    assert_eq!(shell("cat", json!({ "a": "b" }))["data"], json!({ "a": "b" }));
    assert_eq!(text(&shell("echo hello; echo world", json!({}))), "hello\nworld");
    assert_eq!(text(&shell("echo '[1,2]'", json!({}))), "[1,2]");
    assert_eq!(shell("true", json!({}))["data"], json!([]));
    let image = r#"echo '{"content":[{"type":"image","data":"","mimeType":"image/png"}]}'"#;
    assert_eq!(shell(image, json!({}))["data"][0]["type"], "image");
    let envelope = shell(r#"echo '{"content":[{"type":"text","text":"no"}],"isError":true}'"#, json!({}));
    assert_eq!(error(&envelope), ("tool_execution_error", "no"));
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
fn invalid_results() {
    for (source, expected) in [
        ("return {'a': float('nan')}", "not JSON: ValueError: Out of range float values"),
        ("return object()", "not JSON: TypeError: Object of type object"),
        ("return '\\ud800'", "not JSON: UnicodeEncodeError"),
        ("a = []; a.append(a); return a", "not JSON: ValueError: Circular reference"),
        ("raise KeyError('card')", "KeyError: 'card'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("return args['nothing']", "KeyError: 'nothing'"),
    ] {
        let envelope = python(&format!("def run(args):\n  {source}"), json!({}));
        assert_eq!(error(&envelope).0, "tool_execution_error", "{source}: {envelope}");
        assert!(error(&envelope).1.contains(expected), "{source}: {envelope}");
        // The traceback is only in the log.
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
fn tracebacks_are_logged() {
    let program =
        project(&[("tool.py", "def deep():\n  return 1 / 0\ndef run(args):\n  return deep()", json!({}))]);
    let envelope = call(&program, "tool", &json!({}));
    assert_eq!(error(&envelope), ("tool_execution_error", "ZeroDivisionError: division by zero"));
    let log = program.run("log --json").stdout;
    assert!(log.contains("in deep") && log.contains("tool.py") && !log.contains("<string>"), "{log}");
}

#[test]
fn python_files_that_fail_to_load() {
    for (source, expected, hint) in [
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
        assert_eq!(error(&envelope).0, "tool_unusable", "{envelope}");
        assert!(error(&envelope).1.contains(expected), "{source}: {envelope}");
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

/// Creates the essential files of `python3 -m venv .venv` and returns the folder of packages. `python3` may be a
/// wrapper script, so its real path is linked.
#[expect(clippy::disallowed_methods, reason = "the interpreter itself knows where it is")]
fn virtual_environment(program: &Program) -> String {
    let code = "import os, sys; print(os.path.realpath(sys.executable), '%d.%d' % sys.version_info[:2])";
    let output =
        std::process::Command::new("python3").args(["-c", code]).output().expect("Python is installed");
    let text = String::from_utf8(output.stdout).expect("text");
    let (real, version) = text.trim().rsplit_once(' ').expect("a path and a version");
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
fn signatures_of_python_functions() {
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
fn printed_output_does_not_affect_the_result() {
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
    // A script that ignores its stdin does not block.
    let unread = shell("echo done", json!({ "text": "x".repeat(100_000) }));
    assert_eq!(unread["data"][0]["text"], "done");
}

/// The environment of a script.
#[test]
fn a_script_gets_only_what_is_configured() {
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
    // Nothing of Toolgate: two pipes, stderr twice, an empty stdin, and the listing itself.
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
    // Secrets of a script are masked in its errors.
    let program = project(&[(
        "leak.sh",
        "#!/bin/sh\necho \"no: $KEY\" >&2; exit 4\n",
        json!({ "env": { "KEY": "quite-a-secret" } }),
    )]);
    let leaked = call(&program, "leak", &json!({}));
    assert_eq!(error(&leaked).1, "`tools/leak.sh` exited with code 4: no: ***");
}

/// Reads the environment of every process above the script. As root the kernel would allow it anyway, so the program
/// then runs as another user.
#[test]
#[cfg(target_os = "linux")]
fn the_environment_of_the_gateway_is_hidden() {
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65534;
    let source = r#"
def run(args):
    found, denied, pid = [], 0, 'self'
    while pid != '0':
        fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
        pid = fields[1]
        try:
            found += [pid] if 'owner-key-of-this-test' in open(f'/proc/{pid}/environ').read() else []
        except (PermissionError, FileNotFoundError):
            denied += 1
    return {'found': found, 'denied': denied > 0}
"#;
    let program = project(&[("tool.py", source, json!({}))])
        .with("TOOLGATE_API_KEY", "owner-key-of-this-test-0123456789");
    let mut command = program.command(&["tools", "call", "tool", "--args", "{}"]);
    if rustix::process::geteuid().is_root() {
        let scratch = program.project.parent().expect("it is in a folder").to_owned();
        let mut folders = vec![scratch];
        while let Some(path) = folders.pop() {
            chown(&path, Some(NOBODY), Some(NOBODY)).expect("root may");
            let entries = fs_err::read_dir(&path).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()));
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            crate::support::program::report_skipped(&format!(
                "another user cannot start the executable: {error}"
            ));
            return;
        }
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stdout.trim(), r#"{"found":[],"denied":true}"#, "{stderr}");
}

#[test]
fn memory_is_limited() {
    let source = "held = []\ndef run(args):\n  held.append(bytearray(args['mib'] << 20))\n  return len(held)";
    let program =
        project(&[("tool.py", source, json!({})), ("small.py", source, json!({ "max_memory": "128MiB" }))]);
    assert_eq!(call(&program, "tool", &json!({ "mib": 300 }))["data"][0]["text"], "1");
    let failed = call(&program, "small", &json!({ "mib": 300 }));
    let expected = "MemoryError: the tool needs more than its `max_memory` of 128MiB";
    assert_eq!(error(&failed), ("tool_execution_error", expected));
    let failed = call(&program, "tool", &json!({ "mib": 2000 }));
    assert!(error(&failed).1.contains("max_memory` of 1GiB"), "{failed}");
    let little = project(&[("tool.py", source, json!({ "max_memory": "1MiB" }))]).run("check");
    assert_eq!(little.code, 78, "{little}");
    assert!(little.stderr.contains("`1MiB` is too little memory in tool `tool`"), "{little}");
}

#[test]
fn a_killed_worker_is_reported() {
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

/// A child, a child in its own session, a daemon forked twice, and one that ignores SIGTERM; all hold stdout.
const FORKS: &str = "sleep 600 &\nsetsid sleep 600 &\n(setsid sleep 600 &) &\n(trap '' TERM; sleep 600; sleep 600) &\nsleep 600";

#[test]
fn a_timeout_ends_all_processes() {
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
        // After the command returned, all processes are gone.
        assert_eq!(processes_left(&format!("TOOLGATE_TEST_MARKER={marker}")), 0, "{tool}");
    }
    // A tool that exits by itself leaves no process either.
    assert_eq!(call(&program, "quick", &json!({}))["data"], json!({}));
    wait_until("nothing is left", || processes_left(&format!("TOOLGATE_TEST_MARKER={marker}")) == 0);
}

/// Each use of a deprecated tool is logged and recorded. A tool past its last day is listed as removed.
#[test]
fn deprecated_tools_warn_until_they_are_removed() {
    let deprecated = |date: &str| json!({ "deprecated": { "since": "2.0.0", "replacement": "new", "removal_date": date } });
    let program = project(&[
        ("old.py", "def run(args): return 1\n", deprecated("9999-12-31")),
        ("gone.py", "def run(args): return 1\n", deprecated("2020-01-01")),
        ("new.py", "def run(args): return 1\n", json!({})),
    ]);
    for _ in 0..2 {
        let run = program.run("tools call old");
        let warning = "Tool 'old' is deprecated since 2.0.0: use 'new'; calls are refused after 9999-12-31";
        assert!(run.code == 0 && run.stderr.contains("WARN") && run.stderr.contains(warning), "{run}");
    }
    assert_eq!(error(&call(&program, "gone", &json!({}))).0, "deprecated_removed");
    call(&program, "new", &json!({}));
    let log = program.run("log --json").stdout;
    let log: Vec<Json> = log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    let uses: Vec<_> = log.iter().filter(|call| call["begin"]["deprecated"] == true).collect();
    assert!(uses.len() == 2 && uses.iter().all(|call| call["begin"]["tool"] == "old"), "{log:?}");
    let listed: Json = serde_json::from_str(&program.run("tools list --json").stdout).expect("a list");
    let states: Vec<_> =
        listed.as_array().expect("tools").iter().map(|tool| (&tool["name"], &tool["state"])).collect();
    let expected = [("old", "ready"), ("gone", "removed"), ("new", "ready")];
    for (name, state) in expected {
        assert!(states.contains(&(&json!(name), &json!(state))), "{states:?}");
    }
    assert!(program.run("tools list").stdout.contains("[removed: it was removed after 2020-01-01]"));
}

/// A `myai` tree has local tools: entries of `tools/tools.json`, with settings in its toolbox.
#[test]
fn a_myai_project_has_local_tools() {
    let source = "def run(a, b): return {'sum': a + b}\n";
    let schema =
        json!({ "type": "object", "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } } });
    let program = project(&[("sum_numbers.py", source, json!({ "input_schema": schema }))]);
    let tree = |tools: &str| {
        format!("myai:\n  toolbox:\n    max_concurrent: 10\n    tools: [{tools}]\n    mcps: []\n")
    };
    program.write("config.yaml", tree("{ name: sum_numbers, max_instances: 20 }"));
    assert_eq!(call(&program, "sum_numbers", &json!({ "a": 2, "b": 3 }))["data"], json!({ "sum": 5 }));
    program.write("config.yaml", tree(""));
    let run = program.run("tools list");
    assert_eq!(run.code, 78, "{run}");
    assert!(run.stderr.contains("Local tool 'sum_numbers' is not configured in the toolbox"), "{run}");
    assert!(run.stderr.contains("hint: add it to `myai.toolbox.tools`"), "{run}");
}
