//! Servers that are packages, with fake package runners.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value as Json, json};

use crate::support::program::Program;
use crate::support::test_server::{project, testkit};

/// Creates a project with one server, on a machine with only these programs. Each writes its arguments to a file of its
/// name, sleeps for some seconds and then runs a good server.
fn machine(server: Json, programs: &[(&str, u32)]) -> Program {
    let program = project(json!({ "package": server }));
    for (name, seconds) in programs {
        let kept = program.path(name).display().to_string();
        let server = testkit().display();
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$0 $*\" > {kept}\n/bin/sleep {seconds}\nexec {server} good\n"
        );
        let path = format!("bin/{name}");
        program.write(&path, script);
        let mode = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(program.path(&path), mode).expect("the file is writable");
    }
    let path = program.path("bin").display().to_string();
    program.with("PATH", &path)
}

#[test]
fn a_python_package_uses_an_installed_runner() {
    let server = json!({ "server": "some-package", "args": ["--flag"] });
    for (programs, runs, line) in
        [(&["uvx", "pipx"][..], "uvx", "some-package --flag"), (&["pipx"], "pipx", "run some-package --flag")]
    {
        let programs: Vec<_> = programs.iter().map(|name| (*name, 0)).collect();
        let program = machine(server.clone(), &programs);
        let run = program.run("tools call package__echo message=x");
        assert_eq!(run.code, 0, "{}", run.stderr);
        let bin = program.path(&format!("bin/{runs}")).display().to_string();
        assert_eq!(program.read(runs).trim(), format!("{bin} {line}"));
    }
}

#[test]
fn a_python_package_without_a_runner() {
    let run = machine(json!({ "server": "some-package" }), &[]).run("servers --json");
    let reason = run.json()[0]["reason"].as_str().expect("a text").to_owned();
    let expected =
        "neither `uvx` nor `pipx` was found (install uv, which brings `uvx`, or `pipx`; looked in `PATH=";
    assert!(reason.starts_with(expected), "{reason}");
    // A configured runner is used.
    let run = machine(json!({ "command": "uvx", "args": ["p"] }), &[("pipx", 0)]).run("servers --json");
    let reason = run.json()[0]["reason"].as_str().expect("a text").to_owned();
    assert!(reason.starts_with("command `uvx` was not found"), "{reason}");
}

#[test]
fn a_slow_first_start_is_explained_once() {
    let note = "package is still starting; the first start of a package downloads it\n";
    let server = json!({ "server": "@scope/package" });
    let run = machine(server, &[("npx", 3)]).run("tools list --json");
    assert_eq!((run.code, run.stderr.matches(note).count()), (0, 1), "{}", run.stderr);
    // The note is not shown for other programs.
    let run = machine(json!({ "command": "slow" }), &[("slow", 3)]).run("tools list");
    assert_eq!((run.code, run.stderr.matches(note).count()), (0, 0), "{}", run.stderr);
}
