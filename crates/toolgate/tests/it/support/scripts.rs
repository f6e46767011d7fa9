//! Projects with script tools.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value as Json, json};

use crate::support::program::Program;

/// An MCP server in Python over stdio. Its environment has its tools in `TOOLS`, its capabilities in `CAPABILITIES`, a file
/// to add a line to at each start in `STARTED`, and in `FAULT` the way it answers calls. It echoes the arguments.
pub(crate) const SERVER_SCRIPT: &str = r#"
import json, os, sys
fault = os.environ.get("FAULT", "")
encoding = fault.split(" ")[1] if fault.startswith("encoding ") else "utf-8"
if "STARTED" in os.environ:
    with open(os.environ["STARTED"], "a") as file:
        file.write("started\n")

def send(message):
    sys.stdout.buffer.write((json.dumps(message, ensure_ascii=False) + "\n").encode(encoding))
    sys.stdout.buffer.flush()

for line in sys.stdin.buffer:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if id is None:
        continue
    reply = {"jsonrpc": "2.0", "id": id}
    if method == "initialize":
        capabilities = json.loads(os.environ.get("CAPABILITIES", '{"tools": {}}'))
        reply["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                           "serverInfo": {"name": "scripted", "version": "1"}}
    elif method == "tools/list":
        reply["result"] = {"tools": json.loads(os.environ["TOOLS"])}
    elif method == "tools/call" and fault in ("truncated", "bytes", "no-id"):
        whole = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "x"}]}})
        damaged = {"truncated": whole[:-12].encode(), "bytes": whole.replace('"x"', '"@"').encode().replace(b"@", b"\xff"),
                   "no-id": b'{"jsonrpc": "2.0", "result": {"content": ['}[fault]
        sys.stdout.buffer.write(damaged + b"\n")
        sys.stdout.buffer.flush()
        continue
    elif method == "tools/call":
        text = "日本" if fault.startswith("encoding ") else json.dumps(params.get("arguments"))
        reply["result"] = {"content": [{"type": "text", "text": text}]}
    else:
        reply["error"] = {"code": -32601, "message": "no such method"}
    send(reply)
"#;

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
