//! Helpers of tests: load a project of a few files, and show the result. The tests of features and those in `tests/it`
//! share them.

use serde_json::Value as Json;
use toolgate_config::{Environment, LoadOutcome, load};

/// Creates an environment with these variables only.
pub(crate) fn environment(variables: &[(&str, &str)]) -> Environment {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Environment { variables: variables.iter().map(own).collect(), home: Some("/ann".into()) }
}

/// Creates a project folder with these files.
pub(crate) fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }
    folder
}

/// Loads a folder with these files.
pub(crate) fn loaded(files: &[(&str, &str)], variables: &[(&str, &str)]) -> LoadOutcome {
    load(project(files).path(), None, &environment(variables))
}

/// Returns the configuration as JSON; panics with the messages if there is none.
pub(crate) fn config(loaded: &LoadOutcome) -> Json {
    match &loaded.config {
        Some(config) => serde_json::to_value(config).unwrap(),
        None => panic!("refused:\n{}", messages(loaded)),
    }
}

/// Formats the problems, one per line: `error toolgate.yaml:3:5 unknown key `x` (did you mean `y`?)`.
pub(crate) fn messages(loaded: &LoadOutcome) -> String {
    let entries = serde_json::to_value(loaded.report.entries()).unwrap();
    let line = |entry: &Json| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let mut line = text("severity");
        if !text("file").is_empty() {
            line.push_str(&format!(" {}", text("file")));
        }
        if entry["line"].is_u64() {
            line.push_str(&format!(":{}:{}", entry["line"], entry["column"]));
        }
        line.push_str(&format!(" {}", text("message")));
        if !text("hint").is_empty() {
            line.push_str(&format!(" ({})", text("hint")));
        }
        line
    };
    entries.as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the errors only.
pub(crate) fn errors(loaded: &LoadOutcome) -> Vec<String> {
    let messages = messages(loaded);
    messages.lines().filter_map(|line| line.strip_prefix("error ")).map(str::to_owned).collect()
}
