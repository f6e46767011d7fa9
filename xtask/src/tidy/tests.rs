//! Each check with input that follows its rule and input that breaks it.

use super::*;

/// A crate with these dependencies: `name`, `build name` or `dev name`.
fn a_crate(name: &str, uses: &[&str]) -> Crate {
    let dependencies = uses
        .iter()
        .map(|used| match used.split_once(' ') {
            Some(("build", name)) => Dependency { name: name.to_owned(), kind: Some(DependencyKind::Build) },
            Some(("dev", name)) => Dependency { name: name.to_owned(), kind: Some(DependencyKind::Dev) },
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
fn a_problem_has_a_message_a_place_and_a_hint() {
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
fn accepts_edges_of_the_table() {
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
fn rejects_an_edge_against_the_order() {
    check_edges(
        &[("toolgate-types", &["toolgate-config"]), ("toolgate-config", &["toolgate-types"])],
        &["crate `toolgate-types` may not use `toolgate-config` --> crates/toolgate-types/Cargo.toml"],
    );
}

#[test]
fn checks_build_and_dev_dependencies() {
    check_edges(
        &[("toolgate-types", &["build toolgate-config", "dev toolgate-config"]), ("toolgate-config", &[])],
        &[
            "crate `toolgate-types` may not use `toolgate-config` --> crates/toolgate-types/Cargo.toml",
            "crate `toolgate-types` may not use `toolgate-config` --> crates/toolgate-types/Cargo.toml",
        ],
    );
}

#[test]
fn rejects_test_servers_outside_of_tests() {
    check_edges(
        &[("toolgate", &["testkit"]), ("testkit", &[])],
        &["crate `toolgate` may not use `testkit` --> crates/toolgate/Cargo.toml"],
    );
}

#[test]
fn the_table_has_no_cycle() {
    for (index, row) in CRATES.iter().enumerate() {
        for used in row.may_use {
            assert!(CRATES[..index].iter().any(|above| above.name == *used), "{} uses {used}", row.name);
        }
    }
}

#[test]
fn only_the_test_peer_uses_rmcp() {
    let crates = [
        a_crate("toolgate-mcp", &["oauth2"]),
        a_crate("conformance-server", &["rmcp"]),
        a_crate("toolgate-server", &["dev rmcp-macros"]),
    ];
    check(
        &no_product_crate_uses_rmcp(&crates),
        &["crate `toolgate-server` names `rmcp` --> crates/toolgate-server/Cargo.toml"],
    );
}

#[track_caller]
fn check_page(page: &str, expected: &[&str]) {
    let crates = [a_crate("toolgate", &[]), a_crate("toolgate-types", &[])];
    check(&architecture_names_crates(&crates, page), expected);
}

#[test]
fn accepts_a_page_with_existing_and_planned_crates() {
    check_page(
        "`toolgate` uses `toolgate-types`; `toolgate_types::Name` and `toolgate.yaml` are no crates\n\
         ## Planned\n`toolgate-policy` ← `toolgate`\n## After\n",
        &[],
    );
}

#[test]
fn rejects_a_crate_missing_in_the_page() {
    check_page(
        "`toolgate` and toolgate-types\n## Planned\n`toolgate-types`\n",
        &["crate `toolgate-types` is not named in ARCHITECTURE.md --> crates/toolgate-types/Cargo.toml"],
    );
}

#[test]
fn rejects_a_named_crate_that_does_not_exist() {
    check_page(
        "`toolgate` and `toolgate-types`\n`testkit`\n## Planned\n## After\n`toolgate-policy`\n",
        &[
            "crate `testkit` does not exist --> ARCHITECTURE.md:2",
            "crate `toolgate-policy` does not exist --> ARCHITECTURE.md:5",
        ],
    );
}

#[test]
fn rejects_a_planned_crate_missing_in_the_table() {
    check_page(
        "`toolgate` and `toolgate-types`\n## Planned\n`toolgate-core`\n",
        &["crate `toolgate-core` is planned, but not in the table of crates --> ARCHITECTURE.md:3"],
    );
}

#[test]
fn rejects_a_module_without_header() {
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
fn rejects_files_called_mod_rs() {
    let files = [file("crates/a/src/b/mod.rs", "//! B.\n"), file("crates/a/src/smod.rs", "//! S.\n")];
    check(&no_mod_rs(&files), &["file called `mod.rs` --> crates/a/src/b/mod.rs"]);
}

#[test]
fn finds_machine_paths_only_at_the_start_of_a_path() {
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

#[test]
fn links_lead_to_files_and_headings() {
    let files = [
        file("docs/a.md", "# One `two`, three\n## One\n## One\n[x](b.md) [y](#one-1) [z](#one-two-three)"),
        file("docs/b.md", "[up](../README.md) [folder](..) [url](https://example.com/x) `[code](x.md)`"),
        file("README.md", "[docs](docs) [anchor](docs/a.md#one)\n```\n[block](x.md)\n```\n[gone](docs/c.md)"),
        file("docs/d.md", "[no heading](a.md#four) [here](#x)"),
    ];
    check(
        &links::check(&files),
        &[
            "the link `docs/c.md` leads nowhere --> README.md:5",
            "the link `a.md#four` leads nowhere --> docs/d.md:1",
            "the link `#x` leads nowhere --> docs/d.md:1",
        ],
    );
}

#[test]
fn finds_vendored_files_that_were_changed() {
    let (path, _, licence) = VENDORED[0];
    let other = "crates/x/vendor/other.js";
    let found = vendored_files(&[file(path, "changed"), file(licence, "MIT"), file(other, "")]);
    let messages: Vec<_> = found.iter().map(|problem| problem.message.as_str()).collect();
    assert!(messages[0].starts_with("a vendored file was changed"), "{messages:?}");
    assert_eq!((messages[1], found[1].place.as_str()), ("a vendored file is not listed", other));
    assert_eq!(vendored_files(&[]).len(), 2, "the file and its licence are missing");
}
