//! `cargo xtask tidy`: rules of the tree that the compiler cannot check.
//!
//! Invariant: the checks are pure functions over the result of [`Tree::read`], except for the commit subjects, and all
//! of them run: a reader gets every problem at once.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest as _, Sha256};

use crate::metadata::{Dependency, DependencyKind, Metadata};
use crate::program;
use crate::step::Outcome;

mod language;
mod links;
#[cfg(test)]
mod tests;

/// A crate, and the crates of the workspace it may use.
struct CrateRule {
    name: &'static str,
    may_use: &'static [&'static str],
}

/// All crates. Dependencies point one way: a crate uses only crates above its own line.
/// A new dependency between crates is a design change, with its own commit.
const CRATES: &[CrateRule] = &[
    CrateRule { name: "toolgate-types", may_use: &[] },
    CrateRule { name: "toolgate-http", may_use: &[] },
    CrateRule { name: "toolgate-json", may_use: &[] },
    CrateRule { name: "toolgate-state", may_use: &[] },
    CrateRule { name: "toolgate-redact", may_use: &["toolgate-types"] },
    CrateRule { name: "toolgate-policy", may_use: &["toolgate-types", "toolgate-json"] },
    CrateRule { name: "toolgate-mcp", may_use: &["toolgate-types", "toolgate-http", "toolgate-json"] },
    CrateRule { name: "toolgate-search", may_use: &[] },
    CrateRule {
        name: "toolgate-audit",
        may_use: &["toolgate-types", "toolgate-json", "toolgate-redact", "toolgate-state"],
    },
    CrateRule { name: "toolgate-store", may_use: &["toolgate-types", "toolgate-state"] },
    CrateRule { name: "toolgate-postgres", may_use: &["toolgate-types", "toolgate-store", "toolgate-state"] },
    CrateRule { name: "toolgate-sdk-macros", may_use: &[] },
    CrateRule { name: "toolgate-sdk", may_use: &["toolgate-types", "toolgate-mcp", "toolgate-sdk-macros"] },
    CrateRule {
        name: "toolgate-upstream",
        may_use: &[
            "toolgate-types",
            "toolgate-json",
            "toolgate-redact",
            "toolgate-policy",
            "toolgate-mcp",
            "toolgate-state",
            "toolgate-store",
        ],
    },
    CrateRule {
        name: "toolgate-runtime",
        may_use: &[
            "toolgate-types",
            "toolgate-json",
            "toolgate-redact",
            "toolgate-policy",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-store",
            "toolgate-upstream",
            "toolgate-state",
        ],
    },
    CrateRule {
        name: "toolgate-config",
        may_use: &[
            "toolgate-types",
            "toolgate-redact",
            "toolgate-policy",
            "toolgate-store",
            "toolgate-upstream",
            "toolgate-runtime",
            "toolgate-state",
        ],
    },
    CrateRule {
        name: "toolgate-agent",
        may_use: &[
            "toolgate-types",
            "toolgate-json",
            "toolgate-redact",
            "toolgate-mcp",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-runtime",
            "toolgate-config",
            "toolgate-state",
        ],
    },
    CrateRule { name: "toolgate-console", may_use: &[] },
    CrateRule {
        name: "toolgate-server",
        may_use: &[
            "toolgate-types",
            "toolgate-http",
            "toolgate-json",
            "toolgate-mcp",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-console",
            "toolgate-store",
            "toolgate-runtime",
        ],
    },
    CrateRule {
        name: "toolgate-app",
        may_use: &[
            "toolgate-types",
            "toolgate-redact",
            "toolgate-policy",
            "toolgate-mcp",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-store",
            "toolgate-upstream",
            "toolgate-runtime",
            "toolgate-config",
            "toolgate-agent",
            "toolgate-server",
            "toolgate-postgres",
            "toolgate-state",
        ],
    },
    CrateRule {
        name: "toolgate",
        may_use: &[
            "toolgate-types",
            "toolgate-redact",
            "toolgate-policy",
            "toolgate-search",
            "toolgate-audit",
            "toolgate-store",
            "toolgate-upstream",
            "toolgate-runtime",
            "toolgate-config",
            "toolgate-agent",
            "toolgate-app",
            "toolgate-state",
        ],
    },
    CrateRule { name: "cards", may_use: &["toolgate-sdk"] },
    CrateRule { name: "say-hello", may_use: &["toolgate-sdk"] },
    CrateRule { name: TESTKIT, may_use: &[] },
    CrateRule { name: PEER, may_use: &[] },
    CrateRule { name: "xtask", may_use: &[] },
];

/// Test servers. Any crate may use this one, but only in its tests.
const TESTKIT: &str = "testkit";

/// A test server on a third-party implementation: the only crate that uses `rmcp`. It is a program, and no crate
/// depends on it.
const PEER: &str = "conformance-server";

/// Paths that exist on one machine only. Split, so that this file does not contain them.
const MACHINE_PATHS: [&str; 3] = [concat!("/", "root/"), concat!("/", "home/"), concat!("/", "Users/")];

/// Third-party data sets for benchmarks. They may contain any path.
const GOLD: &str = "eval/";

/// Files of others that are part of the product as they are, with their SHA-256 and their licence beside them.
const VENDORED: [(&str, &str, &str); 1] = [(
    "crates/toolgate-console/assets/vendor/uplot-1.6.32.min.js",
    "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "crates/toolgate-console/assets/vendor/uplot-LICENSE",
)];
/// Folders of these files.
const VENDOR: &str = "/vendor/";

/// The file of [`CRATES`], for hints.
const TABLE: &str = "xtask/src/tidy.rs";

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// A violation of a rule.
#[derive(Debug)]
struct Problem {
    message: String,
    /// The file, with a line if there is one.
    place: String,
    hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, place, hint } = self;
        writeln!(f, "error: {message}\n  --> {place}\nhint: {hint}")
    }
}

/// The input of the checks.
struct Tree {
    crates: Vec<Crate>,
    architecture: String,
    files: Vec<TextFile>,
}

/// A crate of the workspace.
struct Crate {
    name: String,
    /// Path of its manifest, relative to the root.
    manifest: String,
    dependencies: Vec<Dependency>,
}

/// A text file, with its path relative to the root.
struct TextFile {
    path: String,
    text: String,
}

/// The flags of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct TidyOptions {
    /// Lower the counts of `xtask/language-baseline.txt` to those of the tree. Never raises one.
    #[arg(long)]
    update: bool,
}

/// The command. Returns true if the tree is tidy.
pub(crate) fn run(options: &TidyOptions) -> anyhow::Result<bool> {
    let tree = Tree::read()?;
    if options.update {
        let lowered = language::lowered(&language::count(&tree.files), tree.baseline());
        fs::write(program::root().join(language::BASELINE), lowered)
            .with_context(|| format!("cannot write {}", language::BASELINE))?;
    }
    let problems = tree.problems()?;
    if problems.is_empty() {
        println!("Tidy: {} crates and {} text files hold the rules.", tree.crates.len(), tree.files.len());
        return Ok(true);
    }
    eprint!("{}", render(&problems));
    Ok(false)
}

/// The step of `cargo xtask test`.
pub(crate) fn step() -> anyhow::Result<Outcome> {
    let problems = Tree::read()?.problems()?;
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
        // Includes files that are not added yet: they will be in the next commit.
        let listed = program::git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let mut files = Vec::new();
        for path in program::stdout(listed)?.split_terminator('\0') {
            match fs::read(root.join(path)) {
                Ok(bytes) => {
                    // Links lead to binary files, too; these have no text to check.
                    let text = String::from_utf8(bytes).unwrap_or_default();
                    files.push(TextFile { path: path.to_owned(), text });
                }
                // Deleted, but not in the index yet.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // Git lists a symbolic link to a folder as a file.
                Err(error) if error.kind() == ErrorKind::IsADirectory => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            }
        }
        let architecture = root.join(ARCHITECTURE);
        let architecture = fs::read_to_string(&architecture)
            .with_context(|| format!("cannot read {}", architecture.display()))?;
        Ok(Self { crates, architecture, files })
    }

    /// The counts that the words of the tree must not exceed.
    fn baseline(&self) -> &str {
        self.files.iter().find(|file| file.path == language::BASELINE).map_or("", |file| &file.text)
    }

    fn problems(&self) -> anyhow::Result<Vec<Problem>> {
        let Self { crates, architecture, files } = self;
        let all = [
            crate_edges(crates),
            no_product_crate_uses_rmcp(crates),
            architecture_names_crates(crates, architecture),
            module_headers(files),
            no_mod_rs(files),
            no_machine_paths(files),
            vendored_files(files),
            links::check(files),
            language::check(&language::count(files), self.baseline()),
            language::duplicate_types(files),
            language::long_subjects()?,
        ];
        Ok(all.into_iter().flatten().collect())
    }
}

/// Checks that vendored files are those of their authors, and that there are no others.
fn vendored_files(files: &[TextFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |message: String, place: &str| {
        let hint = format!("`VENDORED` in {TABLE} lists the files, with their SHA-256 and licence");
        problems.push(Problem { message, place: place.to_owned(), hint });
    };
    for (path, expected, licence) in VENDORED {
        match files.iter().find(|file| file.path == path) {
            None => problem("a vendored file is missing".to_owned(), path),
            Some(file) => {
                let found: String =
                    Sha256::digest(&file.text).iter().map(|byte| format!("{byte:02x}")).collect();
                if found != expected {
                    problem(format!("a vendored file was changed: its SHA-256 is {found}"), path);
                }
            }
        }
        if !files.iter().any(|file| file.path == licence) {
            problem("the licence of a vendored file is missing".to_owned(), licence);
        }
    }
    let is_known = |path: &str| VENDORED.iter().any(|(known, _, licence)| path == *known || path == *licence);
    for file in files.iter().filter(|file| file.path.contains(VENDOR) && !is_known(&file.path)) {
        problem("a vendored file is not listed".to_owned(), &file.path);
    }
    problems
}

/// Checks that every crate has a row in [`CRATES`] and uses only the crates of its row.
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
            let in_tests = *kind == Some(DependencyKind::Dev);
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

/// The product implements the protocol itself, so that it controls every byte and every URL.
fn no_product_crate_uses_rmcp(crates: &[Crate]) -> Vec<Problem> {
    let is_rmcp = |dependency: &Dependency| dependency.name == "rmcp" || dependency.name.starts_with("rmcp-");
    crates
        .iter()
        .filter(|c| c.name != PEER && c.dependencies.iter().any(is_rmcp))
        .map(|c| Problem {
            message: format!("crate `{}` names `rmcp`", c.name),
            place: c.manifest.clone(),
            hint: format!("only `{PEER}` does, as a peer in tests; use the types of `toolgate-mcp`"),
        })
        .collect()
}

/// Checks that ARCHITECTURE.md names every crate, and future crates only under `## Planned`.
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
                    hint: "name a future crate only under `## Planned`".to_owned(),
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
                hint: "describe its job and its invariant, outside `## Planned`".to_owned(),
            });
        }
    }
    problems
}

/// Returns the texts between single backticks on a line.
fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Checks that each module begins with a description.
fn module_headers(files: &[TextFile]) -> Vec<Problem> {
    files
        .iter()
        .filter(|file| is_module(&file.path) && !file.text.starts_with("//!"))
        .map(|file| Problem {
            message: "module without a header".to_owned(),
            place: format!("{}:1", file.path),
            hint: "begin with `//!`: its job, its place in the path of a call, its invariant".to_owned(),
        })
        .collect()
}

/// `crates/*/src/**.rs` and `xtask/src/**.rs`.
fn is_module(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    path.ends_with(".rs") && matches!(parts[..], ["crates", _, "src", ..] | ["xtask", "src", ..])
}

/// Files called `mod.rs` look alike in an editor.
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

/// A path of one machine works on no other, and may contain a user name.
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

/// Returns true if the needle begins a path on this line: `"/x/` does, `example.com/x/` and `a/x/` do not.
fn begins_a_path(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~}$".contains(c))
    })
}
