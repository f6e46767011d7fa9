//! Secrets stay secret: whatever is wrong with a configuration, nothing that a person or a program is shown
//! holds one.

use crate::program::Program;

/// Twelve kinds of secret, each with a value that can be found.
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

/// A server for each way to connect, with all of the secrets between them. `{BREAK}` is where a mistake goes.
const MCP: &str = r#"{
  "servers": {
    "program": { "command": "run", {BREAK}"args": ["--token", "FLAGsecret05", "--password=EQUALSsecret06", "sk-abcdefGHIJKLMNsecret13", "--x=${MY_VAR}"], "env": { "API_TOKEN": "plainENVsecret01", "NOTE": "otherENVsecret02", "GH": "ghp_abcdefGHIJKLsecret12", "FROM_FILE": "${MY_FILE_VAR}", "PASSWORD": "${NOT_SET:-DEFAULTsecret16}" }, "config": { "nested": { "value": "CONFIGsecret11" } } },
    "address": { "url": "https://ann:USERsecret07@example.com/mcp?apiKey=QUERYsecret08&aws=AKIAABCDEFSECRET1415", {BREAK}"headers": { "Authorization": "Bearer BEARERsecret04", "X-Anything": "HEADERsecret03", "X-Jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig15", "X-Var": "${MY_VAR}" } }
  }
}
"#;

/// Mistakes of every stage: of syntax, of shape, of meaning.
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
fn nothing_is_shown_of_a_registry() {
    for mistake in BREAKS {
        let mcp = MCP.replace("{BREAK}", mistake);
        nothing_leaks(&[
            ("mcp.json", &mcp),
            (".env", "MY_FILE_VAR=DOTENVsecret10\n"),
            ("elsewhere/file", ""),
        ]);
    }
}

/// The same as one server per line of YAML, each value on a line of its own.
#[test]
fn nothing_is_shown_of_a_project() {
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

/// Every line of a broken `.env` may be a piece of a secret.
#[test]
fn nothing_is_shown_of_an_env_file() {
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

/// A variable stands in texts that are shown: nothing of it is.
#[test]
fn nothing_is_shown_of_a_variable_in_a_good_project() {
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
    // What could be told to be a secret went to the file that is not committed.
    let moved = ["plainENV", "ghp_", "BEARER", "FLAG", "EQUALS", "USER", "QUERY", "sk-", "AKIA", "eyJ"];
    for secret in moved {
        assert!(!written.contains(secret), "{secret} is in\n{written}");
        assert!(env.contains(secret), "{secret} is not in\n{env}");
    }
    assert!(!written.contains("VARsecret09") && !env.contains("VARsecret09"));
}
