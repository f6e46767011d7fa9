//! Terminal output: results on stdout, messages on stderr, styles only on terminals.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use anyhow::Error;
use parking_lot::{RwLock, RwLockReadGuard};
use serde::Serialize;
use serde_json::Value as Json;
use toolgate_redact::sanitize::escape_json;
use toolgate_redact::{KnownSecrets, SecretSources, mask_all, printable};
use toolgate_types::Secret;
use toolgate_types::SecretPattern;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::ColorMode;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();

/// An error with a suggested fix.
#[derive(Debug)]
struct HintedError {
    message: String,
    hint: String,
}

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HintedError {}

/// Creates an error with a suggested fix.
pub(crate) fn error_with_hint(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(HintedError { message: message.into(), hint: hint.into() })
}

/// Creates an error with a suggested fix, if there is one.
pub(crate) fn error_or_hint(
    error: impl std::error::Error + Send + Sync + 'static,
    hint: Option<impl Into<String>>,
) -> Error {
    match hint {
        Some(hint) => error_with_hint(error.to_string(), hint),
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

/// Printer of a command: format, colours, and the secrets to mask. Clones share the secrets.
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) json: bool,
    choice: ColorChoice,
    hidden: Arc<OnceLock<SecretMask>>,
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
        let _ = std::io::stderr().write_all(masked.as_bytes());
    }
}

impl Output {
    pub(crate) fn new(json: bool, color: ColorMode) -> Self {
        let choice = match color {
            ColorMode::Auto => ColorChoice::Auto,
            ColorMode::Always => ColorChoice::Always,
            ColorMode::Never => ColorChoice::Never,
        };
        Self { json, choice, hidden: Arc::default() }
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
        let stdout = std::io::stdout();
        let _ = anstream::AutoStream::new(stdout.lock(), self.choice).write_all(text.as_bytes());
    }

    /// Prints a message to stderr.
    pub(crate) fn message(&self, text: &str) {
        let masked = self.hidden.get().map(|hidden| hidden.mask(text));
        let text = masked.as_deref().unwrap_or(text);
        let stderr = std::io::stderr();
        let _ = anstream::AutoStream::new(stderr.lock(), self.choice).write_all(text.as_bytes());
    }

    /// Prints the result as one JSON document. It is not masked, but invisible characters become escapes.
    pub(crate) fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = display_json(value)?;
        let _ = writeln!(std::io::stdout().lock(), "{text}");
        Ok(())
    }

    /// Prints one of several results as a JSON object on its own line.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        writeln!(std::io::stdout().lock(), "{}", escape_json(&text))?;
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
