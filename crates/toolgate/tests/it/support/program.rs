//! The real executable in a folder of its own, with an environment that holds nothing but what a test gives.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

/// A project folder and a home folder, gone when the test is over.
pub(crate) struct Program {
    /// Keeps the folders.
    _scratch: TempDir,
    pub(crate) project: PathBuf,
    pub(crate) home: PathBuf,
    variables: Vec<(String, String)>,
}

/// What only a hang reaches, however busy the machine is. No test fails because a machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How a run ended, and all it said.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Program {
    /// A project of these files, by their path in it. A path that starts with `~/` is in the home folder.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let scratch = TempDir::new().expect("the temporary folder can be written to");
        // Without symbolic links, so that the path in a message is the one that is replaced.
        let root = fs_err::canonicalize(scratch.path()).expect("the folder was just made");
        let (project, home) = (root.join("project"), root.join("home"));
        fs_err::create_dir(&project).expect("the folder is new");
        fs_err::create_dir(&home).expect("the folder is new");
        let program = Self { _scratch: scratch, project, home, variables: Vec::new() };
        for (name, text) in files {
            program.write(name, text);
        }
        program
    }

    /// The same with an environment variable.
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
        fs_err::create_dir_all(path.parent().expect("a file is in a folder")).expect("folders can be made");
        fs_err::write(path, text).expect("the file can be written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs_err::read_to_string(self.path(name)).expect("the file is there")
    }

    /// Every file below the project and the home folder with its bytes, to see what a run changed.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for folder in [&self.project, &self.home] {
            collect(folder, &mut files);
        }
        files
    }

    /// Runs `toolgate` in the project folder. Arguments are split at white space.
    pub(crate) fn run(&self, arguments: &str) -> Run {
        self.run_list(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_list(&self, arguments: &[&str]) -> Run {
        self.finish(|| self.command(arguments).output().expect("the executable starts"))
    }

    /// Runs `toolgate` and says how much memory it held at most, in bytes.
    pub(crate) fn run_measured(&self, arguments: &str) -> (Run, u64) {
        let mut peak = 0;
        let run = self.finish(|| {
            let arguments: Vec<_> = arguments.split_whitespace().collect();
            let mut command = self.command(&arguments);
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let child = child.expect("the executable starts");
            let status = format!("/proc/{}/status", child.id());
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| child.wait_with_output().expect("it ends"));
                // The system keeps the peak itself, up to the end: what matters is the last look.
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

    /// Starts `toolgate` for a command that does not end by itself.
    pub(crate) fn start(&self, arguments: &str) -> Running {
        let mut command = self.command(&arguments.split_whitespace().collect::<Vec<_>>());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the executable starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Running { child, lines: Mutex::new(lines) }
    }

    #[expect(clippy::disallowed_methods, reason = "its time is real")]
    fn finish(&self, run: impl FnOnce() -> Output) -> Run {
        let start = Instant::now();
        let output = run();
        let took = start.elapsed();
        let text = |bytes: Vec<u8>| self.neutral(&String::from_utf8(bytes).expect("output is UTF-8"));
        Run {
            code: output.status.code().expect("no signal ended it"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            took,
        }
    }

    /// The text without what differs from run to run.
    fn neutral(&self, text: &str) -> String {
        let shown = |path: &Path| path.display().to_string();
        text.replace(&shown(&self.project), "[project]")
            .replace(&shown(&self.home), "[home]")
            .replace(concat!("toolgate ", env!("CARGO_PKG_VERSION")), "toolgate [version]")
    }
}

/// A run that goes on, until it is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl Running {
    /// The next line on stdout that fits, and how long it took to come.
    #[expect(clippy::disallowed_methods, reason = "its time is real")]
    pub(crate) fn line(&self, fits: impl Fn(&str) -> bool) -> (String, Duration) {
        let start = Instant::now();
        let mut passed = Vec::new();
        loop {
            match self.lines.lock().expect("one reads").recv_timeout(PATIENCE) {
                Ok(line) if fits(&line) => return (line, start.elapsed()),
                Ok(line) => passed.push(line),
                Err(_) => panic!("no such line came; what came is {passed:#?}"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most memory that a process held, from its `status`.
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

impl Run {
    /// The one document on stdout.
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.stdout).expect("stdout is one JSON document")
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr, .. } = self;
        write!(f, "exit code {code}\n----- stdout\n{stdout}----- stderr\n{stderr}")
    }
}
