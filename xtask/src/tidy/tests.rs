//! Each check on an input that holds its rule and on inputs that break it.

use super::*;

/// A crate that uses the named ones: `name`, `build name` or `dev name`.
fn a_crate(name: &str, uses: &[&str]) -> Crate {
    let dependencies = uses
        .iter()
        .map(|used| match used.split_once(' ') {
            Some(("build", name)) => Dependency { name: name.to_owned(), kind: Some(Kind::Build) },
            Some(("dev", name)) => Dependency { name: name.to_owned(), kind: Some(Kind::Dev) },
            _ => Dependency { name: (*used).to_owned(), kind: None },
        })
        .collect();
    Crate { name: name.to_owned(), manifest: format!("crates/{name}/Cargo.toml"), dependencies }
}

fn file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.to_owned(), text: text.to_owned() }
}

/// Compares message and place of every problem, one line each.
#[track_caller]
fn check(problems: &[Problem], expected: &[&str]) {
    let found: Vec<_> = problems.iter().map(|p| format!("{} --> {}", p.message, p.place)).collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn check_edges(crates: &[(&str, &[&str])], expected: &[&str]) {
    let crates: Vec<_> = crates.iter().map(|(name, uses)| a_crate(name, uses)).collect();
    check(&crate_edges(&crates), expected);
}

#[test]
fn a_problem_says_what_where_and_what_to_do() {
    let problems = crate_edges(&[a_crate("toolgate-core", &[])]);
    assert_eq!(
        render(&problems),
        "error: crate `toolgate-core` is not in the table of crates\n\
         \x20 --> crates/toolgate-core/Cargo.toml\n\
         hint: a new crate is a design change: give it a row in `CRATES` in xtask/src/tidy.rs\n\
         \n1 problem\n"
    );
}

#[test]
fn edges_of_the_table_hold() {
    check_edges(
        &[
            ("toolgate-types", &["serde"]),
            ("toolgate-config", &["toolgate-types", "dev testkit"]),
            ("toolgate", &["toolgate-config", "toolgate-types"]),
            ("testkit", &[]),
            ("xtask", &["anyhow"]),
        ],
        &[],
    );
}

#[test]
fn an_edge_against_the_arrows_fails() {
    check_edges(
        &[("toolgate-types", &["toolgate-config"]), ("toolgate-config", &["toolgate-types"])],
        &["crate `toolgate-types` may not use `toolgate-config` --> crates/toolgate-types/Cargo.toml"],
    );
}

#[test]
fn build_and_dev_edges_count_too() {
    check_edges(
        &[("toolgate-types", &["build toolgate-config", "dev toolgate-config"]), ("toolgate-config", &[])],
        &[
            "crate `toolgate-types` may not use `toolgate-config` --> crates/toolgate-types/Cargo.toml",
            "crate `toolgate-types` may not use `toolgate-config` --> crates/toolgate-types/Cargo.toml",
        ],
    );
}

#[test]
fn the_test_servers_stay_in_tests() {
    check_edges(
        &[("toolgate", &["testkit"]), ("testkit", &[])],
        &["crate `toolgate` may not use `testkit` --> crates/toolgate/Cargo.toml"],
    );
}

#[test]
fn the_table_itself_has_no_cycle() {
    for (index, row) in CRATES.iter().enumerate() {
        for used in row.may_use {
            assert!(CRATES[..index].iter().any(|above| above.name == *used), "{} uses {used}", row.name);
        }
    }
}

#[test]
fn only_one_crate_and_the_test_peer_name_rmcp() {
    let crates = [
        a_crate("toolgate-mcp", &["rmcp"]),
        a_crate("conformance-server", &["rmcp"]),
        a_crate("toolgate-server", &["dev rmcp-macros"]),
    ];
    check(
        &rmcp_stays_in_one_crate(&crates),
        &["crate `toolgate-server` names `rmcp` --> crates/toolgate-server/Cargo.toml"],
    );
}

#[track_caller]
fn check_page(page: &str, expected: &[&str]) {
    let crates = [a_crate("toolgate", &[]), a_crate("toolgate-types", &[])];
    check(&architecture_names_crates(&crates, page), expected);
}

#[test]
fn a_page_that_names_what_exists_and_what_is_planned_holds() {
    check_page(
        "`toolgate` uses `toolgate-types`; `toolgate_types::Name` and `toolgate.yaml` are no crates\n\
         ## Planned\n`toolgate-policy` ← `toolgate`\n## After\n",
        &[],
    );
}

#[test]
fn an_unnamed_crate_fails() {
    check_page(
        "`toolgate` and toolgate-types\n## Planned\n`toolgate-types`\n",
        &["crate `toolgate-types` is not named in ARCHITECTURE.md --> crates/toolgate-types/Cargo.toml"],
    );
}

#[test]
fn a_named_crate_that_does_not_exist_fails() {
    check_page(
        "`toolgate` and `toolgate-types`\n`testkit`\n## Planned\n## After\n`toolgate-policy`\n",
        &[
            "crate `testkit` does not exist --> ARCHITECTURE.md:2",
            "crate `toolgate-policy` does not exist --> ARCHITECTURE.md:5",
        ],
    );
}

#[test]
fn a_planned_crate_is_in_the_table() {
    check_page(
        "`toolgate` and `toolgate-types`\n## Planned\n`toolgate-core`\n",
        &["crate `toolgate-core` is planned, but not in the table of crates --> ARCHITECTURE.md:3"],
    );
}

#[test]
fn a_module_begins_with_a_header() {
    let files = [
        file("crates/a/src/lib.rs", "//! A.\n"),
        file("crates/a/src/b/c.rs", "use std::fmt;\n"),
        file("xtask/src/main.rs", "\n//! Late.\n"),
        file("crates/a/tests/it/main.rs", "fn main() {}\n"),
        file("crates/a/src/page.md", "# Page\n"),
    ];
    check(
        &module_headers(&files),
        &[
            "module without a header --> crates/a/src/b/c.rs:1",
            "module without a header --> xtask/src/main.rs:1",
        ],
    );
}

#[test]
fn no_file_is_called_mod_rs() {
    let files = [file("crates/a/src/b/mod.rs", "//! B.\n"), file("crates/a/src/smod.rs", "//! S.\n")];
    check(&no_mod_rs(&files), &["file called `mod.rs` --> crates/a/src/b/mod.rs"]);
}

#[test]
fn machine_paths_are_found_where_a_path_begins() {
    for needle in MACHINE_PATHS {
        let text = format!(
            "fine\n\"{needle}ann/tools\"\nhttps://example.com{needle}page\nfile://{needle}ann\n${{BASE}}{needle}x\n"
        );
        check(
            &no_machine_paths(&[file("README.md", &text)]),
            &[
                &format!("path of one machine, below `{needle}` --> README.md:2"),
                &format!("path of one machine, below `{needle}` --> README.md:4"),
            ],
        );
    }
}
