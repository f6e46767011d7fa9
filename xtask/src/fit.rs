//! `cargo xtask fit`: computes the constants of the decisions of tool search.
//!
//! The example `fit` of `toolgate-search` does the work, because it knows the features. Invariant: all input is in the
//! tree, so anybody can compute the same constants.

use crate::program;

/// Runs the fit. Returns false if `is_check` is set and the constants in the tree differ.
pub(crate) fn run(is_check: bool) -> anyhow::Result<bool> {
    let mut command = program::cargo(["run", "--quiet", "--package", "toolgate-search", "--example", "fit"]);
    if is_check {
        command.args(["--", "--check"]);
    }
    Ok(command.status()?.success())
}
