//! Reads a single key at the terminal, for approvals.
//!
//! Invariant: the terminal mode is restored afterwards.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use toolgate_policy::Question;
use toolgate_redact::sanitize::sanitize;
use toolgate_runtime::{ApprovalAnswer, Approver, CallOrigin, NoApprover};

use crate::cli::{AnswerMode, ColorMode};
use crate::command::terminal_prompts::{AT_TERMINAL, is_interactive};
use crate::output::{BOLD, Output};

/// Returns the approver for questions of the policy, answered with one key.
pub(crate) fn approver(answers: AnswerMode) -> Arc<dyn Approver> {
    match answers {
        AnswerMode::Ask if is_interactive() => Arc::new(KeyApprover),
        AnswerMode::Ask | AnswerMode::Defaults | AnswerMode::Decline => Arc::new(NoApprover),
    }
}

struct KeyApprover;

impl Approver for KeyApprover {
    fn ask(&self, question: &Question, _origin: &CallOrigin) -> BoxFuture<'static, ApprovalAnswer> {
        let arguments = sanitize(question.arguments.as_str()).into_owned();
        let text = format!(
            "{} wants to call {BOLD}{}{BOLD:#} with {arguments}\n  {}",
            question.caller, question.tool, question.text
        );
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || yes(&text)).await;
            if answer.unwrap_or(false) {
                ApprovalAnswer::Approved(AT_TERMINAL.to_owned())
            } else {
                ApprovalAnswer::Denied(format!("{AT_TERMINAL} said no"))
            }
        })
    }

    fn approval_timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(590))
    }
}

/// Asks and waits for one key: `y` is yes, everything else is no.
pub(crate) fn yes(text: &str) -> bool {
    let output = Output::new(false, ColorMode::Auto);
    output.message(&format!("{text} {BOLD}[y/N]{BOLD:#} "));
    let yes = matches!(key(), Some(b'y' | b'Y'));
    output.message(if yes { "yes\n" } else { "no\n" });
    yes
}

/// Reads the next key, without waiting for a line.
fn key() -> Option<u8> {
    let _raw = RawMode::new()?;
    let mut byte = [0];
    std::io::stdin().lock().read_exact(&mut byte).ok()?;
    Some(byte[0])
}

/// Raw mode of the terminal in which Ctrl-C stays a signal, restored on drop.
struct RawMode(Termios);

impl RawMode {
    fn new() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
        let _ = std::io::stderr().flush();
    }
}
