//! Runs the fuzz targets on their seeds and on mutations of them.

use toolgate_mcp::fuzz;

#[path = "../../../fuzz/mutants.rs"]
mod mutants;

use mutants::run;

#[test]
fn parsers_handle_arbitrary_input() {
    run("scan", fuzz::scan);
    run("events", fuzz::events);
    run("lines", fuzz::lines);
    run("websocket", fuzz::websocket);
    run("oauth", fuzz::oauth);
}
