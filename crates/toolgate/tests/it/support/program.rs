//! Runs the executable in a temporary project with a clean environment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

/// A project folder and a home folder; deleted when dropped.
pub(crate) struct Program {
    /// Deletes the folders when dropped.
    _scratch: TempDir,
    pub(crate) project: PathBuf,
    pub(crate) home: PathBuf,
    variables: Vec<(String, String)>,
}

/// Exceeded only by a hang, however busy the machine is.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// Reports a test, or a part of one, that this machine cannot run. Not with `println!`, whose output is hidden if the test
/// passes.
pub(crate) fn report_skipped(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}

/// Exit code and output of a run.
pub(crate) struct RunOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Program {
    /// Creates a project with these files. A path that starts with `~/` is in the home folder.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let scratch = TempDir::new().expect("the temporary folder can be written to");
        // Canonical, because paths in the output are replaced.
        let root = fs_err::canonicalize(scratch.path()).expect("the folder exists");
        let (project, home) = (root.join("project"), root.join("home"));
        fs_err::create_dir(&project).expect("the folder is new");
        fs_err::create_dir(&home).expect("the folder is new");
        let program = Self { _scratch: scratch, project, home, variables: Vec::new() };
        for (name, text) in files {
            program.write(name, text);
        }
        program
    }

    /// Adds an environment variable.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match name.strip_prefix("~/") {
            Some(name) => self.home.join(name),
            None => self.project.join(name),
        }
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs_err::create_dir_all(path.parent().expect("a file is in a folder"))
            .expect("the folder can be created");
        fs_err::write(path, text).expect("the file can be written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs_err::read_to_string(self.path(name)).expect("the file exists")
    }

    /// Returns all files of the project and the home folder with their content.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for folder in [&self.project, &self.home] {
            collect(folder, &mut files);
        }
        files
    }

    /// Runs `toolgate` in the project folder. Arguments are split at white space.
    pub(crate) fn run(&self, arguments: &str) -> RunOutput {
        self.run_list(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_list(&self, arguments: &[&str]) -> RunOutput {
        self.finish(|| self.command(arguments).output().expect("the executable starts"))
    }

    /// Runs `toolgate`; returns its output and its peak memory in bytes.
    pub(crate) fn run_measured(&self, arguments: &str) -> (RunOutput, u64) {
        let mut peak = 0;
        let run = self.finish(|| {
            let arguments: Vec<_> = arguments.split_whitespace().collect();
            let mut command = self.command(&arguments);
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let child = child.expect("the executable starts");
            let status = format!("/proc/{}/status", child.id());
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| child.wait_with_output().expect("it ends"));
                // The kernel keeps the peak itself, so only the last read counts.
                while !waiting.is_finished() {
                    peak =
                        fs_err::read_to_string(&status).ok().and_then(|text| peak_of(&text)).unwrap_or(peak);
                    std::thread::yield_now();
                }
                waiting.join().expect("it waits")
            })
        });
        (run, peak)
    }

    #[expect(clippy::disallowed_methods, reason = "the executable is what is tested")]
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command.args(arguments).current_dir(&self.project).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &self.home);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns the command run under a wrapper, or `None` if the wrapper does not work here, as `works` shows.
    #[expect(clippy::disallowed_methods, reason = "what stands between the test and the executable")]
    pub(crate) fn command_under(
        &self,
        wrapper: &[impl AsRef<OsStr>],
        works: &[&str],
        arguments: &[&str],
    ) -> Option<Command> {
        let probe = Command::new(works[0]).args(&works[1..]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            report_skipped(&format!("`{}` does not work here", works.join(" ")));
            return None;
        }
        let command = self.command(arguments);
        let mut wrapped = Command::new(&wrapper[0]);
        wrapped.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args()).env_clear();
        wrapped
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(&self.project);
        Some(wrapped)
    }

    /// Starts `toolgate` for a command that does not end by itself. Its stderr is in `~/stderr`.
    pub(crate) fn start(&self, arguments: &str) -> RunningProgram {
        self.start_command(self.command(&arguments.split_whitespace().collect::<Vec<_>>()))
    }

    /// Starts a command that runs `toolgate`. Its stderr is in `~/stderr`.
    pub(crate) fn start_command(&self, mut command: Command) -> RunningProgram {
        let stderr = fs_err::File::create(self.path("~/stderr")).expect("the folder is writable");
        let mut child =
            command.stdout(Stdio::piped()).stderr(stderr.into_file()).spawn().expect("the executable starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        RunningProgram { child, lines: Mutex::new(lines) }
    }

    #[expect(clippy::disallowed_methods, reason = "its time is real")]
    fn finish(&self, run: impl FnOnce() -> Output) -> RunOutput {
        let start = Instant::now();
        let output = run();
        let took = start.elapsed();
        let text = |bytes: Vec<u8>| self.neutral(&String::from_utf8(bytes).expect("output is UTF-8"));
        RunOutput {
            code: output.status.code().expect("no signal ended it"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            took,
        }
    }

    /// Replaces everything that differs between runs.
    fn neutral(&self, text: &str) -> String {
        let shown = |path: &Path| path.display().to_string();
        text.replace(&shown(&self.project), "[project]")
            .replace(&shown(&self.home), "[home]")
            .replace(concat!("toolgate ", env!("CARGO_PKG_VERSION")), "toolgate [version]")
    }
}

/// A running program; killed when dropped.
pub(crate) struct RunningProgram {
    pub(crate) child: Child,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl RunningProgram {
    /// Returns the next line on stdout that matches, and the time it took.
    #[expect(clippy::disallowed_methods, reason = "its time is real")]
    pub(crate) fn line(&self, fits: impl Fn(&str) -> bool) -> (String, Duration) {
        let start = Instant::now();
        let mut passed = Vec::new();
        loop {
            match self.lines.lock().expect("one reads").recv_timeout(HANG_TIMEOUT) {
                Ok(line) if fits(&line) => return (line, start.elapsed()),
                Ok(line) => passed.push(line),
                Err(_) => panic!("no matching line on stdout, only {passed:#?}"),
            }
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the peak memory from a `/proc/PID/status`.
pub(crate) fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs_err::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.is_file() {
            files.insert(path.clone(), fs_err::read(&path).expect("the file can be read"));
        }
    }
}

impl RunOutput {
    /// Parses stdout as one JSON document.
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.stdout).expect("stdout is one JSON document")
    }
}

impl fmt::Display for RunOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr, .. } = self;
        write!(f, "exit code {code}\n----- stdout\n{stdout}----- stderr\n{stderr}")
    }
}
