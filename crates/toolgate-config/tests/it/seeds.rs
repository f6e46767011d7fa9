//! The fuzz targets, with their seeds and mutants of them.

use toolgate_config::fuzz;

#[path = "../../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn fuzz_targets_accept_seeds_and_mutants() {
    let text = |name: &str, target: fn(&str)| {
        run(name, |bytes| {
            if let Ok(text) = std::str::from_utf8(bytes) {
                target(text);
            }
        });
    };
    text("yaml", fuzz::yaml);
    text("json", fuzz::json);
    text("toml", fuzz::toml);
    text("variable", fuzz::variable);
    text("dotenv", fuzz::dotenv);
}
