//! What a person or a program sees: results on stdout, messages on stderr, styles on terminals only.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use anyhow::Error;
use serde::Serialize;
use serde_json::Value as Json;
use toolgate_types::Secret;
use toolgate_types::clean::escape_json;
use toolgate_types::redact::{Pattern, Sought, mask_known, mask_sought, printable};
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::ColorWhen;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();

/// A failure with the way out of it.
#[derive(Debug)]
struct Hinted {
    message: String,
    hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// What failed, and what to do about it.
pub(crate) fn hinted(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(Hinted { message: message.into(), hint: hint.into() })
}

/// A path as people read it: without the `./` of the current folder.
pub(crate) fn shown_path(path: &Path) -> String {
    let path = path.strip_prefix(".").unwrap_or(path);
    printable(&if path.as_os_str().is_empty() { ".".into() } else { path.display().to_string() })
}

/// The command for a project, as a person would type it.
pub(crate) fn toolgate_in(folder: &Path) -> String {
    match shown_path(folder) {
        here if here == "." => "toolgate".to_owned(),
        folder => format!("toolgate -C {folder}"),
    }
}

/// A document for people: what they cannot see is shown as an escape.
pub(crate) fn shown_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(escape_json(&serde_json::to_string_pretty(value)?).into_owned())
}

/// Masks every text in a document.
pub(crate) fn mask_strings(json: &mut Json, mask: &impl Fn(&str) -> String) {
    match json {
        Json::String(text) => *text = mask(text),
        Json::Array(items) => items.iter_mut().for_each(|item| mask_strings(item, mask)),
        Json::Object(fields) => fields.values_mut().for_each(|value| mask_strings(value, mask)),
        _ => {}
    }
}

/// Where and how to print.
pub(crate) struct Output {
    pub(crate) json: bool,
    choice: ColorChoice,
    hidden: Arc<OnceLock<Hidden>>,
}

/// What no message may show.
struct Hidden {
    secrets: RwLock<Vec<Secret>>,
    patterns: Vec<Pattern>,
}

/// The way to hide more, for whoever learns of it later.
#[derive(Clone)]
pub(crate) struct Hider(Arc<OnceLock<Hidden>>);

impl Hider {
    pub(crate) fn add(&self, secrets: &[Secret]) {
        let Some(hidden) = self.0.get() else { return };
        let mut known = hidden.secrets.write().unwrap_or_else(PoisonError::into_inner);
        for secret in secrets {
            if !known.iter().any(|known| known.expose() == secret.expose()) {
                known.push(secret.clone());
            }
        }
    }
}

impl Hidden {
    fn secrets(&self) -> RwLockReadGuard<'_, Vec<Secret>> {
        self.secrets.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For texts of ours: what is known, wherever it comes from.
    fn mask(&self, text: &str) -> String {
        mask_known(text, &self.secrets())
    }

    /// For texts that others may have had a say in.
    fn mask_all(&self, text: &str) -> String {
        mask_sought(text, Sought { known: &self.secrets(), more: &[], patterns: &self.patterns }).into_owned()
    }
}

/// Log lines on their way to stderr.
pub(crate) struct MaskedStderr(Arc<OnceLock<Hidden>>);

/// One log line.
pub(crate) struct MaskedLine {
    hidden: Arc<OnceLock<Hidden>>,
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
    /// Masked as a whole, so that no field is forgotten.
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        let masked = self.hidden.get().map_or_else(|| text.to_string(), |hidden| hidden.mask_all(&text));
        let _ = std::io::stderr().write_all(masked.as_bytes());
    }
}

impl Output {
    pub(crate) fn new(json: bool, color: ColorWhen) -> Self {
        let choice = match color {
            ColorWhen::Auto => ColorChoice::Auto,
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        };
        Self { json, choice, hidden: Arc::default() }
    }

    /// The way to hide more.
    pub(crate) fn hidden(&self) -> Hider {
        Hider(Arc::clone(&self.hidden))
    }

    /// From now on no message shows these.
    pub(crate) fn hide(&self, secrets: &[Secret], patterns: &[Pattern]) {
        let _ =
            self.hidden.set(Hidden { secrets: RwLock::new(secrets.to_vec()), patterns: patterns.to_vec() });
    }

    /// Where log lines go.
    pub(crate) fn masked_stderr(&self) -> MaskedStderr {
        MaskedStderr(Arc::clone(&self.hidden))
    }

    /// Whether what others write to stderr may have colours.
    pub(crate) fn colours_stderr(&self) -> bool {
        let choice = match self.choice {
            ColorChoice::Auto => anstream::AutoStream::choice(&std::io::stderr()),
            choice => choice,
        };
        !matches!(choice, ColorChoice::Never)
    }

    /// The result, for people. A closed pipe is not our problem: `toolgate check | head` ends quietly.
    pub(crate) fn result(&self, text: &str) {
        let stdout = std::io::stdout();
        let _ = anstream::AutoStream::new(stdout.lock(), self.choice).write_all(text.as_bytes());
    }

    /// A message, on stderr.
    pub(crate) fn message(&self, text: &str) {
        let masked = self.hidden.get().map(|hidden| hidden.mask(text));
        let text = masked.as_deref().unwrap_or(text);
        let stderr = std::io::stderr();
        let _ = anstream::AutoStream::new(stderr.lock(), self.choice).write_all(text.as_bytes());
    }

    /// The result, for programs: one document. People look at it too, so it hides nothing from them.
    pub(crate) fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = shown_json(value)?;
        let _ = writeln!(std::io::stdout().lock(), "{text}");
        Ok(())
    }

    /// One of several results, for programs: an object on a line of its own.
    pub(crate) fn line(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        writeln!(std::io::stdout().lock(), "{}", escape_json(&text))?;
        Ok(())
    }

    /// An error with the chain of its causes. Programs get it as their document, too.
    pub(crate) fn failure(&self, error: &Error) {
        let hint = error.chain().find_map(|cause| cause.downcast_ref::<Hinted>()).map(|hinted| &hinted.hint);
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

    /// The way out, or the way on.
    pub(crate) fn next(&self, text: &str) {
        self.message(&format!("{GREEN}next{GREEN:#}: {text}\n"));
    }
}
