//! Valid files with random damage: loading never panics, and every problem can be rendered.

use proptest::prelude::*;
use toolgate_config::load;

use super::{environment, fixtures};

/// Strings with a meaning in one of the formats.
const PIECES: [&str; 28] = [
    "", " ", "\n", "\t", "\"", "'", "{", "}", "[", "]", ":", ",", "- ", "#", "&a ", "*a", "<<: ", "${",
    "${X}", "$$", "null", "0", "-1", "1e9", "\u{0}", "é", "\\", "---\n",
];

/// One change: position, number of characters removed, string inserted.
type Change = (prop::sample::Index, usize, &'static str);

fn apply_changes(text: &str, changes: &[Change]) -> String {
    let mut text = text.to_owned();
    for (at, length, piece) in changes {
        let boundary =
            |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let start = boundary(at.index(text.len() + 1));
        let end = boundary(start + length).max(start);
        text.replace_range(start..end, piece);
    }
    text
}

fn arbitrary_changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (any::<prop::sample::Index>(), 0_usize..12, prop::sample::select(&PIECES[..]));
    prop::collection::vec(change, 1..4)
}

/// Folder and file of every fixture.
fn files() -> Vec<(&'static str, &'static str)> {
    vec![
        ("myai", "siblings.yaml"),
        ("agent", "holodeck.yaml"),
        ("skill-executor/tools", "tools.json"),
        ("tool-contract", "tools.json"),
        ("clients", "vscode-mcp.json"),
        ("clients", "config.toml"),
        ("clients", "goose.yaml"),
        ("every-key", "toolgate.yaml"),
        ("every-key", "mcp.json"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_file_never_panics((folder, file) in prop::sample::select(files()), changes in arbitrary_changes()) {
        let text = fs_err::read_to_string(fixtures(folder).join(file)).unwrap();
        let project = super::project(&[(file, &apply_changes(&text, &changes))]);
        let loaded = load(project.path(), Some(file.as_ref()), &environment(&[("X", "from outside")]));
        let shown = format!("{}{:?}", loaded.report.render(), loaded.report.entries());
        prop_assert_eq!(loaded.config.is_none(), loaded.report.has_errors());
        prop_assert!(!shown.contains("from outside"), "{shown}");
        prop_assert!(loaded.config.is_none_or(|config| serde_json::to_string(&config).is_ok()));
    }
}
