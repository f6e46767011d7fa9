//! The targets of the fuzzer, with their seeds and mutants of them.

use toolgate_mcp::fuzz;

#[path = "../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn the_wire_takes_whatever_comes() {
    run("scan", fuzz::scan);
    run("events", fuzz::events);
    run("lines", fuzz::lines);
    run("websocket", fuzz::websocket);
}
