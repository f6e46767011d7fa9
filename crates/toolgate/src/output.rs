//! Terminal output: results on stdout, messages on stderr, styles only on terminals.

use std::borrow::Cow;
use std::fmt;
use std::io::{IsTerminal as _, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use anyhow::Error;
use parking_lot::{RwLock, RwLockReadGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toolgate_redact::sanitize::escape_json;
use toolgate_redact::{KnownSecrets, SecretSources, is_unprintable, mask_all, printable};
use toolgate_types::Secret;
use toolgate_types::SecretPattern;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::ColorMode;
use crate::command::remote::CommandLink;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();

/// An error with a suggested fix.
#[derive(Debug)]
struct HintedError {
    message: String,
    hint: String,
    /// The error that the message is of.
    error: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HintedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.as_ref()?.source()
    }
}

/// Creates an error with a suggested fix.
pub(crate) fn error_with_hint(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(HintedError { message: message.into(), hint: hint.into(), error: None })
}

/// Adds a suggested fix, if there is one, to an error.
pub(crate) fn error_or_hint(
    error: impl std::error::Error + Send + Sync + 'static,
    hint: Option<impl Into<String>>,
) -> Error {
    match hint {
        Some(hint) => Error::new(HintedError {
            message: error.to_string(),
            hint: hint.into(),
            error: Some(Box::new(error)),
        }),
        None => Error::new(error),
    }
}

/// Formats a path for display, without the `./` of the current folder.
pub(crate) fn display_path(path: &Path) -> String {
    let path = path.strip_prefix(".").unwrap_or(path);
    printable(&if path.as_os_str().is_empty() { ".".into() } else { path.display().to_string() })
}

/// Returns the `toolgate` command for a project, as a user would type it.
pub(crate) fn toolgate_command(folder: &Path) -> String {
    match display_path(folder) {
        here if here == "." => "toolgate".to_owned(),
        folder => format!("toolgate -C {folder}"),
    }
}

/// Formats a document for display; invisible characters become escapes.
pub(crate) fn display_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(escape_json(&serde_json::to_string_pretty(value)?).into_owned())
}

/// Masks every string in a document.
pub(crate) fn mask_strings(json: &mut Json, mask: &impl Fn(&str) -> String) {
    match json {
        Json::String(text) => *text = mask(text),
        Json::Array(items) => items.iter_mut().for_each(|item| mask_strings(item, mask)),
        Json::Object(fields) => fields.values_mut().for_each(|value| mask_strings(value, mask)),
        _ => {}
    }
}

/// Replaces every character that a terminal interprets or hides by a dot. Only line ends, tabs and the styles of Toolgate
/// pass. Every output for people goes through it, so that no command can forget to sanitise a name. It cannot tell a line
/// end of Toolgate from one in a name: text from outside goes through [`printable`] or [`quoted_lines`] before.
pub(crate) fn safe_text(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| is_unprintable(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_unsafe) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        let style = style_length(rest);
        if style > 0 {
            safe.push_str(&rest[..style]);
            rest = &rest[style..];
            continue;
        }
        // Line ends of Windows become plain ones.
        if !rest.starts_with("\r\n") {
            safe.push('·');
        }
        rest = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

/// Returns the length of the style at the start of a text, 0 if there is none: an SGR sequence with bold, dim, italic, or
/// a colour from red to cyan. Others, such as concealed or black text, are not styles of Toolgate.
fn style_length(text: &str) -> usize {
    let Some(sequence) = text.strip_prefix("\u{1b}[") else { return 0 };
    let Some(end) = sequence.bytes().take(16).position(|byte| byte == b'm') else { return 0 };
    let is_plain =
        |code: &str| matches!(code, "0" | "1" | "2" | "3" | "31" | "32" | "33" | "34" | "35" | "36");
    if sequence[..end].split(';').all(is_plain) { "\u{1b}[".len() + end + 1 } else { 0 }
}

/// Formats text from outside that may have several lines. Later lines begin with `|`, so that none looks like a line of
/// Toolgate.
pub(crate) fn quoted_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n  | ")
}

/// Returns the first line of a text from outside.
pub(crate) fn first_line(text: &str) -> String {
    printable(text.lines().next().unwrap_or_default())
}

/// Formats a log line. A line end within it comes from a logged value, such as the error of a server.
fn safe_log_line(line: &str) -> String {
    let line = line.trim_end_matches('\n').replace('\n', " ");
    format!("{}\n", safe_text(&line))
}

/// Printer of a command: format, colours, and the secrets to mask. Clones share the secrets.
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) json: bool,
    choice: ColorChoice,
    hidden: Arc<OnceLock<SecretMask>>,
    terminal: TerminalFacts,
    /// The client of a command that runs in a gateway. Everything is printed there.
    client: Option<CommandLink>,
}

/// Columns of a terminal that does not report its size.
const DEFAULT_COLUMNS: usize = 80;

/// Facts about the terminal of a command.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TerminalFacts {
    pub(crate) is_stdout: bool,
    pub(crate) is_stderr: bool,
    /// True if a person can be asked.
    pub(crate) is_interactive: bool,
    /// Columns of stdout, if it is a terminal.
    pub(crate) columns: Option<usize>,
}

impl TerminalFacts {
    /// Facts about the terminal of this process.
    fn of_process() -> Self {
        let (stdout, is_stderr) = (std::io::stdout(), std::io::stderr().is_terminal());
        let is_stdout = stdout.is_terminal();
        let columns = window_columns().or(is_stdout.then_some(DEFAULT_COLUMNS));
        Self { is_stdout, is_stderr, is_interactive: std::io::stdin().is_terminal() && is_stderr, columns }
    }
}

/// Columns of the terminal at stdout. `None` without a terminal, and for one without a size, such as a serial line.
fn window_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Secrets to mask in every message.
struct SecretMask {
    secrets: RwLock<KnownSecrets>,
    patterns: Vec<SecretPattern>,
}

impl SecretMask {
    fn secrets(&self) -> RwLockReadGuard<'_, KnownSecrets> {
        self.secrets.read()
    }

    /// Masks known secrets, for our own text.
    fn mask(&self, text: &str) -> String {
        self.secrets().mask(text)
    }

    /// Masks known secrets and everything that matches a pattern, for text from outside.
    fn mask_all(&self, text: &str) -> String {
        mask_all(text, SecretSources { known: Some(&self.secrets()), more: None, patterns: &self.patterns })
            .into_owned()
    }
}

/// Writer for log lines to stderr, masked.
pub(crate) struct MaskedStderr(Arc<OnceLock<SecretMask>>);

/// One log line, masked when it is complete.
pub(crate) struct MaskedLine {
    hidden: Arc<OnceLock<SecretMask>>,
    text: Vec<u8>,
}

impl MakeWriter<'_> for MaskedStderr {
    type Writer = MaskedLine;

    fn make_writer(&self) -> MaskedLine {
        MaskedLine { hidden: Arc::clone(&self.0), text: Vec::new() }
    }
}

impl Write for MaskedLine {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for MaskedLine {
    /// Masks the whole line at once, so that no field is missed.
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        let masked = self.hidden.get().map_or_else(|| text.to_string(), |hidden| hidden.mask_all(&text));
        let _ = std::io::stderr().write_all(safe_log_line(&masked).as_bytes());
    }
}

impl Output {
    pub(crate) fn new(json: bool, color: ColorMode) -> Self {
        let choice = match color {
            ColorMode::Auto => ColorChoice::Auto,
            ColorMode::Always => ColorChoice::Always,
            ColorMode::Never => ColorChoice::Never,
        };
        let terminal = TerminalFacts::of_process();
        Self { json, choice, hidden: Arc::default(), terminal, client: None }
    }

    /// Returns the output of a command that runs in this process for a client, with the same secrets masked.
    pub(crate) fn for_client(&self, json: bool, terminal: TerminalFacts, client: CommandLink) -> Self {
        Self { json, choice: self.choice, hidden: Arc::clone(&self.hidden), terminal, client: Some(client) }
    }

    pub(crate) fn terminal(&self) -> TerminalFacts {
        self.terminal
    }

    /// Columns of the terminal now. It may have been resized since the command began.
    pub(crate) fn columns(&self) -> usize {
        let known = if self.client.is_some() { self.terminal.columns } else { window_columns() };
        known.or(self.terminal.columns).unwrap_or(DEFAULT_COLUMNS)
    }

    /// Masks these secrets and patterns in every later message.
    pub(crate) fn mask_secrets(&self, secrets: &[Secret], patterns: &[SecretPattern]) {
        let _ = self.hidden.set(SecretMask {
            secrets: RwLock::new(KnownSecrets::new(secrets)),
            patterns: patterns.to_vec(),
        });
    }

    /// Masks these secrets too.
    pub(crate) fn mask_more_secrets(&self, secrets: &[Secret]) {
        let Some(hidden) = self.hidden.get() else { return };
        let mut known = hidden.secrets.write();
        if let Some(more) = known.with(secrets) {
            *known = more;
        }
    }

    /// Returns the writer for log lines.
    pub(crate) fn masked_stderr(&self) -> MaskedStderr {
        MaskedStderr(Arc::clone(&self.hidden))
    }

    /// Returns true if log lines on stderr may be coloured.
    pub(crate) fn has_coloured_stderr(&self) -> bool {
        let choice = match self.choice {
            ColorChoice::Auto => anstream::AutoStream::choice(&std::io::stderr()),
            choice => choice,
        };
        !matches!(choice, ColorChoice::Never)
    }

    /// Prints a result for people. Errors are ignored: `toolgate check | head` ends quietly on a closed pipe.
    pub(crate) fn result(&self, text: &str) {
        let text = safe_text(text);
        if let Some(client) = &self.client {
            return client.print(text.into_owned());
        }
        let stdout = std::io::stdout();
        let mut stream = anstream::AutoStream::new(stdout.lock(), self.choice);
        let _ = stream.write_all(text.as_bytes());
        // Streamed text is shown before its line ends.
        if !text.ends_with('\n') {
            let _ = stream.flush();
        }
    }

    /// Prints a message to stderr.
    pub(crate) fn message(&self, text: &str) {
        let masked = self.hidden.get().map(|hidden| hidden.mask(text));
        let text = safe_text(masked.as_deref().unwrap_or(text));
        if let Some(client) = &self.client {
            return client.print_message(text.into_owned());
        }
        let stderr = std::io::stderr();
        let _ = anstream::AutoStream::new(stderr.lock(), self.choice).write_all(text.as_bytes());
    }

    /// Sends a control sequence to the terminal at stderr.
    pub(crate) fn control(&self, sequence: &'static str) {
        if let Some(client) = &self.client {
            return client.control(sequence);
        }
        let _ = std::io::stderr().write_all(sequence.as_bytes());
    }

    /// Sends a control sequence of the gateway that runs the command to the terminal at stderr.
    pub(crate) fn relay_control(&self, sequence: &str) {
        if self.terminal.is_stderr {
            let _ = std::io::stderr().write_all(sequence.as_bytes());
        }
    }

    /// Prints the result as one JSON document. It is not masked, but invisible characters become escapes.
    pub(crate) fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = display_json(value)?;
        if let Some(client) = &self.client {
            client.print(format!("{text}\n"));
            return Ok(());
        }
        let _ = writeln!(std::io::stdout().lock(), "{text}");
        Ok(())
    }

    /// Prints one of several results as a JSON object on its own line.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        let text = escape_json(&text);
        if let Some(client) = &self.client {
            client.print(format!("{text}\n"));
            return Ok(());
        }
        writeln!(std::io::stdout().lock(), "{text}")?;
        Ok(())
    }

    /// Prints an error with its causes and hint; with `--json` also as a document on stdout.
    pub(crate) fn error(&self, error: &Error) {
        let hint =
            error.chain().find_map(|cause| cause.downcast_ref::<HintedError>()).map(|hinted| &hinted.hint);
        if self.json {
            let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
            let mut answer = serde_json::json!({
                "ok": false,
                "error": error.to_string(),
                "causes": causes,
                "hint": hint,
            });
            if let Some(hidden) = self.hidden.get() {
                mask_strings(&mut answer, &|text| hidden.mask(text));
            }
            let _ = self.document(&answer);
        }
        let mut text = format!("{RED}error{RED:#}: {}\n", printable(&error.to_string()));
        for cause in error.chain().skip(1) {
            text.push_str(&format!("  because: {}\n", printable(&cause.to_string())));
        }
        if let Some(hint) = hint {
            text.push_str(&format!("{GREEN}hint{GREEN:#}: {}\n", printable(hint)));
        }
        self.message(&text);
    }

    /// Prints the suggested next step.
    pub(crate) fn next_step(&self, text: &str) {
        self.message(&format!("{GREEN}next{GREEN:#}: {text}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_are_replaced() {
        for (text, shown) in [
            ("plain β 👩\u{200d}💻\n\tx", "plain β 👩\u{200d}💻\n\tx"),
            ("a\u{1b}[2Jb", "a·[2Jb"),
            ("a\u{1b}]0;title\u{7}b", "a·]0;title·b"),
            ("a\u{9b}31mb\u{7f}\u{8}", "a·31mb··"),
            ("one\r\ntwo\rover", "one\ntwo·over"),
            ("a\u{202e}b\u{2066}c\u{e0041}", "a·b·c·"),
            ("\u{1b}[8mhidden\u{1b}[0m", "·[8mhidden\u{1b}[0m"),
            ("\u{1b}[30mblack\u{1b}[97mwhite\u{1b}[1;37m", "·[30mblack·[97mwhite·[1;37m"),
            ("\u{1b}[1m\u{1b}[31mred\u{1b}[0m", "\u{1b}[1m\u{1b}[31mred\u{1b}[0m"),
        ] {
            assert_eq!(safe_text(text), shown, "{text:?}");
        }
        let styled = format!("{BOLD}a{BOLD:#}{DIM}b{DIM:#}{RED}c{RED:#}{GREEN}d{GREEN:#}");
        assert_eq!(safe_text(&styled), styled);
    }

    #[test]
    fn text_from_outside_forges_no_line() {
        assert_eq!(safe_log_line("WARN a\nWARN b\u{1b}[30m\n"), "WARN a WARN b·[30m\n");
        assert_eq!(first_line("one\u{1b}[30m\r\ntwo"), "one·[30m");
        assert_eq!(quoted_lines("one\ntwo\u{1b}[0m\n\nfour"), "one\n  | two·[0m\n  | \n  | four");
    }
}
