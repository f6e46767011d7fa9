//! The two ends of a benchmark: `testkit bench upstream|load|sessions KEY=VALUE…`.
//!
//! `upstream` is a cheap MCP server, `load` calls its tools over keep-alive connections, and `sessions` holds many idle
//! clients. Each runs on one thread, so that most of the machine is left to the gateway between them. Invariant:
//! requests and responses depend on the keys alone, not on the run.

mod histogram;
mod load;
mod sessions;
mod upstream;
mod wire;

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;

use crate::print_error;

/// Seed of every random generator.
const SEED: u64 = 2026;

/// `KEY=VALUE` arguments after the mode.
struct BenchOptions(HashMap<String, String>);

impl BenchOptions {
    fn text(&self, key: &str) -> Result<&str, String> {
        self.0.get(key).map(String::as_str).ok_or_else(|| format!("`{key}=` is missing"))
    }

    fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        let Some(text) = self.0.get(key) else { return Ok(default) };
        text.parse().map_err(|_| format!("`{key}={text}` is not a whole number"))
    }
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let keys = args.iter().skip(1).filter_map(|arg| arg.split_once('='));
    let keys = BenchOptions(keys.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
    let tokio =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("threads can be made");
    let done = match args.first().map(String::as_str) {
        Some("upstream") => tokio.block_on(upstream::run(&keys)),
        Some("load") => tokio.block_on(load::run(&keys)),
        Some("sessions") => tokio.block_on(sessions::run(&keys)),
        _ => Err("usage: testkit bench upstream|load|sessions KEY=VALUE…".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(&why);
            ExitCode::FAILURE
        }
    }
}

/// Prints one line for the program that drives the benchmark.
fn print_line(line: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| error.to_string())
}
