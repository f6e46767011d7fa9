//! Runs `toolgate` on a pseudo-terminal.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::gateway::wait_until;
use crate::support::program::Program;

/// A program on a pseudo-terminal, and its output so far.
pub(crate) struct TerminalSession {
    pub(crate) child: Child,
    master: std::fs::File,
    shown: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl TerminalSession {
    pub(crate) fn open(program: &Program, arguments: &[&str]) -> Self {
        Self::open_with(program, arguments, "")
    }

    /// Opens a terminal with keys that were typed before the program starts.
    pub(crate) fn open_with(program: &Program, arguments: &[&str], typed: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("the terminal is accessible");
        unlockpt(&master).expect("the terminal is accessible");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let open = || {
            let path = name.to_str().expect("a path");
            let file = fs_err::OpenOptions::new().read(true).write(true).open(path).expect("it opens");
            Stdio::from(file.into_parts().0)
        };
        let mut command = program.command(arguments);
        command.stdin(open()).stdout(open()).stderr(open());
        let mut master = std::fs::File::from(master);
        master.write_all(typed.as_bytes()).expect("it can be typed");
        let child = command.spawn().expect("the executable starts");
        drop(command);
        let (shown, mut screen) =
            (Arc::<Mutex<String>>::default(), master.try_clone().expect("it can be read"));
        let kept = Arc::clone(&shown);
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut part) {
                kept.lock()
                    .expect("the lock is not poisoned")
                    .push_str(&String::from_utf8_lossy(&part[..read]));
            }
        });
        Self { child, master, shown, reader }
    }

    /// Waits until all output was read: the program and its children have closed the terminal.
    pub(crate) fn wait_for_end(&self) {
        wait_until("the end of the output", || self.reader.is_finished());
    }

    pub(crate) fn shown(&self) -> String {
        self.shown.lock().expect("the lock is not poisoned").clone()
    }

    /// Waits until a text was shown `times` times.
    pub(crate) fn wait(&self, text: &str, times: usize) {
        wait_until(&format!("{text:?}, {times} times"), || self.shown().matches(text).count() >= times);
    }

    /// Waits for an empty prompt, drawn as one synchronized update that ends with the position of the cursor.
    pub(crate) fn wait_for_prompt(&self) {
        wait_until("a prompt", || self.shown().ends_with("› \r\u{1b}[2C\u{1b}[?2026l"));
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it can be typed");
    }
}
