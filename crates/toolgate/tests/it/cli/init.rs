//! `toolgate init`: creates a project and never overwrites a file.

use std::path::Path;

use insta::assert_snapshot;

use crate::support::program::Program;

#[test]
fn in_an_empty_folder() {
    let program = Program::new(&[]);
    assert_snapshot!(program.run("init"), @"
    exit code 0
    ----- stdout
    ----- stderr
    wrote toolgate.yaml
    wrote mcp.json
    wrote tools/tools.json
    wrote tools/word_count.py
    wrote tools/disk_usage.sh
    wrote .gitignore
    next: run `toolgate check` to see the project; add your MCP servers with `toolgate import CLIENT`
    ");
    assert_eq!(program.run("check").code, 0);
}

#[test]
fn in_a_new_folder() {
    let program = Program::new(&[]);
    assert_snapshot!(program.run("init deep/new"), @"
    exit code 0
    ----- stdout
    ----- stderr
    wrote deep/new/toolgate.yaml
    wrote deep/new/mcp.json
    wrote deep/new/tools/tools.json
    wrote deep/new/tools/word_count.py
    wrote deep/new/tools/disk_usage.sh
    wrote deep/new/.gitignore
    next: run `toolgate -C deep/new check` to see the project; add your MCP servers with `toolgate -C deep/new import CLIENT`
    ");
    assert_eq!(program.run("-C deep/new check").code, 0);
}

#[test]
fn in_the_project_folder() {
    let program = Program::new(&[]);
    assert_snapshot!(program.run("-C other init"), @"
    exit code 0
    ----- stdout
    ----- stderr
    wrote other/toolgate.yaml
    wrote other/mcp.json
    wrote other/tools/tools.json
    wrote other/tools/word_count.py
    wrote other/tools/disk_usage.sh
    wrote other/.gitignore
    next: run `toolgate -C other check` to see the project; add your MCP servers with `toolgate -C other import CLIENT`
    ");
    assert_eq!(program.run("-C other check").code, 0);
}

#[test]
fn as_json() {
    let program = Program::new(&[]);
    let run = program.run("--json init new");
    assert_eq!(run.json()["files"].as_array().unwrap().len(), 6);
    assert_snapshot!(run, @r#"
    exit code 0
    ----- stdout
    {
      "ok": true,
      "project": "new",
      "files": [
        "toolgate.yaml",
        "mcp.json",
        "tools/tools.json",
        "tools/word_count.py",
        "tools/disk_usage.sh",
        ".gitignore"
      ]
    }
    ----- stderr
    next: run `toolgate -C new check` to see the project; add your MCP servers with `toolgate -C new import CLIENT`
    "#);
}

#[test]
fn nothing_is_overwritten() {
    let program = Program::new(&[("mcp.json", "mine"), (".gitignore", "mine")]);
    let before = program.files();
    assert_snapshot!(program.run("init"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: `mcp.json` is already in `.`; nothing was written
    hint: name another folder: `toolgate init DIR`
    ");
    assert_snapshot!(program.run("init --json"), @r#"
    exit code 1
    ----- stdout
    {
      "ok": false,
      "error": "`mcp.json` is already in `.`; nothing was written",
      "causes": [],
      "hint": "name another folder: `toolgate init DIR`"
    }
    ----- stderr
    error: `mcp.json` is already in `.`; nothing was written
    hint: name another folder: `toolgate init DIR`
    "#);
    assert!(program.files() == before);
}

#[test]
fn a_folder_that_cannot_be_created() {
    let program = Program::new(&[("file", "")]);
    let before = program.files();
    assert_snapshot!(program.run("init file/new"), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: the project could not be written to `file/new`
      because: failed to create directory `./file/new`: Not a directory (os error 20)
    ");
    assert!(program.files() == before);
}

#[test]
fn the_files_equal_the_quickstart() {
    let program = Program::new(&[]);
    program.run("init");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart");
    for (path, bytes) in program.files() {
        let name = path.strip_prefix(&program.project).unwrap();
        // Only the name differs: it is that of the folder.
        let text = String::from_utf8(bytes).unwrap().replace("name: project\n", "name: quickstart\n");
        assert!(fs_err::read_to_string(example.join(name)).unwrap() == text, "{}", name.display());
    }
}

#[cfg(unix)]
#[test]
fn scripts_are_executable() {
    use std::os::unix::fs::PermissionsExt;

    let program = Program::new(&[]);
    program.run("init");
    let mode = fs_err::metadata(program.path("tools/disk_usage.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn inside_a_repository() {
    let program = Program::new(&[(".gitignore", "/target"), ("README.md", "Mine.\n"), ("my app/x", "")]);
    assert_snapshot!(program.run("init"), @r"
    exit code 0
    ----- stdout
    ----- stderr
    wrote toolgate.yaml
    wrote mcp.json
    wrote tools/tools.json
    wrote tools/word_count.py
    wrote tools/disk_usage.sh
    extended .gitignore
    next: run `toolgate check` to see the project; add your MCP servers with `toolgate import CLIENT`
    ");
    assert_eq!(
        program.read(".gitignore"),
        "/target\n# Variables with secrets, for ${NAME} in toolgate.yaml and mcp.json.\n.env\n"
    );
    assert!(program.read("toolgate.yaml").contains("\nname: project\n"));
    assert_eq!(program.run("check").code, 0);
    // A name that needs quotes, and a file that has the line already.
    program.write("my app/.gitignore", ".env\n");
    let run = program.run_list(&["-C", "my app", "init"]);
    assert!(run.code == 0 && run.stderr.contains("kept my app/.gitignore"), "{run}");
    assert!(program.read("my app/toolgate.yaml").contains("\nname: \"my app\"\n"));
    assert_eq!(program.run_list(&["-C", "my app", "check"]).code, 0);
}
