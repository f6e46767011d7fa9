//! Reads a single key at the terminal, for approvals.
//!
//! Invariant: the terminal mode is restored afterwards.

use std::io::{Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::cli::ColorMode;
use crate::output::{BOLD, Output};

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

/// Raw mode of the terminal, restored on drop.
pub(crate) struct RawMode(Termios);

impl RawMode {
    /// Raw mode in which Ctrl-C stays a signal.
    fn new() -> Option<Self> {
        Self::without(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Raw mode in which Ctrl-C is a key.
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

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
        let _ = std::io::stderr().flush();
    }
}
