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
