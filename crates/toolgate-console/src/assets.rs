//! The files that pages load: one style sheet, one script module, the icon, and uPlot on pages with a chart.
//!
//! Their names contain the hash of their content, so browsers may keep them for a year. Invariant: pages load nothing
//! else, and nothing from another origin.

use std::fmt::Write as _;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// A file of the console.
#[derive(Debug)]
pub struct Asset {
    /// Path with the hash of the content.
    pub path: String,
    pub content_type: &'static str,
    pub content: &'static str,
}

/// All files.
pub static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: asset("console", "css", "text/css; charset=utf-8", include_str!("../assets/console.css")),
    script: asset("console", "js", "text/javascript; charset=utf-8", include_str!("../assets/console.js")),
    // Not changed by us; `cargo xtask tidy` checks its SHA-256.
    chart: asset(
        "uplot",
        "js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/vendor/uplot-1.6.32.min.js"),
    ),
    icon: asset("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg")),
});

/// The files by their use.
#[derive(Debug)]
pub struct Assets {
    pub style: Asset,
    pub script: Asset,
    /// uPlot, under the MIT licence. It is in `assets/vendor`.
    pub chart: Asset,
    pub icon: Asset,
}

impl Assets {
    pub fn all(&self) -> [&Asset; 4] {
        [&self.style, &self.script, &self.chart, &self.icon]
    }

    /// Finds a file by the last part of its path.
    pub fn find(&self, name: &str) -> Option<&Asset> {
        self.all().into_iter().find(|asset| asset.path.strip_prefix("/assets/") == Some(name))
    }
}

fn asset(name: &str, end: &str, content_type: &'static str, content: &'static str) -> Asset {
    let mut path = format!("/assets/{name}-");
    for byte in &Sha256::digest(content)[..6] {
        let _ = write!(path, "{byte:02x}");
    }
    let _ = write!(path, ".{end}");
    Asset { path, content_type, content }
}

#[test]
fn the_files_are_small_and_load_nothing_else() {
    assert!(ASSETS.script.content.len() <= 25_000, "the module has {} bytes", ASSETS.script.content.len());
    let total: usize = ASSETS.all().iter().map(|asset| asset.content.len()).sum();
    assert!(total <= 105_000, "the files have {total} bytes");
    for part in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://"] {
        assert!(!ASSETS.script.content.contains(part), "{part}");
    }
    for part in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "new Function"]
    {
        assert!(!ASSETS.chart.content.contains(part), "{part}");
    }
    for part in ["@import", "url("] {
        assert!(!ASSETS.style.content.contains(part), "{part}");
    }
    let names: Vec<_> = ASSETS.all().iter().filter_map(|asset| ASSETS.find(&asset.path[8..])).collect();
    assert_eq!(names.len(), 4);
}
