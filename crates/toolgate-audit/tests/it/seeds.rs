//! The targets of the fuzzer, with their seeds and mutants of them.

use toolgate_audit::fuzz;

#[path = "../../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn logs_and_texts_take_whatever_comes() {
    run("log", fuzz::log);
    run("redact", |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            fuzz::redact(text);
        }
    });
}
