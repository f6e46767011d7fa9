//! `cargo xtask test`: the steps, cheap ones first.
//!
//! Invariant: this list alone decides if the tree is green. A new check is a new step here.

use std::cell::RefCell;
use std::io::{Stdout, Write};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use anyhow::bail;

use crate::step::{Console, Outcome, Step, run_all};
use crate::{conformance, peers, program, tidy, tools};

/// The flags of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct TestOptions {
    /// Run only this step.
    #[arg(long, value_name = "STEP", conflicts_with = "list")]
    only: Option<String>,
    /// List the steps with their descriptions.
    #[arg(long)]
    list: bool,
}

/// Runs the command. Returns true if every step passed.
pub(crate) fn run(options: &TestOptions) -> anyhow::Result<bool> {
    let early = BackgroundInstall::default();
    let steps = steps(early.clone());
    if options.list {
        for step in &steps {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(true);
    }
    let chosen: Vec<_> = match &options.only {
        None => steps.iter().collect(),
        Some(name) => steps.iter().filter(|step| step.name == name).collect(),
    };
    if chosen.is_empty() {
        bail!(
            "unknown step `{}`\nhint: `cargo xtask test --list` lists the steps",
            options.only.as_deref().unwrap_or_default()
        );
    }
    if options.only.is_none() {
        early.begin()?;
    }
    let start = Instant::now();
    run_all(&mut Console::stdout(), &chosen, steps.len(), &|| start.elapsed())
}

/// Runs the long crash tests, which `cargo xtask test` skips.
pub(crate) fn crash() -> anyhow::Result<bool> {
    let mut all = true;
    for package in ["toolgate-audit", "toolgate-store", "toolgate"] {
        let test = ["test", "--package", package, "--test", "it", LONG, "--", "--ignored", "--nocapture"];
        all &= program::stream(program::cargo(test))?;
    }
    let mut power = program::cargo(["test", "--package", "toolgate-audit", "--lib", "power_loss"]);
    // Each seed loses power four times.
    power.env("POWER_LOSS_SEEDS", "5000");
    all &= program::stream(power)?;
    Ok(all)
}

/// Long load tests of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SoakLoad {
    /// 300 calls a second with faults among them, to 50 servers, for an hour.
    Calls,
    /// One of 100 servers stops.
    Hang,
    /// 1,000 servers come and go, for ten minutes.
    Flap,
    /// 5,000 clients send their request headers byte by byte.
    Drip,
}

impl SoakLoad {
    /// The name of the test.
    fn test(self) -> &'static str {
        match self {
            Self::Calls => "soak::an_hour_under_faults",
            Self::Hang => "soak::one_of_a_hundred_hangs",
            Self::Flap => "soak::a_thousand_servers_flap",
            Self::Drip => "soak::five_thousand_drip",
        }
    }
}

/// Runs one load, or all of them one after the other; the memory of the gateway must not grow.
pub(crate) fn soak(load: Option<SoakLoad>, seconds: Option<u32>) -> anyhow::Result<bool> {
    // The same packages as in `cargo xtask test`, so that `testkit` is built too, but in release.
    let mut command = program::cargo(["test", "--release", "--workspace", "--test", "it"]);
    command.args([load.map_or(SOAK, SoakLoad::test), "--", "--ignored", "--nocapture", "--test-threads=1"]);
    if let Some(seconds) = seconds {
        command.env("TOOLGATE_SOAK_SECONDS", seconds.to_string());
    }
    program::stream(command)
}

/// Names of the long crash tests, and the module of the load tests.
const LONG: &str = "two_hundred_kills";
const SOAK: &str = "soak::";

fn steps(early: BackgroundInstall) -> Vec<Step<Stdout>> {
    vec![
        Step {
            name: "fmt",
            about: "every file is formatted; `cargo fmt --all` does it",
            run: Box::new(|_| captured(&["fmt", "--all", "--check"])),
        },
        Step {
            name: "tidy",
            about: "crate edges, module headers, ARCHITECTURE.md and language; the same as `cargo xtask tidy`",
            run: Box::new(|_| tidy::step()),
        },
        Step {
            name: "deny",
            about: "licences, bans, sources and advisories of the dependencies; policy in deny.toml",
            run: Box::new(deny),
        },
        Step {
            name: "clippy",
            about: "no warning in any target",
            run: Box::new(|_| captured(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
        },
        Step { name: "docs", about: "the docs build without a warning", run: Box::new(|_| docs()) },
        Step {
            name: "peers",
            about: "third-party MCP servers and the conformance suite are installed below `target`",
            run: Box::new(move |console| {
                early.end()?;
                peers::step(console)
            }),
        },
        Step {
            name: "tests",
            about: "unit and integration tests, output shown as it comes",
            run: Box::new(tests),
        },
        Step {
            name: "conformance",
            about: "the official MCP conformance suite, with `toolgate` as the client under test",
            run: Box::new(conformance::step),
        },
    ]
}

/// Installs the peers while the first steps run: it waits for the network, and they wait for the processor. Errors are
/// ignored here: they occur again in the step of the peers, which reports them.
#[derive(Clone, Default)]
struct BackgroundInstall(Rc<RefCell<Option<Child>>>);

impl BackgroundInstall {
    fn begin(&self) -> anyhow::Result<()> {
        if !peers::are_installed() {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["test", "--only", "peers"]).current_dir(program::root());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            *self.0.borrow_mut() = Some(command.spawn()?);
        }
        Ok(())
    }

    fn end(&self) -> anyhow::Result<()> {
        if let Some(mut child) = self.0.borrow_mut().take() {
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for BackgroundInstall {
    fn drop(&mut self) {
        // After a failed step, no child process stays behind.
        if Rc::strong_count(&self.0) == 1
            && let Some(mut child) = self.0.borrow_mut().take()
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn captured(arguments: &[&str]) -> anyhow::Result<Outcome> {
    outcome(program::capture(program::cargo(arguments))?)
}

fn outcome(captured: program::CommandOutput) -> anyhow::Result<Outcome> {
    Ok(if captured.success { Outcome::Passed } else { Outcome::Failed(captured.output) })
}

fn docs() -> anyhow::Result<Outcome> {
    let mut command = program::cargo(["doc", "--no-deps", "--workspace"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    outcome(program::capture(command)?)
}

fn tests(console: &mut Console<impl Write>) -> anyhow::Result<Outcome> {
    console.end_line()?;
    let mut command = program::cargo(["test", "--workspace"]);
    // Tests with third-party servers are ignored unless these are installed, which may not be the case with
    // `--only tests`.
    if peers::are_installed() {
        // The long tests take minutes and hours; `cargo xtask crash` and `cargo xtask soak` run them.
        let all = ["--", "--include-ignored", "--skip", LONG, "--skip", SOAK];
        command.args(all).env(peers::VARIABLE, peers::folder());
    }
    let passed = program::stream(command)?;
    Ok(if passed { Outcome::Passed } else { Outcome::Failed(String::new()) })
}

/// Checks the advisories last and separately: only they need the network, and may be skipped without it.
fn deny(console: &mut Console<impl Write>) -> anyhow::Result<Outcome> {
    tools::DENY.ensure(console)?;
    let own = program::capture(program::cargo(["deny", "check", "licenses", "bans", "sources"]))?;
    if !own.success {
        return Ok(Outcome::Failed(own.output));
    }
    let mut fetch = program::cargo(["deny", "fetch", "db"]);
    // `is_offline` parses English messages.
    fetch.env("LC_ALL", "C");
    let fetched = program::capture(fetch)?;
    if !fetched.success {
        return Ok(if is_offline(&fetched.output) {
            Outcome::PassedWith("advisories not checked: no network to fetch their database".into())
        } else {
            Outcome::Failed(fetched.output)
        });
    }
    captured(&["deny", "--offline", "check", "advisories"])
}

/// Returns true if git could not reach the remote at all, judged by its messages.
fn is_offline(output: &str) -> bool {
    ["unable to access", "Could not resolve host", "Could not read from remote repository"]
        .iter()
        .any(|words| output.contains(words))
}

#[test]
fn only_an_unreachable_host_counts_as_offline() {
    assert!(is_offline(
        "fatal: unable to access 'https://example.com/': Could not resolve host: example.com"
    ));
    assert!(is_offline("ssh: Could not resolve hostname example.com: Name or service not known"));
    assert!(!is_offline("fatal: couldn't find remote ref main"));
    assert!(!is_offline("error: invalid value in deny.toml"));
}

#[test]
fn tests_skip_the_long_loads() {
    use clap::ValueEnum as _;
    assert!(SoakLoad::value_variants().iter().all(|load| load.test().starts_with(SOAK)));
}

#[test]
fn step_names_are_unique() {
    let mut names: Vec<_> = steps(BackgroundInstall::default()).iter().map(|step| step.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
