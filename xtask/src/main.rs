//! The automation of this repository: `cargo xtask COMMAND`.
//!
//! Every check that guards this tree is a command here, so a contributor runs exactly what decides.
//! Invariant: knows cargo, git and the tree, never the product; no crate of ours is a dependency.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own, read on a terminal")]
#![expect(
    clippy::disallowed_methods,
    reason = "runs cargo and git, measures time, and names the path in every error of std::fs itself"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod ci;
mod conformance;
mod fuzz;
mod metadata;
mod peers;
mod program;
mod scratch;
mod step;
mod test;
mod tidy;
mod tools;

/// The automation of this repository.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything that must be green: format, tidy, lints, docs, tests, conformance.
    ///
    /// Stops at the first failure, shows its output and says how to rerun only that step. Tools that are
    /// missing are installed on the way.
    Test(test::Options),
    /// Check the rules of the tree that no compiler knows: crate edges, headers, ARCHITECTURE.md.
    ///
    /// Reports every problem at once. Builds nothing.
    Tidy,
    /// Run `cargo xtask test` on a fresh clone of HEAD, so that nothing uncommitted can help.
    Ci,
    /// Run the official MCP conformance suite against Toolgate as a client, or as a server with `--server`.
    ///
    /// As a server it stands in front of one that has all the suite's fixtures, with another one beside it. Every
    /// scenario that passes without it must pass with it, for each pair of client era and server.
    Conformance(conformance::Options),
    /// Build the release binary and measure it. Never fails on a time.
    Bench {
        /// The benchmark to run; all of them when left out.
        name: Option<bench::Name>,
        #[command(flatten)]
        gateway: bench::gateway::Options,
    },
    /// Kill writers of the log, of the registry and the executable 200 times each, and simulate 20,000 losses of
    /// power to the log, which takes minutes.
    Crash,
    /// Put the door under load for long: what it holds must not grow, and who has nothing to do with it must not
    /// notice. `cargo xtask test` does the same for some seconds.
    Soak {
        /// Only this load; all of them, one after the other, when left out, which takes more than an hour.
        load: Option<test::Load>,
        /// How long, in place of what each of them takes.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        seconds: Option<u32>,
    },
    /// Fuzz for longer than the step in `cargo xtask test` does, with the output shown as it comes.
    Fuzz {
        /// The target to run; all of them, one after another, when left out.
        target: Option<String>,
        /// How long each target runs. To libFuzzer zero means forever, so it is refused.
        #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Tidy => tidy::run(),
        Command::Ci => ci::run(),
        Command::Conformance(options) => conformance::run(&options),
        Command::Bench { name, gateway } => bench::run(name, &gateway),
        Command::Crash => test::crash(),
        Command::Soak { load, seconds } => test::soak(load, seconds),
        Command::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        // What is wrong has been said already.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
