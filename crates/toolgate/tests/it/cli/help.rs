//! Help, schemas, completions and colours.

use insta::assert_snapshot;
use serde_json::Value as Json;

use crate::support::program::{Program, RunOutput};

fn run(arguments: &str) -> RunOutput {
    let run = Program::new(&[]).run(arguments);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run}");
    run
}

#[test]
fn help() {
    assert_snapshot!(run("--help").stdout, @r"
    A gateway between AI agents and their tools

    Usage: toolgate [OPTIONS] <COMMAND>

    Set up:
      init         Create a small working project
      import       Import MCP servers from another program
      connect      Add Toolgate to the MCP servers of an editor or agent
      schema       Print the JSON Schema of a config file
      completions  Print or install shell completions
      man          Print or write the manual pages

    Run:
      serve        Run the gateway: MCP and REST over HTTP
      stdio        Run the gateway for one MCP client on stdin and stdout
      run          Run a task with the agent
      chat         Chat with the agent

    Look:
      check        Check the configuration and explain it
      plan         Show the effect of changed files before they are used
      doctor       Find out why something does not work
      why          Explain whether a caller may use a tool
      log          Show the execution log
      runs         Show past runs of the agent
      prompts      List and get prompts of MCP servers
      resources    List and read resources of MCP servers
      eval         Measure tool-search accuracy on labelled queries

    Manage:
      servers      Show, approve and change MCP servers
      tools        List, search, call and change tools
      callers      List, add and remove callers and their keys
      credentials  List, set and remove credentials that servers get
      questions    Show and answer open questions
      policy       Test policy rules before you use them
      cluster      Show and manage the replicas of a cluster

    Run `toolgate help COMMAND` for the options and examples of a command.

    Options:
      -C, --project <DIR>  Project folder [default: .]
          --file <FILE>    Project file, in any supported format [default: found in DIR by its name]
          --standalone     Start the servers for this command, even if `toolgate serve` runs for the
                           project
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   Use of colours: auto (on terminals, unless NO_COLOR is set), always or never
                           [default: auto]
      -h, --help           Print help
      -V, --version        Print version

    Examples:
      toolgate init my-project        create a small project
      toolgate -C my-project check    check its configuration
      toolgate -C my-project serve    run the gateway
      toolgate import vscode          import the MCP servers of an editor

    Exit codes: 0 done, 1 failed, 2 wrong usage, 69 a server is down, 78 invalid configuration.
    ");
    assert_snapshot!(run("init --help").stdout, @r"
    Create a small working project

    Usage: toolgate init [OPTIONS] [DIR]

    Arguments:
      [DIR]  Folder, created if it does not exist [default: the project folder]

    Options:
      -C, --project <DIR>  Project folder [default: .]
          --file <FILE>    Project file, in any supported format [default: found in DIR by its name]
          --standalone     Start the servers for this command, even if `toolgate serve` runs for the
                           project
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   Use of colours: auto (on terminals, unless NO_COLOR is set), always or never
                           [default: auto]
      -h, --help           Print help

    Examples:
      toolgate init               in the current folder
      toolgate init my-project    in a new folder

    The project is named after its folder. Existing files are never overwritten; lines are added to an
    existing .gitignore.
    ");
    assert_snapshot!(run("check --help").stdout, @r"
    Check the configuration and explain it

    Usage: toolgate check [OPTIONS]

    Options:
      -C, --project <DIR>
              Project folder
              
              [default: .]

          --contract <LEVEL>
              Requirements for your own tools

              Possible values:
              - standard: Name, description and input schema
              - full:     The full tool contract, as a checklist per tool
              
              [default: standard]

          --all
              Show values that no file sets, too

          --file <FILE>
              Project file, in any supported format [default: found in DIR by its name]

          --running
              Show if the running gateway uses the files, and why not

          --standalone
              Start the servers for this command, even if `toolgate serve` runs for the project

          --json
              Print one JSON document on stdout; messages go to stderr

          --color <WHEN>
              Use of colours: auto (on terminals, unless NO_COLOR is set), always or never
              
              [default: auto]

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      toolgate check                           the project in this folder
      toolgate -C my-project check             another project
      toolgate --file .vscode/mcp.json check   a config file of another program
      toolgate check --json | jq .servers      for scripts
      toolgate check --contract full           the full tool contract, as a checklist per tool
      toolgate check --all                     every value, the defaults too
      toolgate check --running                 the configuration that the running gateway uses

    Shows the values that differ from the defaults, and the files they come from. Reports all problems
    in all files. Starts and writes nothing.

    Exit codes: 0 valid, 1 contract not met or no gateway runs, 78 invalid configuration.
    ");
    assert_snapshot!(run("import --help").stdout, @r"
    Import MCP servers from another program

    Usage: toolgate import [OPTIONS] [FILE|CLIENT]

    Arguments:
      [FILE|CLIENT]  File, or one of: vscode, claude-desktop, claude-code, cursor, codex, gemini,
                     windsurf, zed, cline, goose, holodeck

    Options:
          --all            Import from every client that is configured here
      -C, --project <DIR>  Project folder [default: .]
          --file <FILE>    Project file, in any supported format [default: found in DIR by its name]
          --take-over      Move the servers: remove them from the client, and add Toolgate there
          --dry-run        Show the result, write nothing
          --standalone     Start the servers for this command, even if `toolgate serve` runs for the
                           project
          --json           Print one JSON document on stdout; messages go to stderr
          --replace        Overwrite servers of the same name, which are skipped otherwise
          --color <WHEN>   Use of colours: auto (on terminals, unless NO_COLOR is set), always or never
                           [default: auto]
      -h, --help           Print help

    Examples:
      toolgate import vscode                     servers of VS Code, for this folder and for you
      toolgate import ~/.codex/config.toml       servers of one file
      toolgate import claude-desktop --dry-run   show the result, write nothing
      toolgate import --all                      servers of every client that is configured here
      toolgate import cursor --take-over         also remove them from Cursor, and add Toolgate there

    Servers are added to `mcp.json` as they are written: `${VAR}` stays `${VAR}`. Passwords and tokens
    in plain text go to `.env`; do not commit that file. Config files of clients are looked for in the
    project, in the current folder and in your home. `toolgate connect CLIENT --undo` undoes
    `--take-over`.
    ");
    assert_snapshot!(run("schema --help").stdout, @r"
    Print the JSON Schema of a config file

    Usage: toolgate schema [OPTIONS] [FILE]

    Arguments:
      [FILE]  `project` for toolgate.yaml, `tools` for tools.json, `mcp` for mcp.json, `agent` for
              agent.yaml [default: project]

    Options:
      -C, --project <DIR>       Project folder [default: .]
          --reference[=<PAGE>]  Print a reference page as Markdown instead: configuration (if none is
                                named), commands, rest, permissions, metrics, records or errors
          --file <FILE>         Project file, in any supported format [default: found in DIR by its
                                name]
          --standalone          Start the servers for this command, even if `toolgate serve` runs for
                                the project
          --json                Print one JSON document on stdout; messages go to stderr
          --color <WHEN>        Use of colours: auto (on terminals, unless NO_COLOR is set), always or
                                never [default: auto]
      -h, --help                Print help

    Examples:
      toolgate schema > toolgate.schema.json
      toolgate schema tools
      toolgate schema --reference             the page docs/configuration.md
      toolgate schema --reference=commands    the page docs/reference/commands.md

    In VS Code, this first line of toolgate.yaml turns on completion and validation:
      # yaml-language-server: $schema=./toolgate.schema.json
    ");
    assert_snapshot!(run("completions --help").stdout, @r"
    Print or install shell completions

    Usage: toolgate completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>  Shell [possible values: bash, elvish, fish, powershell, zsh]

    Options:
      -C, --project <DIR>  Project folder [default: .]
          --install        Write the script to the folder of your user that the shell reads: for bash,
                           fish and zsh
          --file <FILE>    Project file, in any supported format [default: found in DIR by its name]
          --uninstall      Remove the script from that folder
          --standalone     Start the servers for this command, even if `toolgate serve` runs for the
                           project
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   Use of colours: auto (on terminals, unless NO_COLOR is set), always or never
                           [default: auto]
      -h, --help           Print help

    Examples:
      toolgate completions bash --install      write the script to the place where bash looks for it
      toolgate completions fish --uninstall    remove it
      toolgate completions zsh > _toolgate     print it, for packages

    The scripts also complete the names of tools, servers, callers and profiles. They come from the
    files of the project, toolgate.lock and API documents; no server is started.
    ");
    assert_snapshot!(run("man --help").stdout, @r"
    Print or write the manual pages

    Usage: toolgate man [OPTIONS]

    Options:
      -C, --project <DIR>  Project folder [default: .]
          --output <DIR>   Folder to write all pages to [default: print toolgate(1)]
          --file <FILE>    Project file, in any supported format [default: found in DIR by its name]
          --standalone     Start the servers for this command, even if `toolgate serve` runs for the
                           project
          --json           Print one JSON document on stdout; messages go to stderr
          --color <WHEN>   Use of colours: auto (on terminals, unless NO_COLOR is set), always or never
                           [default: auto]
      -h, --help           Print help

    Examples:
      toolgate man | man -l -                         read toolgate(1)
      toolgate man --output ~/.local/share/man/man1   install all pages for `man toolgate-serve`

    There is one page per command. The folder is created, and existing pages are overwritten.
    ");
}

#[test]
fn every_help_has_examples() {
    let help = run("--help").stdout;
    let commands: Vec<_> = help
        .lines()
        .skip_while(|line| *line != "Set up:")
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    assert_eq!(commands.len(), 26, "{help}");
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
        ("callers", "update"),
        ("servers", "reject"),
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
fn an_unknown_schema_is_rejected() {
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
    error: the argument '[FILE]' cannot be used with '--reference[=<PAGE>]'

    Usage: toolgate schema <FILE>

    For more information, try '--help'.
    ");
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&format!("completions {shell}")).stdout;
        assert!(script.contains("TOOLGATE_COMPLETE"), "{shell}: {script}");
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

#[test]
fn manual_pages() {
    let page = run("man").stdout;
    assert!(page.contains(".TH toolgate 1 \"\" \"toolgate "), "{page}");
    for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXAMPLES", "\"EXIT STATUS\""] {
        assert!(page.contains(&format!("\n.SH {section}\n")), "{section}: {page}");
    }
    let program = Program::new(&[]);
    let written = program.run("man --output pages/man1");
    assert_eq!((written.code, written.stdout.as_str()), (0, ""), "{written}");
    let version = format!("toolgate {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(program.read("pages/man1/toolgate.1").replace(&version, "toolgate [version]"), page);
    // Pages of nested commands; hidden commands have none.
    assert!(program.read("pages/man1/toolgate-servers-add.1").contains("\n.SH \"SEE ALSO\"\n"));
    assert!(!program.path("pages/man1/toolgate-shim.1").exists());
    let files = program.run("man --output pages/man1 --json").json()["files"].as_array().map(Vec::len);
    assert_eq!(files, Some(fs_err::read_dir(program.path("pages/man1")).unwrap().count()));
    // The break and the spaces of examples stay.
    let lines = "\n.nf\ntoolgate check                           the project in this folder\ntoolgate ";
    let page = program.read("pages/man1/toolgate-check.1");
    assert!(page.contains(lines), "{page}");
}

mod colours {
    use super::*;

    const BROKEN: [(&str, &str); 1] = [("toolgate.yaml", "toolbx: {}\ntoolbox: {}\n")];
    const GOOD: [(&str, &str); 1] = [("toolgate.yaml", "name: good\ntoolbox: {}\n")];

    fn coloured(run: &RunOutput) -> (bool, bool) {
        (run.stdout.contains('\u{1b}'), run.stderr.contains('\u{1b}'))
    }

    #[test]
    fn no_colours_without_a_terminal() {
        assert_eq!(coloured(&Program::new(&BROKEN).run("check")), (false, false));
        assert_eq!(coloured(&Program::new(&GOOD).run("check")), (false, false));
        assert_eq!(coloured(&Program::new(&GOOD).run("--color never check")), (false, false));
    }

    #[test]
    fn colours_always_if_requested() {
        assert_eq!(coloured(&Program::new(&GOOD).run("--color always check")), (true, true));
        assert_eq!(coloured(&Program::new(&BROKEN).run("check --color always")), (false, true));
        assert_eq!(
            coloured(&Program::new(&GOOD).with("NO_COLOR", "1").run("--color always check")),
            (true, true)
        );
    }

    #[test]
    fn no_colours_in_json() {
        let run = Program::new(&GOOD).run("--color always --json check");
        assert_eq!(coloured(&run), (false, true));
        assert_eq!(run.json()["name"], "good");
    }

    /// Runs on a pseudo-terminal made by `script`. The output has carriage returns.
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
    fn colours_on_a_terminal_unless_disabled() {
        // Without `script`, no terminal can be created.
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
