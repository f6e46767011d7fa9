//! `check` rejects broken registries with the location, starts nothing and changes no file.

use std::time::Duration;

use crate::support::program::{Program, RunOutput};

const PROJECT: (&str, &str) = ("toolgate.yaml", "registries: { tools: tools/tools.json }\n");
const TOOL: &str = r#"{ "name": "echo", "description": "Says it again.", "input_schema": {} }"#;

/// Fails within a second with this location; all files stay unchanged.
fn refused(program: &Program, location: &str) -> RunOutput {
    let before = program.files();
    // The fastest of three runs, because the machine may be busy.
    let runs = [(); 3].map(|()| program.run("check"));
    let fastest = runs.iter().map(|run| run.took).min().expect("three runs");
    let [run, ..] = runs;
    assert!(fastest <= Duration::from_secs(1), "{fastest:?}");
    assert_eq!((run.code, run.stdout.as_str()), (78, ""), "{run}");
    assert!(run.stderr.contains(&format!("--> {location}\n")), "{location} is not in {run}");
    assert!(program.files() == before, "a file was changed");
    run
}

fn tools(text: &str, location: &str) {
    let program = Program::new(&[PROJECT, ("tools/tools.json", text), ("tools/echo.py", "")]);
    refused(&program, location);
}

#[test]
fn rejects_a_truncated_registry() {
    let whole = format!("{{\n  \"tools\": [\n    {TOOL}\n  ]\n}}\n");
    for length in 0..whole.trim_end().len() {
        let text = &whole[..length];
        let program = Program::new(&[PROJECT, ("tools/tools.json", text), ("tools/echo.py", "")]);
        let run = program.run("check");
        assert_eq!(run.code, 78, "{text}\n{run}");
        assert!(run.stderr.contains("--> tools/tools.json:"), "{text}\n{run}");
        assert_eq!(program.read("tools/tools.json"), text);
    }
    tools(&whole[..60], "tools/tools.json:3:38");
}

#[test]
fn rejects_an_empty_registry() {
    tools("{}", "tools/tools.json:1:1");
    tools("", "tools/tools.json:1:1");
}

#[test]
fn rejects_a_duplicate_name() {
    tools(&format!("{{ \"tools\": [\n  {TOOL},\n  {TOOL}\n] }}\n"), "tools/tools.json:3:13");
}

#[test]
fn rejects_an_unknown_field() {
    let tool = TOOL.replace("\"name\"", "\"colour\": \"red\", \"name\"");
    tools(&format!("{{ \"tools\": [\n  {tool}\n] }}\n"), "tools/tools.json:2:5");
}

#[test]
fn rejects_a_byte_order_mark() {
    tools(&format!("\u{feff}{{ \"tools\": [{TOOL}] }}\n"), "tools/tools.json:1:1");
}

#[test]
fn rejects_a_missing_registry() {
    let run = refused(&Program::new(&[PROJECT]), "toolgate.yaml:1:22");
    assert!(run.stderr.contains("the registry `tools/tools.json` does not exist"), "{run}");
    assert!(run.stderr.contains("`toolgate init`"), "{run}");
}

#[test]
fn rejects_an_unresolved_variable_in_mcp_json() {
    let files = [
        ("toolgate.yaml", "registries: { mcp: mcp.json }\n"),
        (
            "mcp.json",
            "{\n  \"servers\": { \"a\": { \"command\": \"a\", \"env\": { \"KEY\": \"x-${MISSING}\" } } }\n}\n",
        ),
    ];
    let run = refused(&Program::new(&files), "mcp.json:2:58");
    assert!(run.stderr.contains("environment variable `MISSING` is not set"), "{run}");
}

#[test]
fn rejects_a_dynamic_server_without_defaults() {
    let text =
        "toolbox:\n  mcps:\n    - { name: customers, url: 'http://localhost:8180/mcp', mode: dynamic }\n";
    let message = "error: MCP server 'customers' is configured with mode='dynamic' but missing required field \
                'default_tool_config'\n";
    let run = refused(&Program::new(&[("toolgate.yaml", text)]), "toolgate.yaml:3:66");
    assert!(run.stderr.starts_with(message), "{run}");
    let myai = format!("myai:\n  {}", text.replace('\n', "\n  "));
    let run = refused(&Program::new(&[("config.yaml", &myai)]), "config.yaml:4:68");
    assert!(run.stderr.starts_with(message), "{run}");
}

#[test]
fn nothing_is_started_or_written() {
    let program = Program::new(&[
        (
            "toolgate.yaml",
            "registries: { tools: tools.json, mcp: mcp.json }
toolbox:
  mcps:
    - { name: a, command: touch, args: [started_a], mode: strict, startup: required }
",
        ),
        ("mcp.json", r#"{ "servers": { "b": { "command": "sh", "args": ["-c", "touch started_b"] } } }"#),
        ("tools.json", &format!("{{ \"tools\": [{TOOL}] }}")),
        ("echo.py", "open('started_c', 'w')\n"),
        (".env", "A=1\n"),
    ]);
    let before = program.files();
    for arguments in ["check", "check --json", "--file mcp.json check", "schema", "import mcp.json --dry-run"]
    {
        let run = program.run(arguments);
        assert_eq!(run.code, 0, "{arguments}: {run}");
        assert!(program.files() == before, "`toolgate {arguments}` wrote something");
    }
}

/// A registry with millions of mistakes takes bounded memory, and the report is short enough to read.
#[test]
fn memory_is_bounded_for_a_registry_of_mistakes() {
    for (entry, count) in [("1", 1_000_000), ("{}", 700_000)] {
        let text = format!("{{ \"tools\": [{}{entry}] }}", format!("{entry},").repeat(count));
        let program = Program::new(&[PROJECT, ("tools/tools.json", &text)]);
        let (run, peak) = program.run_measured("check");
        assert_eq!(run.code, 78, "{entry}");
        assert!(run.stderr.len() < 1 << 20, "{} bytes of output", run.stderr.len());
        assert!(peak < 350 << 20, "{entry}: {} MiB", peak >> 20);
    }
}
