//! The code in the pages: configuration is checked by the executable, commands and their options exist, JSON and Python
//! are well-formed.
//!
//! A block `yaml` is a project file, `cedar` its policy. A block `yaml,part` needs more than it shows, such as files: its
//! keys are checked, and other problems are expected. `yaml,other` is a file of another program. Typed pages (`tutorials`, `team_example`) run their blocks for real,
//! and `docs/programs.md` is covered by the tests of agent frameworks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::support::program::Program;
use crate::support::typed_page::{Block, blocks};

/// Languages of blocks that no program here can check. The tests of agent frameworks run those in `js`.
const UNCHECKED: [&str; 10] =
    ["text", "rust", "toml", "ini", "nginx", "caddyfile", "cedarschema", "sh", "console", "js"];
/// Words that stand for others in commands, each with one of them.
const PLACEHOLDERS: [(&str, &str); 4] =
    [("CLIENT", "cursor"), ("SHELL", "bash"), ("COMMAND", "check"), ("--reference=PAGE", "--reference=rest")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages with their text. The page of commands is generated from their definition.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![root().join("docs")];
    let mut files: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "examples/team/README.md"].map(|name| root().join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).expect("a folder of the repository").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    let is_page = |path: &Path| {
        path.extension().is_some_and(|kind| kind == "md") && !path.ends_with("reference/commands.md")
    };
    let files = files.into_iter().filter(|path| is_page(path));
    let mut pages: Vec<_> = files
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            (name, fs_err::read_to_string(&path).expect("a page is UTF-8"))
        })
        .collect();
    pages.sort();
    pages
}

/// Returns the reason why a block is wrong.
fn problem(block: &Block) -> Option<String> {
    let text = block.lines.join("\n") + "\n";
    match block.language() {
        // The configuration of another program.
        "yaml" if block.is("other") => None,
        "yaml" => {
            let name = block.attribute("file").unwrap_or("toolgate.yaml");
            let run = project(&[(name, &text)], &text).run(&format!("--file {name} check"));
            let is_part = block.is("part") && !run.stderr.contains("unknown key");
            (run.code != 0 && !is_part).then(|| run.to_string())
        }
        "cedar" => {
            let run = project(&[("toolgate.yaml", "name: x\n"), ("policy.cedar", &text)], "").run("check");
            (run.code != 0).then(|| run.to_string())
        }
        "json" => serde_json::from_str::<Json>(&text).err().map(|error| error.to_string()),
        "python" => python_problem(&text),
        language => (!UNCHECKED.contains(&language)).then(|| format!("`{language}` is not a known language")),
    }
}

/// Creates a project with a value for every variable that the text refers to.
fn project(files: &[(&str, &str)], text: &str) -> Program {
    let mut program = Program::new(files);
    for part in text.split("${").skip(1) {
        let name = part.split(['}', ':']).next().unwrap_or_default();
        program = program.with(name, &format!("a-long-random-value-{name}"));
    }
    program
}

#[expect(clippy::disallowed_methods, reason = "Python is the judge of Python")]
fn python_problem(text: &str) -> Option<String> {
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; compile(sys.argv[1], 'page', 'exec')", text]).stdin(Stdio::null());
    let output = python.output().expect("python3 is installed");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn blocks_are_valid() {
    let mut checked = 0;
    let mut problems = String::new();
    for (page, text) in pages() {
        for block in blocks(&text) {
            // Typed blocks belong to a project that their page makes.
            if block.attribute("file").is_some() && !block.is("part") {
                continue;
            }
            checked += 1;
            if let Some(problem) = problem(&block) {
                problems += &format!("{page}: {}\n{problem}\n", block.lines.join("\n"));
            }
        }
    }
    assert!(checked > 100, "{checked}");
    assert!(problems.is_empty(), "{problems}");
}

/// Commands of a page: in blocks, and between backticks.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in blocks(text) {
        found.extend(block.commands().into_iter().map(|(command, _)| command.replace("\\\n", " ")));
    }
    let mut in_block = false;
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        if !in_block {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found.retain(|command| command.starts_with("toolgate ") && !command.contains('…'));
    // Used by Toolgate itself only.
    found.retain(|command| !command.starts_with("toolgate shim"));
    found
}

/// Splits a command like a shell, up to a pipe, a redirection, a comment or `--`.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_open) = (Vec::new(), String::new(), None, false);
    for letter in command.chars().chain([' ']) {
        match (letter, quote) {
            (_, Some(end)) if letter == end => quote = None,
            ('\'' | '"', None) => (quote, is_open) = (Some(letter), true),
            (' ' | '\n', None) if word.is_empty() && !is_open => {}
            (' ' | '\n', None) => {
                if ["|", "||", "&&", ">", "2>", "<", "&", "#", "--"].contains(&word.as_str()) {
                    return words;
                }
                words.push(std::mem::take(&mut word));
                is_open = false;
            }
            _ => word.push(letter),
        }
    }
    words
}

/// `--help` behind a command fails if the command, or an option before it, does not exist.
#[test]
fn commands_and_options_exist() {
    let program = Program::new(&[]);
    let mut checked = 0;
    let mut problems = String::new();
    for (page, text) in pages() {
        for command in commands(&text) {
            let mut words = words(&command);
            for word in &mut words {
                if let Some((_, example)) = PLACEHOLDERS.iter().find(|(name, _)| name == word) {
                    *word = (*example).to_owned();
                }
            }
            words.push("--help".to_owned());
            let run = program.run_list(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
            checked += 1;
            if run.code != 0 {
                problems += &format!("{page}: {command}\n{}\n", run.stderr);
            }
        }
    }
    assert!(checked > 200, "{checked}");
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn splits_commands_like_a_shell() {
    let check = |command: &str, expected: &[&str]| assert_eq!(words(command), expected, "{command}");
    check("toolgate run 'a b' --json | jq .", &["toolgate", "run", "a b", "--json"]);
    check("toolgate servers add web -- npx -y web", &["toolgate", "servers", "add", "web"]);
    check("toolgate check    # a comment", &["toolgate", "check"]);
    check("toolgate x '' \"it's\"", &["toolgate", "x", "", "it's"]);
}
