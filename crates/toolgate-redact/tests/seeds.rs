//! Runs the fuzz target on its seeds and on mutations of them.

use toolgate_redact::fuzz;

#[path = "../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn masking_hides_any_secret() {
    run("mask", |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            fuzz::known_secret(text);
        }
    });
}
