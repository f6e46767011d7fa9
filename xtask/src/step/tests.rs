//! The runner with empty steps, and a clock that advances one second each time it is read.

use std::cell::Cell;
use std::time::Duration;

use super::{Console, Outcome, Step, human, run_all};

type Out = Vec<u8>;

fn step(
    name: &'static str,
    run: impl Fn(&mut Console<Out>) -> anyhow::Result<Outcome> + 'static,
) -> Step<Out> {
    Step { name, about: "", run: Box::new(run) }
}

/// Runs the steps, two of which exist, and compares result and output.
#[track_caller]
fn check(steps: &[Step<Out>], passed: bool, expected: &str) {
    let mut console = Console::new(Vec::new(), false);
    let seconds = Cell::new(0);
    let clock = || {
        seconds.set(seconds.get() + 1);
        Duration::from_secs(seconds.get())
    };
    let steps: Vec<_> = steps.iter().collect();
    let verdict = run_all(&mut console, &steps, 2, &clock).unwrap();
    assert_eq!(String::from_utf8(console.out).unwrap(), expected);
    assert_eq!(verdict, passed);
}

#[test]
fn prints_a_line_per_step_and_the_next_command() {
    check(
        &[
            step("fmt", |_| Ok(Outcome::Passed)),
            step("deny", |_| Ok(Outcome::PassedWith("no advisories".into()))),
        ],
        true,
        "[1/2] fmt … 1.0s\n\
         [2/2] deny … 1.0s (no advisories)\n\
         All 2 steps passed in 5.0s. Next: `cargo run -- -C examples/team serve` to see it work, \
         or CONTRIBUTING.md to change it.\n",
    );
}

#[test]
fn a_failure_shows_its_output_and_ends_the_run() {
    check(
        &[step("fmt", |_| Ok(Outcome::Failed("wrong\n".into()))), step("deny", |_| Ok(Outcome::Passed))],
        false,
        "[1/2] fmt … failed after 1.0s\n\nwrong\n\nerror: step `fmt` failed\n\
         hint: rerun only this step with `cargo xtask test --only fmt`\n",
    );
}

#[test]
fn a_step_that_cannot_run_fails_with_the_cause() {
    check(
        &[step("fmt", |_| Err(anyhow::anyhow!("no such program").context("cannot start `cargo`")))],
        false,
        "[1/1] fmt … failed after 1.0s\n\ncannot start `cargo`: no such program\n\n\
         error: step `fmt` could not run\n\
         hint: rerun only this step with `cargo xtask test --only fmt`\n",
    );
}

#[test]
fn prints_messages_below_the_step_and_names_it_again_with_the_result() {
    check(
        &[step("deny", |console| {
            console.say("installing …")?;
            Ok(Outcome::Passed)
        })],
        true,
        "[1/1] deny …\n      installing …\n[1/1] deny: 1.0s\n\
         Step `deny` passed in 3.0s. Next: `cargo xtask test` runs all 2 steps.\n",
    );
}

#[test]
fn formats_times_briefly() {
    assert_eq!(human(Duration::from_millis(420)), "0.4s");
    assert_eq!(human(Duration::from_millis(12_900)), "12s");
    assert_eq!(human(Duration::from_secs(252)), "4m12s");
}
