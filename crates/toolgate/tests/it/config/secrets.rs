//! Output for an invalid configuration never contains a secret.

use crate::support::program::Program;

/// Kinds of secrets, each with a distinct value.
const SECRETS: [(&str, &str); 16] = [
    ("a value in env by its name", "plainENVsecret01"),
    ("a value in env by no name at all", "otherENVsecret02"),
    ("a header", "HEADERsecret03"),
    ("a bearer token", "BEARERsecret04"),
    ("the word after --token", "FLAGsecret05"),
    ("the value of --password=", "EQUALSsecret06"),
    ("the password of a URL", "USERsecret07"),
    ("a key in the query of a URL", "QUERYsecret08"),
    ("a variable of the environment", "VARsecret09"),
    ("a variable of .env", "DOTENVsecret10"),
    ("a value in config", "CONFIGsecret11"),
    ("a key of GitHub", "ghp_abcdefGHIJKLsecret12"),
    ("a key of OpenAI", "sk-abcdefGHIJKLMNsecret13"),
    ("a key of AWS", "AKIAABCDEFSECRET1415"),
    ("a JSON web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig15"),
    ("a default of a variable", "DEFAULTsecret16"),
];

/// A server per transport, with all of the secrets. `{BREAK}` marks where an error is inserted.
const MCP: &str = r#"{
  "servers": {
    "program": { "command": "run", {BREAK}"args": ["--token", "FLAGsecret05", "--password=EQUALSsecret06", "sk-abcdefGHIJKLMNsecret13", "--x=${MY_VAR}"], "env": { "API_TOKEN": "plainENVsecret01", "NOTE": "otherENVsecret02", "GH": "ghp_abcdefGHIJKLsecret12", "FROM_FILE": "${MY_FILE_VAR}", "PASSWORD": "${NOT_SET:-DEFAULTsecret16}" }, "config": { "nested": { "value": "CONFIGsecret11" } } },
    "address": { "url": "https://ann:USERsecret07@example.com/mcp?apiKey=QUERYsecret08&aws=AKIAABCDEFSECRET1415", {BREAK}"headers": { "Authorization": "Bearer BEARERsecret04", "X-Anything": "HEADERsecret03", "X-Jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig15", "X-Var": "${MY_VAR}" } }
  }
}
"#;

/// Errors of syntax, of schema and of meaning.
const BREAKS: [&str; 9] = [
    "",
    "\"type\" \"stdio\", ",
    "\"type\": 'stdio', ",
    "\"type\": \"pigeon\", ",
    "\"mode\": [], ",
    "\"timeout\": \"${MY_VAR}\", ",
    "\"cwd\": \"${UNSET_VARIABLE}\", ",
    "\"prompts\": \"none\", \"gallery\": \"MY_VAR\", ",
    "\"mode\": \"dynamic\", ",
];

const COMMANDS: [&str; 7] = [
    "check",
    "check --json",
    "--file mcp.json check --color always",
    "-C elsewhere import mcp.json",
    "-C elsewhere import mcp.json --dry-run",
    "-C elsewhere import mcp.json --json --replace",
    "-C elsewhere import mcp.json --dry-run --json",
];

fn nothing_leaks(files: &[(&str, &str)]) {
    for command in COMMANDS {
        let program = Program::new(files)
            .with("MY_VAR", "VARsecret09")
            .with("TOOLGATE__TOOLBOX__MCPS__0__ENV__GITHUB_TOKEN", "VARsecret09");
        let run = program.run(command);
        for (kind, secret) in SECRETS {
            let leaks = run.stdout.contains(secret) || run.stderr.contains(secret);
            assert!(!leaks, "{kind} is shown by `toolgate {command}` on\n{}\n{run}", files[0].1);
        }
    }
}

#[test]
fn errors_in_a_registry_show_no_secret() {
    for mistake in BREAKS {
        let mcp = MCP.replace("{BREAK}", mistake);
        nothing_leaks(&[
            ("mcp.json", &mcp),
            (".env", "MY_FILE_VAR=DOTENVsecret10\n"),
            ("elsewhere/file", ""),
        ]);
    }
}

/// The same as YAML, one value per line.
#[test]
fn errors_in_a_project_file_show_no_secret() {
    for mistake in ["", "zzz: 1", "mode: loose", "mode: dynamic", "\ttab: 1", "url: [x", "env_file: missing"]
    {
        let text = format!(
            "toolbox:
  mcps:
    - name: program
      {mistake}
      command: run
      args:
        - --token
        - FLAGsecret05${{
        - --password=EQUALSsecret06 ${{UNSET}}
      env:
        API_TOKEN: plainENVsecret01 with spaces ${{UNSET}}
        NOTE: otherENVsecret02 ${{UNSET}}
        GH: ghp_abcdefGHIJKLsecret12${{UNSET}}
        LIST: [otherENVsecret02]
        VAR: ${{MY_VAR}}${{UNSET}}
        PASSWORD: ${{UNSET_TOO:-DEFAULTsecret16}}${{UNSET}}
      config:
        value: CONFIGsecret11${{UNSET}}
    - name: address
      url: https://ann:USERsecret07@/mcp?apiKey=QUERYsecret08
      timeout: ${{MY_VAR}}
      description: uses ${{MY_VAR}} and ${{MY_FILE_VAR}}
      headers:
        Authorization: Bearer BEARERsecret04${{UNSET}}
        X-Anything: HEADERsecret03${{UNSET}}
        X-Jwt: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig15${{UNSET}}
"
        );
        nothing_leaks(&[
            ("toolgate.yaml", &text),
            ("mcp.json", &MCP.replace("{BREAK}", "")),
            (".env", "MY_FILE_VAR=DOTENVsecret10\n"),
            ("elsewhere/file", ""),
        ]);
    }
}

/// Any line of a broken `.env` may be part of a secret.
#[test]
fn errors_in_an_env_file_show_no_secret() {
    for text in [
        "DOTENVsecret10\n",
        "MY_FILE_VAR=\"DOTENVsecret10\n",
        "2=DOTENVsecret10\n",
        "KEY='-----BEGIN\nDOTENVsecret10==\n",
        "DOTENVsecret10=\n-x\n",
        "MY KEY=DOTENVsecret10\n",
    ] {
        nothing_leaks(&[
            ("mcp.json", &MCP.replace("{BREAK}", "")),
            (".env", text),
            ("elsewhere/.env", text),
            ("elsewhere/file", ""),
        ]);
    }
}

/// Values of variables appear in strings that are shown; they must be masked.
#[test]
fn a_valid_project_shows_no_value_of_a_variable() {
    let text = "name: ours
description: uses ${MY_VAR}
registries: { mcp: mcp.json, tools: tools.json }
toolbox:
  mcps:
    - { name: a, command: \"${MY_VAR}\", cwd: \"x/${MY_VAR}\", description: \"${MY_FILE_VAR}\", mode: strict, prompts: [\"${MY_VAR}\"] }
";
    let tools = r#"{ "tools": [{ "name": "t", "description": "uses ${MY_VAR}", "input_schema": {}, "tags": ["${MY_VAR}"], "script_path": "t.py" }] }"#;
    let files = [
        ("toolgate.yaml", text),
        ("mcp.json", &MCP.replace("{BREAK}", "")),
        ("tools.json", tools),
        ("t.py", ""),
        (".env", "MY_FILE_VAR=DOTENVsecret10\n"),
        ("elsewhere/file", ""),
    ];
    let program = Program::new(&files).with("MY_VAR", "VARsecret09");
    let run = program.run("check");
    assert_eq!(run.code, 0, "{run}");
    nothing_leaks(&files);
}

#[test]
fn references_stay_references() {
    let files =
        [("mcp.json", MCP.replace("{BREAK}", "")), (".env", "MY_FILE_VAR=DOTENVsecret10\n".to_owned())];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let program = Program::new(&files).with("MY_VAR", "VARsecret09");
    let before = program.read("mcp.json");
    fs_err::create_dir(program.path("new")).unwrap();
    for command in COMMANDS.map(|command| command.replace("elsewhere", "new")) {
        let run = program.run(&command);
        assert_eq!(run.code, 0, "{command}: {run}");
    }
    assert_eq!(program.read("mcp.json"), before);
    let (written, env) = (program.read("new/mcp.json"), program.read("new/.env"));
    for reference in ["--x=${MY_VAR}", "\"${MY_FILE_VAR}\"", "\"X-Var\": \"${MY_VAR}\""] {
        assert!(written.contains(reference), "{reference} is not in\n{written}");
    }
    // Detected secrets were moved to `.env`, which is not committed.
    let moved = ["plainENV", "ghp_", "BEARER", "FLAG", "EQUALS", "USER", "QUERY", "sk-", "AKIA", "eyJ"];
    for secret in moved {
        assert!(!written.contains(secret), "{secret} is in\n{written}");
        assert!(env.contains(secret), "{secret} is not in\n{env}");
    }
    assert!(!written.contains("VARsecret09") && !env.contains("VARsecret09"));
}
