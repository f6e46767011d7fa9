//! `cargo xtask tidy`: the rules of the tree that no compiler knows.
//!
//! Invariant: the checks are pure functions over what [`Tree::read`] took from the disk, and all of
//! them run: a reader gets every problem at once.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;

use crate::metadata::{Dependency, Kind, Metadata};
use crate::program;
use crate::step::Outcome;

#[cfg(test)]
mod tests;

/// One crate of the plan, and the crates of ours it may use.
struct Allowed {
    name: &'static str,
    may_use: &'static [&'static str],
}

/// Every crate there may be. Arrows point one way: a crate uses only crates above its own line.
/// A new arrow is a design change, with a commit of its own.
const CRATES: &[Allowed] = &[
    Allowed { name: "toolgate-types", may_use: &[] },
    Allowed { name: "toolgate-policy", may_use: &["toolgate-types"] },
    Allowed { name: "toolgate-mcp", may_use: &["toolgate-types"] },
    Allowed { name: "toolgate-search", may_use: &["toolgate-types"] },
    Allowed { name: "toolgate-audit", may_use: &["toolgate-types"] },
    Allowed { name: "toolgate-store", may_use: &["toolgate-types"] },
    Allowed { name: "toolgate-sdk-macros", may_use: &[] },
    Allowed { name: "toolgate-sdk", may_use: &["toolgate-types", "toolgate-mcp", "toolgate-sdk-macros"] },
    Allowed { name: "toolgate-upstream", may_use: &["toolgate-types", "toolgate-policy", "toolgate-mcp"] },
    Allowed {
        name: "toolgate-runtime",
        may_use: &[
            "toolgate-types",
            "toolgate-policy",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-store",
            "toolgate-upstream",
        ],
    },
    Allowed {
        name: "toolgate-config",
        may_use: &[
            "toolgate-types",
            "toolgate-policy",
            "toolgate-mcp",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-store",
            "toolgate-upstream",
            "toolgate-runtime",
        ],
    },
    Allowed {
        name: "toolgate-agent",
        may_use: &[
            "toolgate-types",
            "toolgate-mcp",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-runtime",
            "toolgate-config",
        ],
    },
    Allowed {
        name: "toolgate-server",
        may_use: &[
            "toolgate-types",
            "toolgate-mcp",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-store",
            "toolgate-runtime",
            "toolgate-config",
        ],
    },
    Allowed {
        name: "toolgate",
        may_use: &[
            "toolgate-types",
            "toolgate-policy",
            "toolgate-mcp",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-store",
            "toolgate-sdk",
            "toolgate-upstream",
            "toolgate-runtime",
            "toolgate-config",
            "toolgate-agent",
            "toolgate-server",
        ],
    },
    Allowed { name: "cards", may_use: &["toolgate-sdk"] },
    Allowed { name: "say-hello", may_use: &["toolgate-sdk"] },
    Allowed { name: TESTKIT, may_use: &[] },
    Allowed { name: PEER, may_use: &[] },
    Allowed { name: "xtask", may_use: &[] },
];

/// The real servers that tests talk to. Any crate may use it, but only in its tests.
const TESTKIT: &str = "testkit";

/// A server for tests whose job is to be somebody else's implementation: the one crate beside `toolgate-mcp`
/// that names `rmcp`. It is a program, and no crate uses it.
const PEER: &str = "conformance-server";

/// Paths that exist on one machine only. Split, so that this file does not hold what it forbids.
const MACHINE_PATHS: [&str; 3] = [concat!("/", "root/"), concat!("/", "home/"), concat!("/", "Users/")];

/// Sets that others made to measure with. They name what paths they like.
const GOLD: &str = "eval/";

/// Where [`CRATES`] is, for hints.
const TABLE: &str = "xtask/src/tidy.rs";

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// One broken rule.
#[derive(Debug)]
struct Problem {
    message: String,
    /// A file, with a line where there is one.
    place: String,
    hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, place, hint } = self;
        writeln!(f, "error: {message}\n  --> {place}\nhint: {hint}")
    }
}

/// All that the checks look at.
struct Tree {
    crates: Vec<Crate>,
    /// The text of ARCHITECTURE.md.
    architecture: String,
    files: Vec<TextFile>,
}

/// One crate of the workspace.
struct Crate {
    name: String,
    /// Its manifest, seen from the root.
    manifest: String,
    dependencies: Vec<Dependency>,
}

/// One text file, its path seen from the root.
struct TextFile {
    path: String,
    text: String,
}

/// The command. Says whether the tree is tidy.
pub(crate) fn run() -> anyhow::Result<bool> {
    let tree = Tree::read()?;
    let problems = tree.problems();
    if problems.is_empty() {
        println!("Tidy: {} crates and {} text files hold the rules.", tree.crates.len(), tree.files.len());
        return Ok(true);
    }
    eprint!("{}", render(&problems));
    Ok(false)
}

/// The step of `cargo xtask test`.
pub(crate) fn step() -> anyhow::Result<Outcome> {
    let problems = Tree::read()?.problems();
    Ok(if problems.is_empty() { Outcome::Passed } else { Outcome::Failed(render(&problems)) })
}

fn render(problems: &[Problem]) -> String {
    let mut text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    let count = problems.len();
    text += &format!("{count} {}\n", if count == 1 { "problem" } else { "problems" });
    text
}

impl Tree {
    fn read() -> anyhow::Result<Self> {
        let root = program::root();
        let crates = Metadata::read(Path::new("Cargo.toml"))?
            .packages
            .into_iter()
            .map(|package| Crate {
                name: package.name,
                manifest: package
                    .manifest_path
                    .strip_prefix(&root)
                    .unwrap_or(&package.manifest_path)
                    .display()
                    .to_string(),
                dependencies: package.dependencies,
            })
            .collect();
        // With files not yet added: they are in the next commit, and so is their problem.
        let listed = program::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let mut files = Vec::new();
        for path in program::stdout(listed)?.split_terminator('\0') {
            match fs::read(root.join(path)) {
                Ok(bytes) => {
                    // What is not UTF-8 is not text.
                    if let Ok(text) = String::from_utf8(bytes) {
                        files.push(TextFile { path: path.to_owned(), text });
                    }
                }
                // Deleted, but git does not know it yet.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // A link to a folder is listed as a file.
                Err(error) if error.kind() == ErrorKind::IsADirectory => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            }
        }
        let architecture = root.join(ARCHITECTURE);
        let architecture = fs::read_to_string(&architecture)
            .with_context(|| format!("cannot read {}", architecture.display()))?;
        Ok(Self { crates, architecture, files })
    }

    fn problems(&self) -> Vec<Problem> {
        let Self { crates, architecture, files } = self;
        [
            crate_edges(crates),
            rmcp_stays_in_one_crate(crates),
            architecture_names_crates(crates, architecture),
            module_headers(files),
            no_mod_rs(files),
            no_machine_paths(files),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Every crate has a row in [`CRATES`], and uses no crate of ours that its row does not name.
fn crate_edges(crates: &[Crate]) -> Vec<Problem> {
    let ours: BTreeSet<_> = crates.iter().map(|c| c.name.as_str()).collect();
    let mut problems = Vec::new();
    for Crate { name, manifest, dependencies } in crates {
        let Some(row) = CRATES.iter().find(|row| row.name == name) else {
            problems.push(Problem {
                message: format!("crate `{name}` is not in the table of crates"),
                place: manifest.clone(),
                hint: format!("a new crate is a design change: give it a row in `CRATES` in {TABLE}"),
            });
            continue;
        };
        for Dependency { name: used, kind } in dependencies {
            let in_tests = *kind == Some(Kind::Dev);
            let allowed = row.may_use.contains(&used.as_str()) || (in_tests && used == TESTKIT);
            if ours.contains(used.as_str()) && !allowed {
                let list: Vec<_> = row.may_use.iter().map(|name| format!("`{name}`")).collect();
                let list = if list.is_empty() { "nothing of ours".to_owned() } else { list.join(", ") };
                problems.push(Problem {
                    message: format!("crate `{name}` may not use `{used}`"),
                    place: manifest.clone(),
                    hint: format!("it may use {list}; the table is in {TABLE}"),
                });
            }
        }
    }
    problems
}

/// One crate of the product speaks the protocol, so one crate changes when its library does.
fn rmcp_stays_in_one_crate(crates: &[Crate]) -> Vec<Problem> {
    let is_rmcp = |dependency: &Dependency| dependency.name == "rmcp" || dependency.name.starts_with("rmcp-");
    crates
        .iter()
        .filter(|c| c.name != "toolgate-mcp" && c.name != PEER && c.dependencies.iter().any(is_rmcp))
        .map(|c| Problem {
            message: format!("crate `{}` names `rmcp`", c.name),
            place: c.manifest.clone(),
            hint: "only `toolgate-mcp` does; use its types".to_owned(),
        })
        .collect()
}

/// The page names every crate there is, and under `## Planned` only crates still to come.
fn architecture_names_crates(crates: &[Crate], page: &str) -> Vec<Problem> {
    let mut present = BTreeSet::new();
    let mut problems = Vec::new();
    let mut planned = false;
    for (index, line) in page.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            planned = heading.trim() == "Planned";
        }
        let place = || format!("{ARCHITECTURE}:{}", index + 1);
        for name in backticked(line) {
            let exists = crates.iter().any(|c| c.name == name);
            if exists && !planned {
                present.insert(name);
            }
            let is_crate_name = CRATES.iter().any(|row| row.name == name)
                || name.strip_prefix("toolgate-").is_some_and(|rest| {
                    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                });
            if is_crate_name && !exists && !planned {
                problems.push(Problem {
                    message: format!("crate `{name}` does not exist"),
                    place: place(),
                    hint: "a crate still to come is named only under `## Planned`".to_owned(),
                });
            } else if is_crate_name && planned && !CRATES.iter().any(|row| row.name == name) {
                problems.push(Problem {
                    message: format!("crate `{name}` is planned, but not in the table of crates"),
                    place: place(),
                    hint: format!("give it a row in `CRATES` in {TABLE}, or correct the name"),
                });
            }
        }
    }
    for Crate { name, manifest, .. } in crates {
        if !present.contains(name.as_str()) {
            problems.push(Problem {
                message: format!("crate `{name}` is not named in {ARCHITECTURE}"),
                place: manifest.clone(),
                hint: "say what it does and what it must not know, outside `## Planned`".to_owned(),
            });
        }
    }
    problems
}

/// What stands between single backticks on a line.
fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A reader who opens a file learns first what it is for.
fn module_headers(files: &[TextFile]) -> Vec<Problem> {
    files
        .iter()
        .filter(|file| is_module(&file.path) && !file.text.starts_with("//!"))
        .map(|file| Problem {
            message: "module without a header".to_owned(),
            place: format!("{}:1", file.path),
            hint: "begin with `//!`: what it is, its place, its invariant".to_owned(),
        })
        .collect()
}

/// `crates/*/src/**.rs` and `xtask/src/**.rs`.
fn is_module(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    path.ends_with(".rs") && matches!(parts[..], ["crates", _, "src", ..] | ["xtask", "src", ..])
}

/// Ten tabs called `mod.rs` tell nothing apart.
fn no_mod_rs(files: &[TextFile]) -> Vec<Problem> {
    files
        .iter()
        .filter(|file| file.path.rsplit('/').next() == Some("mod.rs"))
        .map(|file| Problem {
            message: "file called `mod.rs`".to_owned(),
            place: file.path.clone(),
            hint: "name it after its module: `foo.rs` beside `foo/`".to_owned(),
        })
        .collect()
}

/// A path of one machine works nowhere else, and tells who wrote it.
fn no_machine_paths(files: &[TextFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for TextFile { path, text } in files.iter().filter(|file| !file.path.starts_with(GOLD)) {
        for (index, line) in text.lines().enumerate() {
            if let Some(found) = MACHINE_PATHS.iter().find(|needle| begins_a_path(line, needle)) {
                problems.push(Problem {
                    message: format!("path of one machine, below `{found}`"),
                    place: format!("{path}:{}", index + 1),
                    hint: "use a path relative to the repository, `~`, or a variable".to_owned(),
                });
            }
        }
    }
    problems
}

/// Whether the needle begins a path on this line: `"/x/` does, `example.com/x/` and `a/x/` do not.
fn begins_a_path(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~}$".contains(c))
    })
}
