//! The targets of the fuzzer, with their seeds and mutants of them.

use toolgate_config::fuzz;

#[path = "../../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn readers_take_whatever_comes() {
    let texts: [(&str, fn(&str)); 5] = [
        ("yaml", fuzz::yaml),
        ("json", fuzz::json),
        ("toml", fuzz::toml),
        ("variable", fuzz::variable),
        ("dotenv", fuzz::dotenv),
    ];
    for (name, target) in texts {
        run(name, |bytes| {
            if let Ok(text) = std::str::from_utf8(bytes) {
                target(text);
            }
        });
    }
}
