//! The code in the pages: configuration is checked by the executable, commands and their options exist, Rust is part of
//! a compiled file, JSON and Python are well-formed. A block of an unknown language fails.
//!
//! A block `yaml` is a project file, `cedar` its policy. A block `yaml,part` needs more than it shows, such as files: its
//! keys are checked, and other problems are expected. `yaml,other` is a file of another program, and a part of the one in
//! `deploy/`. Typed pages (`tutorials`, `team_example`) run their blocks for real; `TESTED_ELSEWHERE` names other tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use super::docs::root;
use crate::support::program::Program;
use crate::support::typed_page::{Block, blocks};

/// Languages that other programs read: the page with such blocks, their number, and the tests that run those programs.
const TESTED_ELSEWHERE: [(&str, &str, usize, &str); 6] = [
    ("ini", "docs/deploy.md", 1, "cli::deployment"),
    ("nginx", "docs/how-to/reverse-proxy.md", 1, "gateway::reverse_proxies"),
    ("caddyfile", "docs/how-to/reverse-proxy.md", 1, "gateway::reverse_proxies"),
    ("python", "docs/programs.md", 13, "gateway::frameworks"),
    ("js", "docs/programs.md", 1, "gateway::frameworks"),
    ("text", "docs/sdk.md", 1, "`page` of toolgate-sdk"),
];
/// The page that is generated from the definition of the commands.
const COMMANDS_PAGE: &str = "docs/reference/commands.md";
/// Words that stand for others in commands, each with one of them.
const PLACEHOLDERS: [(&str, &str); 4] =
    [("CLIENT", "cursor"), ("SHELL", "bash"), ("COMMAND", "check"), ("--reference=PAGE", "--reference=rest")];

/// The files with an extension below a folder of the repository.
pub(super) fn files_below(folder: &str, extension: &str) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![root().join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).expect("a folder of the repository").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|kind| kind == extension) => files.push(path),
                false => {}
            }
        }
    }
    files
}

/// All pages with their text.
pub(super) fn pages() -> Vec<(String, String)> {
    let others =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name));
    let files = ["docs", "examples"].into_iter().flat_map(|folder| files_below(folder, "md")).chain(others);
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
fn problem(page: &str, block: &Block) -> Option<String> {
    let text = block.lines.join("\n") + "\n";
    match block.language() {
        "yaml" if block.is("other") => part_of(block, &files_below("deploy", "yml"), &["#"]),
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
        "toml" => dependency_problem(&text),
        "cedarschema" => part_of(block, &files_below("crates/toolgate-policy/src", "cedarschema"), &[]),
        "rust" => part_of(block, &rust_files(), &[]),
        // Usage and examples of the commands.
        "text" | "sh" if page == COMMANDS_PAGE => None,
        // Their commands have tests of their own.
        "console" => None,
        language => {
            let is_tested = TESTED_ELSEWHERE.iter().any(|known| (known.0, known.1) == (language, page));
            (!is_tested).then(|| format!("no test knows blocks of `{language}` in this page"))
        }
    }
}

/// The Rust files that pages show: the example, and the test of docs/sdk.md.
fn rust_files() -> Vec<PathBuf> {
    let mut files = files_below("examples", "rs");
    files.extend(files_below("crates/toolgate-sdk/tests", "rs"));
    files
}

/// Returns an error if no file has the lines of a block. Indentation, and comments behind a mark, do not count; `…`
/// stands for any text.
fn part_of(block: &Block, files: &[PathBuf], comments: &[&str]) -> Option<String> {
    let plain = |line: &str| {
        let end = comments.iter().filter_map(|mark| line.find(&format!(" {mark}"))).min();
        line[..end.unwrap_or(line.len())].trim().to_owned()
    };
    let wanted: Vec<_> = block.lines.iter().map(|line| plain(line)).filter(|line| !line.is_empty()).collect();
    let pattern = regex::escape(&wanted.join("\n")).replace('…', "(?s:.{0,2000}?)");
    let pattern = regex::Regex::new(&pattern).expect("an escaped pattern");
    let is_in = |file: &PathBuf| {
        let text = fs_err::read_to_string(file).expect("a text file");
        let lines: Vec<_> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
        pattern.is_match(&lines.join("\n"))
    };
    (!files.iter().any(is_in)).then(|| "no file has these lines".to_owned())
}

/// Checks a dependency on a crate of this repository: its folder and its features exist.
fn dependency_problem(text: &str) -> Option<String> {
    let quoted = |key: &str| text.split_once(key)?.1.split('"').nth(1);
    let name = text.split(" = ").next().unwrap_or_default();
    let manifest = root().join("crates").join(name).join("Cargo.toml");
    let Ok(manifest) = fs_err::read_to_string(&manifest) else { return Some(format!("no crate `{name}`")) };
    let is_path = quoted("path = ").is_some_and(|path| path.ends_with(&format!("/crates/{name}")));
    let has_feature = quoted("features = ").is_none_or(|one| manifest.contains(&format!("\n{one} = ")));
    (!is_path || !has_feature).then(|| "the path or the feature is not that of the crate".to_owned())
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
            if let Some(problem) = problem(&page, &block) {
                problems += &format!("{page}: {}\n{problem}\n", block.lines.join("\n"));
            }
        }
    }
    assert!(checked > 100, "{checked}");
    assert!(problems.is_empty(), "{problems}");
}

/// Lines of a page that are code because they are indented, not fenced: their language is unknown.
fn indented_code(text: &str) -> Vec<&str> {
    let (mut in_block, mut in_list, mut before, mut found) = (false, false, "", Vec::new());
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        if !in_block {
            let first = line.trim_start().split(' ').next().unwrap_or_default();
            let is_item = ["-", "*"].contains(&first) || first.ends_with('.') && first.len() < 4;
            in_list = is_item || in_list && (line.is_empty() || line.starts_with(' '));
            if line.starts_with("    ") && before.is_empty() && !in_list {
                found.push(line);
            }
        }
        before = line;
    }
    found
}

#[test]
fn code_is_fenced() {
    for (page, text) in pages() {
        // Its pictures are drawn with text.
        let found = if page == "ARCHITECTURE.md" { Vec::new() } else { indented_code(&text) };
        assert!(found.is_empty(), "{page} has code without a language: {found:#?}");
    }
    assert_eq!(indented_code("a\n\n    b\n\n- c\n\n    d\n"), ["    b"]);
}

/// The tests elsewhere look for their blocks: each block of a page is one of them.
#[test]
fn blocks_that_are_tested_elsewhere_are_counted() {
    for (language, page, count, test) in TESTED_ELSEWHERE {
        let text = fs_err::read_to_string(root().join(page)).expect("a page");
        let found = blocks(&text).iter().filter(|block| block.language() == language).count();
        assert_eq!(found, count, "{test} runs the blocks of `{language}` in {page}");
    }
}

/// Commands of a page: in blocks, and between backticks.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let continued = regex::Regex::new(r"\\\n *").expect("a pattern");
    for block in blocks(text) {
        found.extend(block.commands().into_iter().map(|(command, _)| command.replace("\\\n", " ")));
        if block.language() == "sh" {
            let examples = block.lines.join("\n");
            let examples = continued.replace_all(&examples, "");
            // Behind two spaces is the meaning; before a command, a variable or the input.
            let examples = examples.lines().map(|line| line.split("  ").next().unwrap_or(line));
            found.extend(examples.map(|line| line[line.find("toolgate ").unwrap_or(0)..].to_owned()));
        }
    }
    let mut in_block = false;
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
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
            // `toolgate help COMMAND` needs no more.
            if words[1] != "help" {
                words.push("--help".to_owned());
            }
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
