//! Runs the fuzz target on its seeds and on mutations of them.

use toolgate_policy::fuzz;

#[path = "../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn policies_accept_any_arguments() {
    run("arguments", fuzz::arguments);
}
