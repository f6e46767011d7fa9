//! What the executable says about itself: help, schemas, completions, colours.

use insta::assert_snapshot;
use serde_json::Value as Json;

use crate::program::{Program, Run};

fn run(arguments: &str) -> Run {
    let run = Program::new(&[]).run(arguments);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run}");
    run
}

#[test]
fn help() {
    assert_snapshot!(run("--help").stdout, @"
    The gate between AI agents and their tools

    Usage: toolgate [OPTIONS] <COMMAND>

    Commands:
      init         Write a small working project, with comments
      check        Say whether a project is good, what it means, and where each value came from
      servers      Show the MCP servers: whether they can be reached, what they speak, what they offer
      tools        List, search, show and call tools, and change your own
      eval         Measure how often the right tool is found, on queries of which it is known
      why          Say whether a caller may use a tool, and why
      callers      List callers, make one with a key of its own, and take one away
      policy       Try rules before they count
      log          Show what was called, by whom, and how it ended
      prompts      List prompts of MCP servers, and get one
      resources    List resources of MCP servers, and read one
      questions    Show the questions that wait for a person, and answer them
      run          Give the agent a task
      chat         Talk with the agent
      runs         List the runs of the agent, and show what happened in one
      serve        Open the door: MCP and REST over HTTP, for whoever has a key
      stdio        Serve one MCP client over stdin and stdout
      import       Take over the MCP servers of another program
      connect      Put Toolgate among the MCP servers of an editor or agent, or take it out
      schema       Print the JSON Schema of a file, for editors
      completions  Print completions for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -C, --project <DIR>  Work on the project in DIR [default: .]
          --file <FILE>    The project file, where it has an unusual name; any known shape will do
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   When to use colours; `NO_COLOR` is honoured [default: auto] [possible values:
                           auto, always, never]
      -h, --help           Print help
      -V, --version        Print version

    Examples:
      toolgate init my-project        write a small project to start from
      toolgate -C my-project check    say whether it is good, and what it means
      toolgate import vscode          take over the MCP servers of an editor

    Exit codes: 0 done, 1 failed, 2 wrong usage, 78 configuration refused.
    ");
    assert_snapshot!(run("init --help").stdout, @"
    Write a small working project, with comments

    Usage: toolgate init [OPTIONS] [DIR]

    Arguments:
      [DIR]  The folder; made where it does not exist [default: the project folder]

    Options:
      -C, --project <DIR>  Work on the project in DIR [default: .]
          --file <FILE>    The project file, where it has an unusual name; any known shape will do
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   When to use colours; `NO_COLOR` is honoured [default: auto] [possible values:
                           auto, always, never]
      -h, --help           Print help

    Examples:
      toolgate init               here
      toolgate init my-project    in a new folder

    No file is ever overwritten.
    ");
    assert_snapshot!(run("check --help").stdout, @"
    Say whether a project is good, what it means, and where each value came from

    Usage: toolgate check [OPTIONS]

    Options:
      -C, --project <DIR>
              Work on the project in DIR
              
              [default: .]

          --contract <LEVEL>
              How much is asked of your own tools

              Possible values:
              - standard: A name, a description and the schema of the arguments
              - full:     All of the tool contract, as a checklist for each tool
              
              [default: standard]

          --file <FILE>
              The project file, where it has an unusual name; any known shape will do

          --json
              Print one JSON document on stdout; messages go to stderr

          --color <WHEN>
              When to use colours; `NO_COLOR` is honoured
              
              [default: auto]
              [possible values: auto, always, never]

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      toolgate check                           the project in this folder
      toolgate -C my-project check             another one
      toolgate --file .vscode/mcp.json check   a file of another program
      toolgate check --json | jq .servers      for programs
      toolgate check --contract full           the checklist of the tool contract, for your own tools

    Nothing is started and nothing is written. Every problem in every file is reported.

    Exit codes: 0 good, 1 a rule of the contract is not met, 78 configuration refused.
    ");
    assert_snapshot!(run("import --help").stdout, @"
    Take over the MCP servers of another program

    Usage: toolgate import [OPTIONS] <FILE|CLIENT>

    Arguments:
      <FILE|CLIENT>  A file, or one of: vscode, claude-desktop, claude-code, cursor, codex, goose,
                     holodeck

    Options:
      -C, --project <DIR>  Work on the project in DIR [default: .]
          --dry-run        Show what would be written, and write nothing
          --file <FILE>    The project file, where it has an unusual name; any known shape will do
          --replace        Overwrite servers of the same name; they are left alone otherwise
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   When to use colours; `NO_COLOR` is honoured [default: auto] [possible values:
                           auto, always, never]
      -h, --help           Print help

    Examples:
      toolgate import vscode                     what VS Code has, for this folder and for you
      toolgate import ~/.codex/config.toml       one file
      toolgate import claude-desktop --dry-run   show what would be written

    Servers go to `mcp.json`, as they are written: `${VAR}` stays `${VAR}`. Passwords and tokens that
    stand there in plain text go to `.env`, which should not be committed.
    ");
    assert_snapshot!(run("schema --help").stdout, @"
    Print the JSON Schema of a file, for editors

    Usage: toolgate schema [OPTIONS] [FILE]

    Arguments:
      [FILE]  `project` for toolgate.yaml, `tools` for tools.json, `mcp` for mcp.json [default: project]

    Options:
      -C, --project <DIR>  Work on the project in DIR [default: .]
          --reference      Print the reference page instead, as Markdown
          --file <FILE>    The project file, where it has an unusual name; any known shape will do
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   When to use colours; `NO_COLOR` is honoured [default: auto] [possible values:
                           auto, always, never]
      -h, --help           Print help

    Examples:
      toolgate schema > toolgate.schema.json
      toolgate schema tools
      toolgate schema --reference             the page in docs/configuration.md

    In VS Code, this first line of toolgate.yaml turns on completion and checks:
      # yaml-language-server: $schema=./toolgate.schema.json
    ");
    assert_snapshot!(run("completions --help").stdout, @"
    Print completions for a shell

    Usage: toolgate completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>  The shell [possible values: bash, elvish, fish, powershell, zsh]

    Options:
      -C, --project <DIR>  Work on the project in DIR [default: .]
          --file <FILE>    The project file, where it has an unusual name; any known shape will do
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   When to use colours; `NO_COLOR` is honoured [default: auto] [possible values:
                           auto, always, never]
      -h, --help           Print help

    Examples:
      toolgate completions bash > ~/.local/share/bash-completion/completions/toolgate
      toolgate completions zsh  > ~/.zfunc/_toolgate
      toolgate completions fish > ~/.config/fish/completions/toolgate.fish
    ");
}

#[test]
fn every_help_has_examples() {
    let commands = run("--help").stdout;
    let commands: Vec<_> = commands
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    let expected = [
        "init",
        "check",
        "servers",
        "tools",
        "eval",
        "why",
        "callers",
        "policy",
        "log",
        "prompts",
        "resources",
        "questions",
        "run",
        "chat",
        "runs",
        "serve",
        "stdio",
        "import",
        "connect",
        "schema",
        "completions",
    ];
    assert_eq!(commands, expected);
    for command in commands {
        let help = run(&format!("{command} --help")).stdout;
        assert!(help.contains("\nExamples:\n  toolgate "), "{help}");
    }
    let changes = ["tools", "servers"].map(|noun| ["add", "update", "remove"].map(|command| (noun, command)));
    for (noun, command) in changes.into_iter().flatten().chain([
        ("tools", "new"),
        ("tools", "test"),
        ("runs", "show"),
        ("callers", "list"),
        ("callers", "add"),
        ("callers", "remove"),
    ]) {
        let help = run(&format!("{noun} {command} --help")).stdout;
        assert!(help.contains(&format!("\nExamples:\n  toolgate {noun} {command} ")), "{help}");
        assert!(help.contains("\nExit codes: 0 "), "{help}");
    }
}

#[test]
fn version() {
    assert_snapshot!(run("--version"), @"
    exit code 0
    ----- stdout
    toolgate [version]
    ----- stderr
    ");
}

#[test]
fn schemas() {
    for (arguments, title) in [
        ("schema", "toolgate.yaml"),
        ("schema project", "toolgate.yaml"),
        ("schema tools", "tools.json"),
        ("schema mcp --json", "mcp.json"),
    ] {
        let schema = run(arguments).json();
        assert_eq!(schema["title"], title);
        jsonschema::draft202012::meta::validate(&schema).unwrap();
    }
}

#[test]
fn reference() {
    let page = run("schema --reference").stdout;
    assert!(page.starts_with("# Configuration\n"), "{page}");
    for key in ["`max_concurrent`", "`default_tool_config`", "`tool_allowlist`", "`cache_ttl`"] {
        assert!(page.contains(key), "{key}");
    }
}

#[test]
fn a_schema_of_nothing() {
    assert_snapshot!(Program::new(&[]).run("schema toolgate.yaml"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: invalid value 'toolgate.yaml' for '[FILE]'
      [possible values: project, tools, mcp, agent]

      tip: a similar value exists: 'tools'

    For more information, try '--help'.
    ");
    assert_snapshot!(Program::new(&[]).run("schema mcp --reference"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: the argument '[FILE]' cannot be used with '--reference'

    Usage: toolgate schema <FILE>

    For more information, try '--help'.
    ");
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&format!("completions {shell}")).stdout;
        assert!(script.contains("import") && script.contains("dry-run"), "{shell}: {script}");
    }
    assert_snapshot!(Program::new(&[]).run("completions tcsh"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: invalid value 'tcsh' for '<SHELL>'
      [possible values: bash, elvish, fish, powershell, zsh]

      tip: a similar value exists: 'zsh'

    For more information, try '--help'.
    ");
}

mod colours {
    use super::*;

    const BROKEN: [(&str, &str); 1] = [("toolgate.yaml", "toolbx: {}\ntoolbox: {}\n")];
    const GOOD: [(&str, &str); 1] = [("toolgate.yaml", "name: good\ntoolbox: {}\n")];

    fn coloured(run: &Run) -> (bool, bool) {
        (run.stdout.contains('\u{1b}'), run.stderr.contains('\u{1b}'))
    }

    #[test]
    fn none_where_nobody_looks() {
        assert_eq!(coloured(&Program::new(&BROKEN).run("check")), (false, false));
        assert_eq!(coloured(&Program::new(&GOOD).run("check")), (false, false));
        assert_eq!(coloured(&Program::new(&GOOD).run("--color never check")), (false, false));
    }

    #[test]
    fn always_means_always() {
        assert_eq!(coloured(&Program::new(&GOOD).run("--color always check")), (true, true));
        assert_eq!(coloured(&Program::new(&BROKEN).run("check --color always")), (false, true));
        assert_eq!(
            coloured(&Program::new(&GOOD).with("NO_COLOR", "1").run("--color always check")),
            (true, true)
        );
    }

    #[test]
    fn a_document_has_none() {
        let run = Program::new(&GOOD).run("--color always --json check");
        assert_eq!(coloured(&run), (false, true));
        assert_eq!(run.json()["name"], "good");
    }

    /// On a terminal of its own, which `script` makes. Its output has carriage returns.
    #[cfg(target_os = "linux")]
    #[expect(clippy::disallowed_methods, reason = "the executable is what is tested")]
    fn on_a_terminal(variables: &[(&str, &str)]) -> Option<String> {
        let program = Program::new(&BROKEN);
        let line = format!("{} check", env!("CARGO_BIN_EXE_toolgate"));
        let output = std::process::Command::new("script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .current_dir(&program.project)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TERM", "xterm")
            .envs(variables.iter().copied())
            .stdin(std::process::Stdio::null())
            .output()
            .ok()?;
        Some(String::from_utf8(output.stdout).expect("output is UTF-8"))
            .filter(|text| text.contains("did you mean"))
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn on_a_terminal_unless_it_objects() {
        // Without `script` there is no terminal to be had.
        let Some(text) = on_a_terminal(&[]) else { return };
        assert!(text.contains("\u{1b}["), "{text:?}");
        for objection in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let text = on_a_terminal(&[objection]).unwrap();
            assert!(!text.contains("\u{1b}["), "{text:?}");
        }
    }
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let files = [(
        "toolgate.yaml",
        "name: \"a\\e[2Jb\"\ndescription: \"c\\u202ed\"\ntoolbox:\n  \"e\\e]0;f\": 1\n  max_output: \"\\e[31m\"\n",
    )];
    let program = Program::new(&files);
    let refused = program.run("--color always check").stderr;
    assert!(!refused.contains("\u{1b}]") && !refused.contains("\u{1b}[31m` is"), "{refused:?}");
    let good =
        Program::new(&[("toolgate.yaml", "name: \"a\\e[2Jb\"\ndescription: \"c\\u202ed\"\ntoolbox: {}\n")]);
    let shown = good.run("--color always check").stdout;
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}'), "{shown:?}");
    let document: Json = good.run("check --json").json();
    assert_eq!(document["name"], "a\u{1b}[2Jb");
}
