//! The step runner: one line per step with its time, and a hint on failure.
//!
//! Invariant: knows no step. It runs the given steps in order and stops at the first failure, because a later step
//! often fails only for the same reason.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A check that must pass.
pub(crate) struct Step<W> {
    /// The value of `--only`.
    pub(crate) name: &'static str,
    /// Description for `--list`.
    pub(crate) about: &'static str,
    pub(crate) run: Box<StepFn<W>>,
}

/// The work of a step. It may print messages, which go below its line.
pub(crate) type StepFn<W> = dyn Fn(&mut Console<W>) -> anyhow::Result<Outcome>;

/// The result of a step. An `Err` beside it means that the step could not start.
pub(crate) enum Outcome {
    Passed,
    /// Passed with a note, for example about a part that could not be checked.
    PassedWith(String),
    /// Failed, with the output to show. Empty if the output was streamed.
    Failed(String),
}

/// Prints the progress.
pub(crate) struct Console<W> {
    out: W,
    colour: bool,
    /// The line of the running step has no end yet.
    line_open: bool,
}

impl Console<io::Stdout> {
    /// Standard output, in colour on a terminal unless `NO_COLOR` is set.
    pub(crate) fn stdout() -> Self {
        let objection = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self::new(io::stdout(), io::stdout().is_terminal() && !objection)
    }
}

impl<W: Write> Console<W> {
    pub(crate) fn new(out: W, colour: bool) -> Self {
        Self { out, colour, line_open: false }
    }

    /// Prints one line below the line of the running step.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.out, "      {text}")?;
        self.out.flush()
    }

    /// Ends the line of the running step, so that a child process can write below it.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        if self.line_open {
            writeln!(self.out)?;
            self.line_open = false;
        }
        self.out.flush()
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn green(&self, text: &str) -> String {
        self.paint("32", text)
    }

    fn red(&self, text: &str) -> String {
        self.paint("1;31", text)
    }
}

/// Runs the steps in order. Returns true if all of them passed.
///
/// `clock` returns the time since some fixed moment; `all` is the number of steps without `--only`.
pub(crate) fn run_all<W: Write>(
    console: &mut Console<W>,
    steps: &[&Step<W>],
    all: usize,
    clock: &dyn Fn() -> Duration,
) -> anyhow::Result<bool> {
    let start = clock();
    let count = steps.len();
    for (index, step) in steps.iter().enumerate() {
        if !run_one(console, step, index + 1, count, clock)? {
            return Ok(false);
        }
    }
    let took = human(clock() - start);
    match steps {
        [step] if all > 1 => writeln!(
            console.out,
            "{} Next: `cargo xtask test` runs all {all} steps.",
            console.green(&format!("Step `{}` passed in {took}.", step.name)),
        )?,
        _ => writeln!(
            console.out,
            "{} Next: `cargo run -- -C examples/team serve` to see it work, \
             or CONTRIBUTING.md to change it.",
            console.green(&format!("All {count} steps passed in {took}.")),
        )?,
    }
    Ok(true)
}

fn run_one<W: Write>(
    console: &mut Console<W>,
    step: &Step<W>,
    number: usize,
    count: usize,
    clock: &dyn Fn() -> Duration,
) -> anyhow::Result<bool> {
    let head = format!("[{number}/{count}] {}", console.bold(step.name));
    write!(console.out, "{head} …")?;
    console.out.flush()?;
    console.line_open = true;
    let start = clock();
    let outcome = (step.run)(console);
    let took = human(clock() - start);
    // A message was printed below the line, so the result needs a line that names the step again.
    let lead = if console.line_open { String::new() } else { format!("{head}:") };
    console.line_open = false;

    let (output, could_run) = match outcome {
        Ok(Outcome::Passed) => {
            writeln!(console.out, "{lead} {took}")?;
            return Ok(true);
        }
        Ok(Outcome::PassedWith(note)) => {
            writeln!(console.out, "{lead} {took} ({note})")?;
            return Ok(true);
        }
        Ok(Outcome::Failed(output)) => (output, true),
        Err(error) => (format!("{error:#}"), false),
    };
    writeln!(console.out, "{lead} {} after {took}", console.red("failed"))?;
    if !output.trim().is_empty() {
        writeln!(console.out, "\n{}", output.trim_end())?;
    }
    let verb = if could_run { "failed" } else { "could not run" };
    writeln!(console.out, "\n{} step `{}` {verb}", console.red("error:"), step.name)?;
    writeln!(console.out, "hint: rerun only this step with `cargo xtask test --only {}`", step.name)?;
    Ok(false)
}

/// `0.4s`, `12s`, `4m12s`: tenths matter only for short times.
pub(crate) fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        _ => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}
