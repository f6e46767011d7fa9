//! Every kind of mistake in a configuration, as the person who made it sees it.

mod files;
mod keys;
mod servers;
mod texts;
mod tools;

use crate::program::{Program, Run};

/// Refused, with nothing on stdout.
fn check(files: &[(&str, &str)]) -> Run {
    check_in(Program::new(files))
}

fn check_in(program: Program) -> Run {
    let run = program.run("check");
    assert_eq!((run.code, run.stdout.as_str()), (78, ""), "{run}");
    run
}

fn project(text: &str) -> Run {
    check(&[("toolgate.yaml", text)])
}

fn tool(keys: &str) -> Run {
    let tools = format!(
        r#"{{ "tools": [
  {{ "name": "echo", "description": "Says it again.", "script_path": "echo.py",
     {keys} }}
] }}
"#
    );
    check(&[("tools.json", &tools), ("echo.py", "")])
}
