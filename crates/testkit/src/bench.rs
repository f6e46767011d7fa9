//! The two ends of a benchmark: `testkit bench upstream|load|sessions KEY=VALUE…`.
//!
//! `upstream` is a good MCP server that costs little, `load` calls its tools over connections that stay open, and
//! `sessions` holds many clients that do nothing. Each runs on one thread, so that most of the machine is left to
//! what stands between them. Invariant: what is sent and answered depends on the keys alone, not on the run.

mod histogram;
mod load;
mod sessions;
mod upstream;
mod wire;

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;

use crate::complain;

/// What every random choice begins with.
const SEED: u64 = 2026;

/// The words after the mode.
struct Keys(HashMap<String, String>);

impl Keys {
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
    let keys = Keys(keys.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
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
            complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// One line for who drives the benchmark.
fn tell(line: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| error.to_string())
}
