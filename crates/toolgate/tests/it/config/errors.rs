//! Every kind of configuration error, as the user sees it.

mod files;
mod keys;
mod servers;
mod syntax;
mod tools;

use crate::support::program::{Program, RunOutput};

/// Runs `check`, which must fail with nothing on stdout.
fn check(files: &[(&str, &str)]) -> RunOutput {
    check_in(Program::new(files))
}

fn check_in(program: Program) -> RunOutput {
    let run = program.run("check");
    assert_eq!((run.code, run.stdout.as_str()), (78, ""), "{run}");
    run
}

fn project(text: &str) -> RunOutput {
    check(&[("toolgate.yaml", text)])
}

fn tool(keys: &str) -> RunOutput {
    let tools = format!(
        r#"{{ "tools": [
  {{ "name": "echo", "description": "Says it again.", "script_path": "echo.py",
     {keys} }}
] }}
"#
    );
    check(&[("tools.json", &tools), ("echo.py", "")])
}
