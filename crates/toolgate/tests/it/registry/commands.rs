//! Tools and servers that change: by edits while `toolgate` runs, and by commands.

use serde_json::{Value as Json, json};

use crate::support::program::{Program, report_skipped};
use crate::support::test_server::entry;

fn servers(names: &[&str]) -> String {
    let servers: serde_json::Map<_, _> =
        names.iter().map(|name| ((*name).to_owned(), entry("good"))).collect();
    json!({ "servers": servers }).to_string()
}

fn event(line: &str) -> Json {
    serde_json::from_str(line).expect("one object on a line")
}

fn is_server(line: &str, name: &str, state: &str) -> bool {
    let event = event(line);
    event["event"] == "server" && event["name"] == name && event["state"] == state
}

#[test]
fn edits_reach_a_running_process() {
    let program = Program::new(&[("mcp.json", &servers(&["one"]))]);
    let watch = program.start("servers --watch --json");
    watch.line(|line| is_server(line, "one", "ready"));

    program.write("mcp.json", servers(&["one", "two"]));
    watch.line(|line| is_server(line, "two", "ready"));
    watch.line(|line| event(line)["name"] == "two__echo" && event(line)["change"] == "added");

    // Errors are reported, and the last valid state stays.
    program.write("mcp.json", "{ \"servers\": { \"one\": ");
    let (line, _) = watch.line(|line| event(line)["event"] == "registry");
    assert_eq!(event(&line)["refused"], true, "{line}");
    assert_eq!(event(&line)["problems"][0]["place"], "mcp.json:1:23", "{line}");

    program.write("mcp.json", servers(&["two"]));
    let events = std::cell::RefCell::new(Vec::new());
    watch.line(|line| {
        events.borrow_mut().push(event(line));
        let saw = |fits: &dyn Fn(&Json) -> bool| events.borrow().iter().any(fits);
        saw(&|event| event["event"] == "registry" && event["refused"] == false)
            && saw(&|event| event["name"] == "one" && event["state"] == "removed")
            && saw(&|event| event["server"] == "one" && event["change"] == "removed")
    });

    // Local tools, and settings of tools in the project file.
    program.write(
        "tools.json",
        r#"{"tools": [{"name": "sum", "description": "Adds.", "input_schema": {"type": "object"}}]}"#,
    );
    watch.line(|line| event(line)["name"] == "sum" && event(line)["change"] == "added");
}

const TOOLS: &str = r#"// our own
{
  "tools": [
    { "name": "echo", "description": "Says it again.", "input_schema": {"type": "object"}, "version": "1.10.0" }, // first
  ],
}
"#;

const SERVERS: &str = r#"{
  // kept
  "mcpServers": {
    "files": { "command": "files-server", "unknownKey": [1,2] } // by Ann
  }
}
"#;

/// Creates a project with comments in its registries and a script.
fn project() -> Program {
    Program::new(&[
        ("toolgate.yaml", "registries: { tools: tools/tools.json, mcp: mcp.json }\n"),
        ("tools/tools.json", TOOLS),
        ("tools/echo.py", ""),
        ("tools/sum.py", ""),
        ("mcp.json", SERVERS),
    ])
}

/// Returns the output of a command without its revision.
fn output_of(program: &Program, arguments: &[&str]) -> String {
    let run = program.run_list(arguments);
    let text = run.to_string();
    match text.split_once("revision ") {
        Some((before, after)) => format!("{before}revision [revision]{}", &after[16..]),
        None => text,
    }
}

fn revision(program: &Program) -> String {
    let run = program.run("tools remove echo --yes --json --if-revision 0000000000000000");
    assert_eq!((run.code, &run.json()["code"]), (1, &json!("conflict")), "{run}");
    run.json()["revision"].as_str().expect("the output names the registry").to_owned()
}

#[test]
fn tools_are_added_changed_and_removed() {
    let program = project();
    let add = ["tools", "add", "sum", "--script", "sum.py", "--description", "Adds.", "--set", "timeout=2s"];
    insta::assert_snapshot!(output_of(&program, &add), @"
    exit code 0
    ----- stdout
    added tool sum in tools/tools.json, revision [revision]
    ----- stderr
    ");
    insta::assert_snapshot!(program.read("tools/tools.json"), @r#"
    // our own
    {
      "tools": [
        { "name": "echo", "description": "Says it again.", "input_schema": {"type": "object"}, "version": "1.10.0" }, // first
        {
          "name": "sum",
          "description": "Adds.",
          "input_schema": {
            "type": "object"
          },
          "script_path": "sum.py",
          "timeout": "2s"
        },
      ],
    }
    "#);
    insta::assert_snapshot!(output_of(&program, &add), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is a tool `sum` already
    hint: use `update` to change it
    ");
    let update = ["tools", "update", "echo", "--set", "tags=[\"a\"]", "--unset", "version"];
    assert!(output_of(&program, &update).contains("changed tool echo in tools/tools.json"));
    let echo = r#"{ "name": "echo", "description": "Says it again.", "input_schema": {"type": "object"}, "tags": ["a"] }, // first"#;
    assert!(program.read("tools/tools.json").contains(echo), "{}", program.read("tools/tools.json"));
    assert_eq!(program.run("tools remove sum --yes").code, 0);
    let expected = TOOLS.replace(r#""version": "1.10.0""#, r#""tags": ["a"]"#);
    assert_eq!(program.read("tools/tools.json"), expected);
    assert_eq!(program.run("check").code, 0);
}

#[test]
fn servers_are_added_changed_and_removed() {
    let program = project().with("TOKEN", "a-secret-of-mine");
    let add = [
        "servers",
        "add",
        "web",
        "--url",
        "https://web.example.com/mcp",
        "--header",
        "Authorization=Bearer ${TOKEN}",
    ];
    let run = program.run_list(&add);
    assert_eq!(run.code, 0, "{run}");
    let expected = SERVERS.replace(
        " // by Ann",
        r#", // by Ann
    "web": {
      "url": "https://web.example.com/mcp",
      "headers": {
        "Authorization": "Bearer ${TOKEN}"
      }
    }"#,
    );
    assert_eq!(program.read("mcp.json"), expected, "the reference stays one");
    let update = "servers update web --set headers.X-Team=blue --set request_timeout=10s --json";
    assert_eq!(program.run(update).json()["change"], "changed");
    assert!(
        program
            .read("mcp.json")
            .contains("\"Authorization\": \"Bearer ${TOKEN}\",\n        \"X-Team\": \"blue\"\n")
    );
    program.write("entry.json", r#"{"command": "uvx", "args": ["web"], "env": {"KEY": "${TOKEN}"}}"#);
    assert_eq!(program.run("servers update web --from entry.json").code, 0);
    assert!(program.read("mcp.json").contains(r#""args": ["web"],"#));
    assert_eq!(program.run("servers add local --env MODE=x -- local-server --flag").code, 0);
    let servers = program.run("check --json").json()["servers"].clone();
    let names: Vec<_> =
        servers.as_array().expect("a list").iter().map(|server| server["name"].clone()).collect();
    assert_eq!(names, ["files", "web", "local"]);
    for name in ["web", "local"] {
        assert_eq!(program.run(&format!("servers remove {name} --yes")).code, 0);
    }
    assert_eq!(program.read("mcp.json"), SERVERS);
    // A plain secret is written as given and never shown.
    let run = program.run("servers add plain --env API_TOKEN=hunter2hunter2 --mode nonsense -- x");
    assert_eq!(run.code, 2, "{run}");
    let run = program.run("servers add plain --env API_TOKEN=hunter2hunter2 --set startup=nonsense -- x");
    assert_eq!(run.code, 1, "{run}");
    assert!(
        run.stderr.contains("note: the value of `API_TOKEN` is written to the file in plain text"),
        "{run}"
    );
    assert!(!run.to_string().contains("hunter2"), "{run}");
}

#[test]
fn a_change_with_a_revision_applies_once() {
    let program = project();
    let revision = revision(&program);
    let update = |value: &str| {
        program.run(&format!("tools update echo --set version={value} --if-revision {revision} --json"))
    };
    let first = update("2.0.0");
    assert_eq!(first.code, 0, "{first}");
    let second = update("3.0.0");
    assert_eq!((second.code, &second.json()["code"]), (1, &json!("conflict")), "{second}");
    assert_eq!(second.json()["revision"], first.json()["revision"], "the error names the current revision");
    assert!(program.read("tools/tools.json").contains("2.0.0"));
    assert_eq!(program.run("tools update echo --set version=1 --if-revision now").code, 2);
}

#[test]
fn scripts_outside_of_the_folder_are_rejected() {
    let program = project();
    fs_err::os::unix::fs::symlink("/bin/sh", program.path("tools/link.py")).expect("a new link");
    let (before, revision_before) = (program.files(), revision(&program));
    let long = format!("{}.py", "x".repeat(300));
    for script in ["../../bin/sh", "a/../b", "/bin/sh", "x\\u0000.py", "con.py ", &long, "link.py", ""] {
        let entry = format!(
            r#"{{"name": "bad", "description": "x", "input_schema": {{"type": "object"}}, "script_path": "{script}"}}"#
        );
        program.write("~/entry.json", entry);
        let file = program.path("~/entry.json");
        let run = program.run_list(&["tools", "add", "--json", "--from", file.to_str().expect("a path")]);
        assert_eq!((run.code, &run.json()["code"]), (1, &json!("invalid")), "{script:?}: {run}");
        let why = run.json()["problems"][0]["message"].to_string();
        assert!(why.contains("cannot be the script"), "{script:?}: {run}");
    }
    for name in ["", "a b", "x/y", &"n".repeat(200)] {
        let run = program.run_list(&["tools", "add", name, "--description", "x", "--json"]);
        assert_eq!((run.code, &run.json()["code"]), (1, &json!("invalid")), "{name:?}: {run}");
    }
    fs_err::remove_file(program.path("~/entry.json")).expect("it was written");
    assert_eq!(program.files(), before, "not a byte has changed");
    assert_eq!(revision(&program), revision_before);
}

#[test]
fn invalid_files_stay_unchanged() {
    for (file, text) in [
        ("tools/tools.json", "{\"tools\": ["),
        ("tools/tools.json", "{\"tools\": [{\"name\": \"a\"}]}"),
        ("mcp.json", "{\"servers\": {\"x\": {}}}"),
        ("toolgate.yaml", "registries: { tools: tools/tools.json, mcp: mcp.json }\nunknown: 1\n"),
    ] {
        let program = project();
        program.write(file, text);
        let before = program.files();
        for arguments in ["tools add sum --description x --json", "servers add web --json -- web-server"] {
            let run = program.run(arguments);
            assert_eq!(run.code, 78, "{file}: {run}");
            assert_eq!(run.json()["code"], "configuration_refused", "{run}");
            assert_eq!(program.files(), before);
        }
    }
    let other = Program::new(&[("toolgate.yaml", "name: none\n")]);
    insta::assert_snapshot!(other.run("servers add web -- web-server"), @r#"
    exit code 1
    ----- stdout
    ----- stderr
    error: the project has no file for MCP servers
    hint: add `registries: { mcp: mcp.json }` to toolgate.yaml and create the file with `{"servers": {}}`
    "#);
    // Without a project file, the default registry is created.
    let bare = Program::new(&[("mcp.json", "{\"servers\": {}}\n")]);
    assert_eq!(bare.run("servers add web -- web-server").code, 0);
    assert_eq!(bare.read("mcp.json"), "{\"servers\": {\"web\":{\"command\":\"web-server\"}}}\n");
    assert_eq!(bare.run("tools add sum --description Adds.").code, 0);
    assert!(bare.read("tools.json").starts_with("{\n  \"tools\": [\n    {\n      \"name\": \"sum\","));
}

/// Every system call of the change fails once. After a reported success the file has the change, otherwise the old
/// content.
#[test]
fn disk_errors_lose_nothing() {
    if !has_strace() {
        report_skipped("strace does not work here; `apt-get install strace` installs it");
        return;
    }
    let old = TOOLS.to_owned();
    let new = {
        let program = project();
        assert_eq!(program.run("tools update echo --set version=2.0.0").code, 0);
        program.read("tools/tools.json")
    };
    let mut failed = 0;
    let every = ["EIO", "ENOSPC", "EMFILE"];
    let kinds: [(&str, &[&str], u32); 5] = [
        ("fsync", &every, 4),
        ("fdatasync", &every, 2),
        ("rename,renameat,renameat2", &every, 2),
        ("write", &every, 6),
        ("openat", &["EMFILE"], 60),
    ];
    for (call, errors, most) in kinds {
        for (error, at) in errors.iter().flat_map(|error| (1..=most).map(move |at| (error, at))) {
            let program = project();
            let trace = program.path("~/trace");
            let inject = format!("inject={call}:error={error}:when={at}");
            let run = change_with_error(&program, &inject, &trace);
            let found = program.read("tools/tools.json");
            let expected = if run { &new } else { &old };
            assert_eq!(found, *expected, "{call} {at}: success is {run}");
            failed += usize::from(!run);
            no_sync_is_tried_again(&fs_err::read_to_string(&trace).unwrap_or_default());
            // The next change succeeds and removes temporary files.
            assert_eq!(program.run("tools update echo --set version=2.0.0").code, 0, "{call} {at}");
            assert_eq!(program.read("tools/tools.json"), new);
            let left = fs_err::read_dir(program.path("tools")).expect("a folder").count();
            assert_eq!(left, 3, "{call} {at}: a temporary file is left");
        }
    }
    assert!(failed > 10, "{failed} failures are too few");
}

fn has_strace() -> bool {
    #[expect(clippy::disallowed_methods, reason = "to know whether it can be used")]
    let output = std::process::Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a change with an injected error; returns true if it reports success.
#[expect(clippy::disallowed_methods, reason = "the executable runs under another program")]
fn change_with_error(program: &Program, inject: &str, trace: &std::path::Path) -> bool {
    let plain = program.command(&["tools", "update", "echo", "--set", "version=2.0.0"]);
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=openat,write,fsync,fdatasync,rename,renameat,renameat2,close"]);
    command.args(["-e", inject, "-o"]).arg(trace).arg(plain.get_program()).args(plain.get_args());
    command.current_dir(&program.project).env_clear().env("HOME", &program.home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.output().expect("strace starts").status.code() == Some(0)
}

/// After a failed fsync, the descriptor is closed and not synced again.
fn no_sync_is_tried_again(trace: &str) {
    let mut failed: Vec<&str> = Vec::new();
    for line in trace.lines() {
        let Some((call, rest)) = line.split_once('(') else { continue };
        let descriptor = rest.split([')', ',']).next().unwrap_or_default();
        if call.ends_with("close") {
            failed.retain(|known| *known != descriptor);
        } else if call.ends_with("fsync") || call.ends_with("fdatasync") {
            assert!(!failed.contains(&descriptor), "synced again after a failure: {line}");
            if rest.contains("(INJECTED)") {
                failed.push(descriptor);
            }
        }
    }
}
