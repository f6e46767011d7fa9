//! Runs the fuzz target on its seeds and on mutations of them.

use toolgate_http::fuzz;

#[path = "../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn messages_are_read_alike_in_parts() {
    run("http", fuzz::http);
}
