//! One key of the person at the terminal: yes, or no.
//!
//! Invariant: the terminal is as it was when this returns, whatever key it was.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use toolgate_policy::Question;
use toolgate_runtime::{Approver, NobodyApproves, Origin, Verdict};
use toolgate_types::clean::clean;

use crate::cli::{Answers, ColorWhen};
use crate::command::questions::{AT_TERMINAL, somebody_is_there};
use crate::output::{BOLD, Output};

/// Who says yes or no when a rule asks: one key.
pub(crate) fn approver(answers: Answers) -> Arc<dyn Approver> {
    match answers {
        Answers::Ask if somebody_is_there() => Arc::new(OneKey),
        Answers::Ask | Answers::Defaults | Answers::Decline => Arc::new(NobodyApproves),
    }
}

struct OneKey;

impl Approver for OneKey {
    fn ask(&self, question: &Question, _origin: &Origin) -> BoxFuture<'static, Verdict> {
        let arguments = clean(question.arguments.get()).into_owned();
        let text = format!(
            "{} wants to call {BOLD}{}{BOLD:#} with {arguments}\n  {}",
            question.caller, question.tool, question.text
        );
        Box::pin(async move {
            let said = tokio::task::spawn_blocking(move || yes(&text)).await;
            if said.unwrap_or(false) {
                Verdict::Yes(AT_TERMINAL.to_owned())
            } else {
                Verdict::No(format!("{AT_TERMINAL} said no"))
            }
        })
    }

    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_secs(590))
    }
}

/// Asks, and waits for one key: `y` is yes, everything else is no.
pub(crate) fn yes(text: &str) -> bool {
    let output = Output::new(false, ColorWhen::Auto);
    output.message(&format!("{text} {BOLD}[y/N]{BOLD:#} "));
    let yes = matches!(key(), Some(b'y' | b'Y'));
    output.message(if yes { "yes\n" } else { "no\n" });
    yes
}

/// The next key, without waiting for a line.
fn key() -> Option<u8> {
    let _raw = Raw::new()?;
    let mut byte = [0];
    std::io::stdin().lock().read_exact(&mut byte).ok()?;
    Some(byte[0])
}

/// The terminal gives every key as it comes, as long as this lives.
pub(crate) struct Raw(Termios);

impl Raw {
    /// Ctrl-C stays a signal.
    fn new() -> Option<Self> {
        Self::without(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Ctrl-C is a key like every other.
    pub(crate) fn keys() -> Option<Self> {
        Self::without(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    fn without(modes: LocalModes) -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.local_modes -= modes;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
        let _ = std::io::stderr().flush();
    }
}
