//! A run as it is seen: words as they come and a line for each call on a terminal, plain lines elsewhere, events for
//! programs.
//!
//! Invariant: the answer goes to stdout and everything else to stderr; what others wrote is cleaned; nothing but styles
//! and the rewriting of one's own last line controls a terminal, and only where there is one.

use std::io::IsTerminal as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value as Json;
use toolgate_agent::{Ended, Event, Reason, Spent};
use toolgate_types::clean::clean;

use super::markdown::Markdown;
use crate::output::{BOLD, DIM, Output};

/// Characters of arguments and of a result on the line of a call.
const LONGEST_ARGUMENTS: usize = 80;
const LONGEST_RESULT: usize = 100;
/// Results that can be shown whole afterwards.
const MOST_KEPT: usize = 200;

/// Shows a run.
pub(crate) struct Printer<'a> {
    output: &'a Output,
    /// Whether words are shown as they come.
    lively: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    markdown: Markdown,
    /// Whether the cursor is in the middle of a line of words.
    in_line: bool,
    /// The call whose line is the last that was written.
    last_call: Option<usize>,
    /// Words of this turn that were not shown yet.
    kept: String,
    calls: Vec<Shown>,
}

/// A call, for whoever wants to see all of it.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) number: usize,
    pub(crate) tool: String,
    pub(crate) arguments: Json,
    pub(crate) text: String,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(output: &'a Output) -> Self {
        let lively = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Self { output, lively, state: Mutex::default() }
    }

    /// A call by its number.
    pub(crate) fn call(&self, number: usize) -> Option<Shown> {
        self.state().calls.iter().find(|call| call.number == number).cloned()
    }

    pub(crate) fn tell(&self, event: Event) {
        if self.output.json {
            // A closed pipe is not our problem.
            let _ = self.output.line(&event);
            return;
        }
        let mut state = self.state();
        match event {
            Event::Begun { run, resumed: true, .. } => self.note(&format!("run {run} goes on\n")),
            Event::Begun { .. } => {}
            Event::Text { text } => self.words(&mut state, &text),
            Event::Again { why } => {
                self.break_line(&mut state);
                state.kept.clear();
                self.note(&format!("{}\n", clean(&why)));
            }
            Event::Said { .. } => self.said(&mut state),
            Event::Call { number, tool, arguments, .. } => self.begin(&mut state, number, tool, arguments),
            Event::Result { number, failed, text, took_ms, .. } => {
                self.end(&mut state, number, failed, text, took_ms);
            }
            Event::Note { text } => self.note(&format!("{}\n", clean(&text))),
            Event::Ended(ended) => self.ended(&mut state, &ended),
        }
    }

    fn words(&self, state: &mut State, text: &str) {
        state.kept.push_str(text);
        if !self.lively || text.is_empty() {
            return;
        }
        let shown = state.markdown.push(&clean(text));
        state.in_line = !text.ends_with('\n');
        state.last_call = None;
        self.output.result(&shown);
    }

    /// What was said before calls is not the answer; where words are not shown as they come, it goes aside.
    fn said(&self, state: &mut State) {
        self.break_line(state);
    }

    fn break_line(&self, state: &mut State) {
        if self.lively {
            let rest = state.markdown.end();
            self.output.result(&rest);
            if std::mem::take(&mut state.in_line) {
                self.output.result("\n");
            }
        }
    }

    fn begin(&self, state: &mut State, number: usize, tool: String, arguments: Json) {
        if !self.lively && !state.kept.trim().is_empty() {
            self.note(&format!("{}\n", clean(state.kept.trim())));
        }
        state.kept.clear();
        let shown = Shown { number, tool, arguments, text: String::new() };
        if self.lively {
            self.output.message(&format!("{DIM}▸ {}{DIM:#}\n", head(&shown)));
            state.last_call = Some(number);
        }
        if state.calls.len() >= MOST_KEPT {
            state.calls.remove(0);
        }
        state.calls.push(shown);
    }

    fn end(&self, state: &mut State, number: usize, failed: bool, text: String, took_ms: f64) {
        let Some(call) = state.calls.iter_mut().find(|call| call.number == number) else { return };
        call.text = text;
        let mark = if failed { "✗" } else { "✓" };
        let said = one_line(&call.text, LONGEST_RESULT);
        let line = format!("{DIM}{mark} {} · {took_ms:.0} ms · {said}{DIM:#}\n", head(call));
        if self.lively && state.last_call == Some(number) {
            // The line of the call itself, which is right above.
            self.output.message("\u{1b}[1A\u{1b}[2K");
        }
        state.last_call = None;
        self.output.message(&line);
    }

    fn ended(&self, state: &mut State, ended: &Ended) {
        self.break_line(state);
        if !self.lively && !ended.answer.trim().is_empty() && ended.reason != Reason::Interrupted {
            self.output.result(&format!("{}\n", clean(ended.answer.trim_end())));
        }
        state.kept.clear();
        if let Some(error) = &ended.error {
            self.output.message(&format!("{BOLD}{}{BOLD:#}: {}\n", ended.reason.label(), clean(error)));
        }
        if let Some(hint) = &ended.hint {
            self.output.message(&format!("hint: {}\n", clean(hint)));
        }
        let run = &ended.run;
        match ended.reason {
            Reason::Done | Reason::Refused => {}
            Reason::Interrupted => self.note(&format!("stopped; `toolgate run --resume {run}` goes on\n")),
            _ => self.note(&format!("`toolgate run --resume {run}` goes on\n")),
        }
        self.note(&format!("{}\n", spent(&ended.spent)));
    }

    fn note(&self, text: &str) {
        self.output.message(&format!("{DIM}{text}{DIM:#}"));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a run used, on one line.
pub(crate) fn spent(spent: &Spent) -> String {
    let Spent { turns, calls, usage, cost, .. } = spent;
    let about = if usage.reckoned { "about " } else { "" };
    let cost = cost.map(|cost| format!(" · {cost:.4}")).unwrap_or_default();
    let plural = |count: &u32, word: &str| format!("{count} {word}{}", if *count == 1 { "" } else { "s" });
    format!("{} · {} · {about}{} tokens{cost}", plural(turns, "turn"), plural(calls, "call"), usage.tokens())
}

fn head(call: &Shown) -> String {
    let arguments = one_line(&call.arguments.to_string(), LONGEST_ARGUMENTS);
    format!("[{}] {} {arguments}", call.number, clean(&call.tool))
}

fn one_line(text: &str, most: usize) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    let line = clean(&line);
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.into_owned(),
    }
}
