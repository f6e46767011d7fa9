//! Locates the executable `testkit`. Every test that starts it includes this file as a module, by `#[path]`: no crate
//! depends on `testkit`, which is a program.
//!
//! `cargo test --workspace` has built it by now, because it has an integration test. When a single crate is tested, it
//! may be missing or outdated: then it is built here. Cargo then resolves other features than for the workspace, and
//! compiles many dependencies once more.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Returns the program, built from the current sources.
#[expect(clippy::disallowed_methods, reason = "runs cargo")]
pub(crate) fn testkit() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Test executables are in `deps`, those of packages one folder above.
        let own = std::env::current_exe().expect("a test knows where it is");
        let testkit = own.ancestors().nth(2).expect("it is in target/debug/deps").join("testkit");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("testkit");
        if !is_current(&testkit, &[sources.join("src"), sources.join("Cargo.toml")]) {
            let built =
                Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "testkit"]).status();
            assert!(built.expect("cargo is there").success(), "testkit builds");
        }
        testkit
    })
}

/// Returns true if the program exists and no source was changed since it was built.
pub(crate) fn is_current(program: &Path, sources: &[PathBuf]) -> bool {
    let changed = sources.iter().filter_map(|source| last_change(source)).max();
    last_change(program).is_some_and(|built| changed.is_none_or(|changed| changed <= built))
}

/// Returns the modification time of a file, or the latest one in a folder.
fn last_change(path: &Path) -> Option<SystemTime> {
    match fs_err::read_dir(path) {
        Ok(entries) => entries.flatten().filter_map(|entry| last_change(&entry.path())).max(),
        Err(_) => fs_err::metadata(path).and_then(|about| about.modified()).ok(),
    }
}
