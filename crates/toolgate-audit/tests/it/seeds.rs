//! Runs the fuzz targets on their seeds and on mutations of them.

use toolgate_audit::fuzz;

#[path = "../../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn log_and_redaction_accept_any_input() {
    run("log", fuzz::log);
    run("redact", |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            fuzz::redact(text);
        }
    });
}
