//! Tests of the index: ranking, visibility and updates.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::entry::ToolParameter;

fn entry(name: &str, description: &str) -> ToolEntry {
    ToolEntry { name: name.to_owned(), description: description.to_owned(), ..ToolEntry::default() }
}

fn small() -> ToolIndex {
    ToolIndex::new([
        entry("read_file", "Read the contents of a file"),
        entry("list_directory", "List the files and folders in a directory"),
        entry("github__create_issue", "Open a new issue in a repository"),
        entry("search", "Search the web"),
        entry("webSearch", "Ask a search engine"),
    ])
}

#[track_caller]
fn check(query: &str, first: &str) {
    let found = small().search(query, 3);
    assert_eq!(found.first().map(|hit| hit.name.as_str()), Some(first), "{query}: {found:?}");
}

#[test]
fn finds_tools_by_words() {
    check("which folders are in this directory?", "list_directory");
    check("show me what the file contains, read it", "read_file");
    check("open an issue about the crash", "github__create_issue");
}

#[test]
fn named_tool_ranks_first() {
    check("search", "search");
    check("READ_FILE", "read_file");
    check("create_issue", "github__create_issue");
    check("use readFile for listing the files and folders in a directory", "read_file");
    check("search the files and folders with `web-search`.", "webSearch");
    assert_eq!(small().search("read_file", 1)[0].score, 1.0);
}

#[test]
fn omits_tools_that_do_not_match() {
    assert_eq!(small().search("photosynthesis", 10), []);
    assert_eq!(small().search("", 10), []);
    assert_eq!(small().search("read the file", 0), []);
    assert_eq!(ToolIndex::default().search("read", 10), []);
}

#[test]
fn hidden_tools_are_not_found() {
    let index = small();
    let found = index.search_among("read_file and list the directory", 10, |entry| entry.name != "read_file");
    assert!(found.iter().all(|hit| hit.name != "read_file"), "{found:?}");
    assert_eq!(found[0].name, "list_directory");
}

#[test]
fn searches_parameters_and_examples() {
    let schema = json!({"properties": {"mermaid": {"type": "string"}}});
    let index = ToolIndex::new([
        ToolEntry { parameters: ToolParameter::from_schema(&schema), ..entry("draw", "Makes a picture") },
        ToolEntry { examples: vec!["how warm is it outside?".to_owned()], ..entry("forecast", "Weather") },
    ]);
    assert_eq!(index.search("a mermaid", 1)[0].name, "draw");
    assert_eq!(index.search("is it warm", 1)[0].name, "forecast");
}

#[test]
fn long_query_is_truncated_at_a_character_boundary() {
    let query = format!("read file {}", "ä".repeat(MAX_QUERY_BYTES));
    assert_eq!(small().search(&query, 1)[0].name, "read_file");
}

proptest! {
    /// Updates leave nothing behind: a changed index gives the same results as a new one.
    #[test]
    fn updated_index_equals_a_new_one(
        changes in prop::collection::vec((0..6_usize, "[a-f]{1,2}( [a-f]{1,2}){0,4}", any::<bool>()), 0..30),
        query in "[a-f]{1,2}( [a-f]{1,2}){0,3}",
    ) {
        let mut changed = ToolIndex::default();
        let mut kept: Vec<ToolEntry> = Vec::new();
        for (name, description, is_removed) in changes {
            let entry = entry(&format!("tool{name}_x"), &description);
            if is_removed {
                prop_assert_eq!(changed.remove(&entry.name), kept.iter().any(|one| one.name == entry.name));
                kept.retain(|one| one.name != entry.name);
            } else {
                changed.put(entry.clone());
                match kept.iter_mut().find(|one| one.name == entry.name) {
                    Some(one) => *one = entry,
                    None => kept.push(entry),
                }
            }
        }
        let anew = ToolIndex::new(kept);
        prop_assert_eq!(changed.len(), anew.len());
        let names = |hits: Vec<SearchHit>| hits.into_iter().map(|hit| hit.name).collect::<Vec<_>>();
        let (one, other) = (changed.search(&query, 10), anew.search(&query, 10));
        for (one, other) in one.iter().zip(&other) {
            prop_assert!((one.score - other.score).abs() < 1e-4);
        }
        let mut one = names(one);
        let mut other = names(other);
        one.sort();
        other.sort();
        prop_assert_eq!(one, other);
    }
}
