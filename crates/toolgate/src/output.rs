//! What a person or a program sees: results on stdout, messages on stderr, styles on terminals only.

use std::io::Write;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use anyhow::Error;
use serde::Serialize;

use crate::cli::ColorWhen;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();

/// Where and how to print.
pub(crate) struct Output {
    pub(crate) json: bool,
    choice: ColorChoice,
}

impl Output {
    pub(crate) fn new(json: bool, color: ColorWhen) -> Self {
        let choice = match color {
            ColorWhen::Auto => ColorChoice::Auto,
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        };
        Self { json, choice }
    }

    /// The result, for people. A closed pipe is not our problem: `toolgate check | head` ends quietly.
    pub(crate) fn result(&self, text: &str) {
        let stdout = std::io::stdout();
        let _ = anstream::AutoStream::new(stdout.lock(), self.choice).write_all(text.as_bytes());
    }

    /// A message, on stderr.
    pub(crate) fn message(&self, text: &str) {
        let stderr = std::io::stderr();
        let _ = anstream::AutoStream::new(stderr.lock(), self.choice).write_all(text.as_bytes());
    }

    /// The result, for programs: one document.
    pub(crate) fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        let _ = writeln!(std::io::stdout().lock(), "{text}");
        Ok(())
    }

    /// An error with the chain of its causes.
    pub(crate) fn failure(&self, error: &Error) {
        let mut text = format!("{RED}error{RED:#}: {error}\n");
        for cause in error.chain().skip(1) {
            text.push_str(&format!("  because: {cause}\n"));
        }
        self.message(&text);
    }

    /// The way out, or the way on.
    pub(crate) fn next(&self, text: &str) {
        self.message(&format!("{GREEN}next{GREEN:#}: {text}\n"));
    }
}
