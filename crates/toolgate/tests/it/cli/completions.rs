//! Completions in a real shell: commands, options, and the names of the project.

use std::process::Command;

use crate::support::program::Program;

/// Sources the script in bash and completes the last word of each line, as bash does.
const COMPLETE: &str = r#"
source <(toolgate completions bash)
while IFS= read -r line; do
  eval "COMP_WORDS=($line)"
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  _clap_complete_toolgate toolgate "${COMP_WORDS[COMP_CWORD]}" ""
  printf '%s ' "${COMPREPLY[@]}"
  echo
done
"#;

fn project() -> Program {
    let program = Program::new(&[
        (
            "toolgate.yaml",
            "registries: { tools: tools.json, mcp: mcp.json }\n\
             openapi: { shop: { document: shop.yaml, base_url: http://127.0.0.1:9 } }\n\
             callers: [{ id: ann, permissions: [\"*:*\"] }]\n\
             profiles: { small: { tools: [add] } }\n",
        ),
        (
            "tools.json",
            r#"{ "tools": [{ "name": "add", "description": "Adds.", "type": "local", "input_schema": { "type": "object" } }] }"#,
        ),
        ("add.py", "def run(args):\n    return {}\n"),
        ("mcp.json", r#"{ "servers": { "files": { "command": "true" } } }"#),
        (
            "shop.yaml",
            "openapi: 3.1.0\ninfo: { title: Shop, version: '1' }\n\
             paths: { /orders: { get: { operationId: list_orders, responses: { '200': { description: Orders } } } } }\n",
        ),
    ]);
    fs_err::create_dir_all(program.path("~/bin")).expect("the folder is writable");
    let toolgate = env!("CARGO_BIN_EXE_toolgate");
    std::os::unix::fs::symlink(toolgate, program.path("~/bin/toolgate")).expect("the folder is writable");
    program
}

/// Returns the completions of each line. The words are in quotes as a shell needs them.
#[expect(clippy::disallowed_methods, reason = "the shell of the user")]
fn complete(program: &Program, lines: &[&str]) -> Vec<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    program.write("~/lines", lines.join("\n") + "\n");
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", COMPLETE]).current_dir(&program.project).env_clear();
    command.env("HOME", &program.home).env("PATH", format!("{}:{path}", program.path("~/bin").display()));
    command.stdin(fs_err::File::open(program.path("~/lines")).expect("just written").into_file());
    let output = command.output().expect("bash is installed");
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    shown.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn completes_commands_and_names_of_the_project() {
    let program = project();
    let before = program.files();
    let lines = [
        ("toolgate ser", "servers serve"),
        ("toolgate tools ca", "call"),
        ("toolgate tools call a", "add"),
        ("toolgate tools show list", "list_orders"),
        ("toolgate servers approve fi", "files"),
        ("toolgate why an", "ann"),
        ("toolgate why ann a", "add"),
        ("toolgate callers keys add o", "owner"),
        ("toolgate tools list --as a", "ann"),
        ("toolgate tools list --profile sm", "small"),
        ("toolgate -C .. tools call a", ""),
        // A new name is not one of the existing ones.
        ("toolgate servers add fi", ""),
        ("toolgate tools new a", ""),
        ("toolgate shi", ""),
    ];
    let completed = complete(&program, &lines.map(|(line, _)| line));
    for ((line, expected), completed) in lines.iter().zip(completed) {
        assert_eq!(completed, *expected, "{line}");
    }
    let mut after = program.files();
    after.remove(&program.path("~/lines"));
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "it wrote a file");
}

#[test]
fn installs_and_removes_scripts() {
    let program = Program::new(&[]);
    let places = [
        ("bash", "~/.local/share/bash-completion/completions/toolgate"),
        ("fish", "~/.config/fish/completions/toolgate.fish"),
        ("zsh", "~/.local/share/toolgate/completions/_toolgate"),
    ];
    for (shell, place) in places {
        let run = program.run(&format!("completions {shell} --install"));
        assert!(run.code == 0 && run.stderr.starts_with("wrote [home]/"), "{run}");
        assert_eq!(program.read(place), program.run(&format!("completions {shell}")).stdout);
        let run = program.run(&format!("completions {shell} --uninstall"));
        assert!(run.code == 0 && !program.path(place).exists(), "{run}");
        // Nothing is left to remove.
        assert_eq!(program.run(&format!("completions {shell} --uninstall")).code, 0);
    }
    let run = program.run("completions elvish --install");
    assert!(run.code == 1 && run.stderr.contains("elvish has no folder for completions"), "{run}");
    // The variables of the user count; here the folder is a file.
    program.write("file", "");
    let file = program.path("file").display().to_string();
    assert_eq!(program.with("XDG_CONFIG_HOME", &file).run("completions fish --install").code, 1);
}
