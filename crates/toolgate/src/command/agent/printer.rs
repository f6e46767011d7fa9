//! Prints a run: on a terminal, streamed text and a line per call; otherwise plain lines; with `--json`, events.
//!
//! Invariant: the answer goes to stdout, everything else to stderr; text from outside is sanitised; the only control
//! sequences are styles and the redrawing of the line of the wait, and only on a terminal. Nothing else is erased, so questions
//! and their answers stay; the wait for the model is not drawn while a call runs.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value as Json;
use toolgate_agent::{EndReason, RunEvent, RunOutcome, RunUsage};
use toolgate_redact::printable;
use toolgate_redact::sanitize::sanitize;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::markdown::Markdown;
use crate::output::{BOLD, DIM, Output, quoted_lines};

/// Characters of the arguments and of the result on the line of a call that is not on a terminal.
const MAX_ARGUMENT_CHARS: usize = 80;
const MAX_RESULT_CHARS: usize = 100;
/// Calls kept for `/show`.
const MAX_CALLS: usize = 200;

/// Time between two drawings of the wait for the model.
pub(crate) const WAIT_STEP: Duration = Duration::from_millis(120);
const WAIT_FRAMES: [char; 8] = ['⠋', '⠙', '⠸', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Moves to the start of the line and erases it.
const ERASE_LINE: &str = "\r\u{1b}[K";

/// Prints the events of a run.
pub(crate) struct Printer<'a> {
    output: &'a Output,
    /// True if text is streamed to a terminal.
    is_terminal: bool,
    state: Mutex<PrinterState>,
}

struct PrinterState {
    markdown: Markdown,
    /// Text of this turn that was not printed yet.
    unprinted: String,
    /// Steps of the wait for the model. `None` while it answers, and while calls run: they may ask questions.
    wait_steps: Option<u32>,
    /// True if the line of the wait is drawn.
    shows_wait: bool,
    running_calls: usize,
    calls: Vec<CallDetails>,
}

/// A call with its whole result, for `/show`.
#[derive(Clone)]
pub(crate) struct CallDetails {
    pub(crate) number: usize,
    pub(crate) tool: String,
    pub(crate) arguments: Json,
    pub(crate) text: String,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(output: &'a Output) -> Self {
        let is_terminal = output.terminal().is_stdout && output.terminal().is_stderr;
        let state = PrinterState {
            markdown: Markdown::new(output.columns()),
            unprinted: String::new(),
            wait_steps: None,
            shows_wait: false,
            running_calls: 0,
            calls: Vec::new(),
        };
        Self { output, is_terminal, state: Mutex::new(state) }
    }

    /// Returns a call by its number.
    pub(crate) fn call(&self, number: usize) -> Option<CallDetails> {
        self.state().calls.iter().find(|call| call.number == number).cloned()
    }

    pub(crate) fn print_event(&self, event: RunEvent) {
        if self.output.json {
            // A closed pipe ends the command quietly.
            let _ = self.output.json_line(&event);
            return;
        }
        let mut state = self.state();
        self.erase_wait(&mut state);
        match &event {
            RunEvent::Text { .. } | RunEvent::Replied { .. } | RunEvent::Ended(_) => state.wait_steps = None,
            RunEvent::Call { .. } => {
                state.wait_steps = None;
                state.running_calls += 1;
            }
            RunEvent::Result { .. } => {
                state.running_calls = state.running_calls.saturating_sub(1);
                state.wait_steps = (state.running_calls == 0).then_some(0);
            }
            RunEvent::Started { .. } | RunEvent::Retrying { .. } | RunEvent::Note { .. } => {}
        }
        match event {
            RunEvent::Started { run, resumed: true, .. } => self.note(&format!("resuming run {run}\n")),
            RunEvent::Started { .. } => {}
            RunEvent::Text { text } => self.print_text(&mut state, &text),
            RunEvent::Retrying { why } => {
                self.break_line(&mut state);
                state.unprinted.clear();
                self.note(&format!("{}\n", printable(&why)));
            }
            RunEvent::Replied { .. } => self.break_line(&mut state),
            RunEvent::Call { number, tool, arguments, .. } => {
                self.print_call(&mut state, number, tool, arguments)
            }
            RunEvent::Result { number, failed, text, took_ms, .. } => {
                self.print_result(&mut state, number, failed, text, took_ms);
            }
            RunEvent::Note { text } => self.note(&format!("{}\n", printable(&text))),
            RunEvent::Ended(ended) => self.print_outcome(&mut state, &ended),
        }
    }

    /// Begins the wait for the first reply of the model.
    pub(crate) fn begin_wait(&self) {
        let mut state = self.state();
        state.running_calls = 0;
        state.wait_steps = Some(0);
    }

    /// Draws the wait for the model, if there is one. Call it every [`WAIT_STEP`].
    pub(crate) fn draw_wait(&self) {
        let mut state = self.state();
        if !self.is_terminal || self.output.json {
            return;
        }
        let Some(steps) = &mut state.wait_steps else { return };
        *steps = steps.saturating_add(1);
        let (frame, waited) = (WAIT_FRAMES[*steps as usize % WAIT_FRAMES.len()], WAIT_STEP * *steps);
        self.output.control(ERASE_LINE);
        self.note(&format!("{frame} {} s · Ctrl-C stops", waited.as_secs()));
        state.shows_wait = true;
    }

    fn erase_wait(&self, state: &mut PrinterState) {
        if std::mem::take(&mut state.shows_wait) {
            self.output.control(ERASE_LINE);
        }
    }

    fn print_text(&self, state: &mut PrinterState, text: &str) {
        state.unprinted.push_str(text);
        if !self.is_terminal || text.is_empty() {
            return;
        }
        let shown = state.markdown.push(&sanitize(text), self.output.columns());
        self.output.result(&shown);
    }

    /// Ends the streamed line of a turn.
    fn break_line(&self, state: &mut PrinterState) {
        if self.is_terminal {
            self.output.result(&state.markdown.end());
        }
    }

    fn print_call(&self, state: &mut PrinterState, number: usize, tool: String, arguments: Json) {
        if !self.is_terminal && !state.unprinted.trim().is_empty() {
            self.note(&format!("{}\n", quoted_lines(state.unprinted.trim())));
        }
        state.unprinted.clear();
        let shown = CallDetails { number, tool, arguments, text: String::new() };
        if self.is_terminal {
            let head = format!("▸ {}", call_head(&shown, MAX_ARGUMENT_CHARS.max(self.output.columns())));
            self.note(&format!("{}\n", self.fitting(&head)));
        }
        if state.calls.len() >= MAX_CALLS {
            state.calls.remove(0);
        }
        state.calls.push(shown);
    }

    fn print_result(
        &self,
        state: &mut PrinterState,
        number: usize,
        failed: bool,
        text: String,
        took_ms: f64,
    ) {
        let Some(call) = state.calls.iter_mut().find(|call| call.number == number) else { return };
        call.text = text;
        let mark = if failed { "✗" } else { "✓" };
        if self.is_terminal {
            // The line of the call is above, perhaps with a question and its answer in between.
            let result = one_line(&call.text, self.output.columns());
            let line = format!("{mark} [{number}] {} · {took_ms:.0} ms · {result}", printable(&call.tool));
            return self.note(&format!("{}\n", self.fitting(&line)));
        }
        let result = one_line(&call.text, MAX_RESULT_CHARS);
        let head = call_head(call, MAX_ARGUMENT_CHARS);
        self.note(&format!("{mark} {head} · {took_ms:.0} ms · {result}\n"));
    }

    fn print_outcome(&self, state: &mut PrinterState, ended: &RunOutcome) {
        self.break_line(state);
        if !self.is_terminal && !ended.answer.trim().is_empty() && ended.reason != EndReason::Interrupted {
            self.output.result(&format!("{}\n", sanitize(ended.answer.trim_end())));
        }
        state.unprinted.clear();
        if let Some(error) = &ended.error {
            self.output.message(&format!("{BOLD}{}{BOLD:#}: {}\n", ended.reason.label(), printable(error)));
        }
        if let Some(hint) = &ended.hint {
            self.output.message(&format!("hint: {}\n", printable(hint)));
        }
        let run = &ended.run;
        match ended.reason {
            EndReason::Done | EndReason::NotDone | EndReason::Refused => {}
            EndReason::Interrupted => {
                self.note(&format!("stopped; continue with `toolgate run --resume {run}`\n"))
            }
            _ => self.note(&format!("continue with `toolgate run --resume {run}`\n")),
        }
        self.note(&format!("{}\n", usage_text(&ended.spent)));
    }

    /// Shortens a line to the width of the terminal.
    fn fitting(&self, line: &str) -> String {
        let columns = self.output.columns();
        if line.width() <= columns {
            return line.to_owned();
        }
        let mut width = 0;
        let fits = |c: &char| {
            width += c.width().unwrap_or(0);
            width < columns
        };
        line.chars().take_while(fits).chain(['…']).collect()
    }

    fn note(&self, text: &str) {
        self.output.message(&format!("{DIM}{text}{DIM:#}"));
    }

    fn state(&self) -> MutexGuard<'_, PrinterState> {
        self.state.lock()
    }
}

/// Formats the usage of a run on one line.
pub(crate) fn usage_text(spent: &RunUsage) -> String {
    let RunUsage { turns, calls, usage, cost, .. } = spent;
    let about = if usage.estimated { "about " } else { "" };
    let cost = cost.map(|cost| format!(" · {cost:.4}")).unwrap_or_default();
    let plural = |count: &u32, word: &str| format!("{count} {word}{}", if *count == 1 { "" } else { "s" });
    format!("{} · {} · {about}{} tokens{cost}", plural(turns, "turn"), plural(calls, "call"), usage.tokens())
}

fn call_head(call: &CallDetails, most: usize) -> String {
    let arguments = one_line(&call.arguments.to_string(), most);
    format!("[{}] {} {arguments}", call.number, printable(&call.tool))
}

/// Shortens a text to one line.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    let line = sanitize(&line);
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.into_owned(),
    }
}
