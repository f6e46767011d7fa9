//! Tests of the index: what is found, in which order, and after which changes.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::entry::Parameter;

fn entry(name: &str, description: &str) -> Entry {
    Entry { name: name.to_owned(), description: description.to_owned(), ..Entry::default() }
}

fn small() -> Index {
    Index::new([
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
fn words_find_tools() {
    check("which folders are in this directory?", "list_directory");
    check("show me what the file contains, read it", "read_file");
    check("open an issue about the crash", "github__create_issue");
}

#[test]
fn who_is_named_comes_first() {
    check("search", "search");
    check("READ_FILE", "read_file");
    check("create_issue", "github__create_issue");
    check("use readFile for listing the files and folders in a directory", "read_file");
    check("search the files and folders with `web-search`.", "webSearch");
    assert_eq!(small().search("read_file", 1)[0].score, 1.0);
}

#[test]
fn what_does_not_fit_is_left_out() {
    assert_eq!(small().search("photosynthesis", 10), []);
    assert_eq!(small().search("", 10), []);
    assert_eq!(small().search("read the file", 0), []);
    assert_eq!(Index::default().search("read", 10), []);
}

#[test]
fn what_is_not_shown_is_not_found() {
    let index = small();
    let found = index.search_among("read_file and list the directory", 10, |entry| entry.name != "read_file");
    assert!(found.iter().all(|hit| hit.name != "read_file"), "{found:?}");
    assert_eq!(found[0].name, "list_directory");
}

#[test]
fn parameters_and_examples_are_found_too() {
    let schema = json!({"properties": {"mermaid": {"type": "string"}}});
    let index = Index::new([
        Entry { parameters: Parameter::all_of(&schema), ..entry("draw", "Makes a picture") },
        Entry { examples: vec!["how warm is it outside?".to_owned()], ..entry("forecast", "Weather") },
    ]);
    assert_eq!(index.search("a mermaid", 1)[0].name, "draw");
    assert_eq!(index.search("is it warm", 1)[0].name, "forecast");
}

#[test]
fn a_long_query_is_cut_between_letters() {
    let query = format!("read file {}", "ä".repeat(MOST_QUERY));
    assert_eq!(small().search(&query, 1)[0].name, "read_file");
}

proptest! {
    /// Changes leave nothing behind: an index that was changed answers as one that was made anew.
    #[test]
    fn a_changed_index_answers_as_a_new_one(
        changes in prop::collection::vec((0..6_usize, "[a-f]{1,2}( [a-f]{1,2}){0,4}", any::<bool>()), 0..30),
        query in "[a-f]{1,2}( [a-f]{1,2}){0,3}",
    ) {
        let mut changed = Index::default();
        let mut kept: Vec<Entry> = Vec::new();
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
        let anew = Index::new(kept);
        prop_assert_eq!(changed.len(), anew.len());
        let names = |hits: Vec<Hit>| hits.into_iter().map(|hit| hit.name).collect::<Vec<_>>();
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
