//! The automation of this repository: `cargo xtask COMMAND`.
//!
//! Every check of this repository is a command here, so that contributors run exactly the checks that decide.
//! Invariant: knows cargo, git and the tree, never the product; no crate of the workspace is a dependency.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own, read on a terminal")]
#![expect(
    clippy::disallowed_methods,
    reason = "runs cargo and git, measures time, and names the path in every error of std::fs itself"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod check_deb;
mod check_macos;
mod ci;
mod conformance;
mod docs;
mod fit;
mod fuzz;
mod metadata;
mod peers;
mod program;
mod release;
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
    /// Run every check: format, tidy, lints, docs, tests, conformance.
    ///
    /// Stops at the first failure, shows its output and the command that reruns only that step. Installs missing
    /// tools.
    Test(test::TestOptions),
    /// Check rules the compiler cannot: crate edges, module headers.
    ///
    /// Also ARCHITECTURE.md and the language rules: words to avoid, type names used twice, long commit subjects.
    /// Reports every problem at once. Builds nothing.
    Tidy(tidy::TidyOptions),
    /// Run `cargo xtask test` on a fresh clone of HEAD, without uncommitted changes.
    Ci,
    /// Run the official MCP conformance suite.
    ///
    /// Tests Toolgate as a client, or with `--server` as a server, in front of a server with all fixtures of the suite
    /// and beside an unrelated one. Every scenario that passes without Toolgate must pass through it, for each pair of
    /// client revision and server.
    Conformance(conformance::ConformanceOptions),
    /// Build the release binary and measure it. Never fails because of a time.
    ///
    /// `gateway` and `counts` fail if instructions or allocations of a call rise by more than 10 %.
    Bench {
        /// The benchmark to run [default: all of them].
        name: Option<bench::BenchmarkName>,
        #[command(flatten)]
        gateway: bench::gateway::GatewayOptions,
    },
    /// Compute the constants of tool search from the calibration set, and measure them on held-out sources.
    ///
    /// Writes `crates/toolgate-search/src/choice/model/fitted.rs`. The result is the same on every run.
    Fit {
        /// Write nothing; fail if the file has other constants.
        #[arg(long)]
        check: bool,
    },
    /// Build the book below `target/book` and check its links.
    ///
    /// Installs mdBook if it is missing. URLs of other hosts are not opened.
    Docs,
    /// Build the packages of a release: archive, `.deb`, checksums, below `target/dist`.
    ///
    /// With a version it first writes Cargo.toml, Cargo.lock and CHANGELOG.md. Commits and tags nothing.
    Release(release::ReleaseOptions),
    /// Install the `.deb` in a container, run it as a service, and remove it.
    ///
    /// Needs root and, the first time, the network. The container is below `target/container`.
    CheckDeb {
        /// The package [default: the newest one below `target/dist`].
        package: Option<std::path::PathBuf>,
    },
    /// Compile for macOS, and test the portable supervision of processes.
    ///
    /// Compiles every target with all lints, without linking, on any system. Installs the standard library for macOS
    /// with rustup if it is missing.
    CheckMacos,
    /// Run the long crash tests, which take minutes.
    ///
    /// They kill writers of the log and of the registry, and the executable, 200 times each, and simulate 20,000 power
    /// losses for the log.
    Crash,
    /// Run the long load tests of the gateway.
    ///
    /// Its memory must not grow, and clients that are not part of the problem must not notice it. `cargo xtask test`
    /// runs the same loads for some seconds.
    Soak {
        /// The load to run [default: all of them, one after the other, which takes more than an hour].
        load: Option<test::SoakLoad>,
        /// Duration in seconds [default: depends on the load].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        seconds: Option<u32>,
    },
    /// Run the fuzz targets and show their output.
    Fuzz {
        /// The target to run [default: all of them, one after another].
        target: Option<String>,
        /// Duration per target in seconds. Zero is rejected: to libFuzzer it means forever.
        #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Ci => ci::run(),
        Command::Conformance(options) => conformance::run(&options),
        Command::Bench { name, gateway } => bench::run(name, &gateway),
        Command::Docs => docs::run(),
        Command::Fit { check } => fit::run(check),
        Command::Release(options) => release::run(&options),
        Command::CheckDeb { package } => check_deb::run(package.as_deref()),
        Command::CheckMacos => check_macos::run(),
        Command::Crash => test::crash(),
        Command::Soak { load, seconds } => test::soak(load, seconds),
        Command::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        // The problems are printed already.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
