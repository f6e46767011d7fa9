//! Runs `toolgate` on a pseudo-terminal, with an emulator that knows what a person sees.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::gateway::wait_until;
use crate::support::program::Program;

/// Rows and columns of a terminal.
pub(crate) type TerminalSize = (u16, u16);

/// The usual size.
const SIZE: TerminalSize = (24, 80);
/// Rows that the emulator keeps above the screen.
const SCROLLBACK: usize = 10_000;

/// A program on a pseudo-terminal, and its output so far.
pub(crate) struct TerminalSession {
    pub(crate) child: Child,
    master: std::fs::File,
    shown: Arc<Mutex<TerminalOutput>>,
    reader: JoinHandle<()>,
}

/// Output of a program: as it was written, and as a terminal shows it.
struct TerminalOutput {
    text: String,
    emulator: vt100::Parser,
}

impl TerminalSession {
    pub(crate) fn open(program: &Program, arguments: &[&str]) -> Self {
        Self::open_with(program, arguments, "")
    }

    /// Opens a terminal with keys that were typed before the program starts.
    pub(crate) fn open_with(program: &Program, arguments: &[&str], typed: &str) -> Self {
        Self::open_sized(program, arguments, typed, SIZE)
    }

    /// Opens a terminal of this size.
    pub(crate) fn open_sized(
        program: &Program,
        arguments: &[&str],
        typed: &str,
        (rows, columns): TerminalSize,
    ) -> Self {
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
        tcsetwinsize(&master, window(rows, columns)).expect("it has a size");
        let mut master = std::fs::File::from(master);
        master.write_all(typed.as_bytes()).expect("it can be typed");
        let child = command.spawn().expect("the executable starts");
        drop(command);
        let emulator = emulator(rows, columns);
        let shown = Arc::new(Mutex::new(TerminalOutput { text: String::new(), emulator }));
        let (kept, mut screen) = (Arc::clone(&shown), master.try_clone().expect("it can be read"));
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut part) {
                let mut kept = kept.lock().expect("the lock is not poisoned");
                kept.text.push_str(&String::from_utf8_lossy(&part[..read]));
                kept.emulator.process(&part[..read]);
            }
        });
        Self { child, master, shown, reader }
    }

    /// Waits until all output was read: the program and its children have closed the terminal.
    pub(crate) fn wait_for_end(&self) {
        wait_until("the end of the output", || self.reader.is_finished());
    }

    pub(crate) fn shown(&self) -> String {
        self.lock().text.clone()
    }

    fn lock(&self) -> MutexGuard<'_, TerminalOutput> {
        self.shown.lock().expect("the lock is not poisoned")
    }

    /// Rows of the screen, without the white space at their ends.
    pub(crate) fn rows(&self) -> Vec<String> {
        let kept = self.lock();
        let columns = kept.emulator.screen().size().1.get();
        kept.emulator.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
    }

    /// The screen, with a line per row.
    pub(crate) fn screen(&self) -> String {
        self.rows().join("\n").trim_end().to_owned()
    }

    /// Everything that the person can scroll to, with a line per row.
    pub(crate) fn scrollback(&self) -> String {
        let mut kept = self.lock();
        let screen = kept.emulator.screen_mut();
        let columns = screen.size().1.get();
        let mut rows = Vec::new();
        for above in (1..=screen.scrollback_len()).rev() {
            screen.set_scrollback(above);
            rows.extend(screen.rows(0, columns).next());
        }
        screen.set_scrollback(0);
        rows.extend(screen.rows(0, columns));
        rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n")
    }

    /// Row and column of the cursor.
    pub(crate) fn cursor(&self) -> (u16, u16) {
        self.lock().emulator.screen().cursor_position()
    }

    /// Waits until the screen shows a text.
    pub(crate) fn wait_screen(&self, text: &str) {
        self.wait_that(&format!("{text:?} on the screen"), |screen| screen.contains(text));
    }

    /// Waits until this holds for the screen.
    pub(crate) fn wait_that(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let last = std::cell::RefCell::new(String::new());
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(what, || {
                *last.borrow_mut() = self.screen();
                holds(&last.borrow())
            });
        }));
        assert!(result.is_ok(), "{what}; the screen is:\n{}", last.borrow());
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&mut self, (rows, columns): TerminalSize) {
        // A terminal moves its content in its own way; the program draws its line again.
        let (rows_set, columns_set) = (rows.try_into().expect("not 0"), columns.try_into().expect("not 0"));
        self.lock().emulator.set_size(rows_set, columns_set);
        tcsetwinsize(&self.master, window(rows, columns)).expect("it has a size");
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::WINCH).expect("the process is a child");
    }

    /// Sends the signal of Ctrl-C, which the terminal sends to programs that it controls.
    pub(crate) fn interrupt(&self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::INT).expect("the process is a child");
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

fn window(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn emulator(rows: u16, columns: u16) -> vt100::Parser {
    let (rows, columns) = (rows.try_into().expect("not 0"), columns.try_into().expect("not 0"));
    vt100::Parser::new(rows, columns, SCROLLBACK)
}
