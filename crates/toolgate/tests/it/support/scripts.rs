//! Projects with script tools.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value as Json, json};

use crate::support::program::Program;

/// A script tool: its file, its source, and more keys of its entry.
pub(crate) type Tool<'a> = (&'a str, &'a str, Json);

/// Creates a project with these tools, named after their files.
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

/// Writes a script; makes it executable unless it is Python.
pub(crate) fn write_script(program: &Program, file: &str, text: &str) {
    let path = format!("tools/{file}");
    program.write(&path, text);
    if !file.ends_with(".py") {
        mode(program, &path, 0o755);
    }
}

pub(crate) fn mode(program: &Program, path: &str, bits: u32) {
    let permissions = std::fs::Permissions::from_mode(bits);
    fs_err::set_permissions(program.path(path), permissions).expect("it is our file");
}

/// Calls a tool; returns the envelope.
pub(crate) fn call(program: &Program, tool: &str, arguments: &Json) -> Json {
    let run = program.run_list(&["tools", "call", tool, "--args", &arguments.to_string(), "--json"]);
    let envelope: Json = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("no document: {run}"));
    assert_eq!(run.code == 0, envelope["status"] == "success", "{run}");
    envelope
}
