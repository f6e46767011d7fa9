//! PostgreSQL for tests: a server of its own, in a temporary folder, on a Unix socket. Tests include this file as a
//! module, by `#[path]`.
//!
//! The programs are those of Debian's package: below `target/peers`, or installed. `initdb` refuses root, so they run as
//! another user there. The server ends with the test process, however that ends: a shell waits for the end of its input.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// User and group `nobody`.
const NOBODY: u32 = 65_534;
/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. It stops, and its folder is removed, when it is dropped.
pub(crate) struct TestServer {
    /// The shell around the server.
    shell: Child,
    folder: TempDir,
}

/// The folder of the programs, with the libraries beside them, if they are not installed.
struct Programs {
    bin: PathBuf,
    libraries: Option<PathBuf>,
}

impl Programs {
    fn find() -> Self {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
        let peers = std::env::var_os("TOOLGATE_PEERS").map_or_else(usual, PathBuf::from).join("postgresql");
        let newest = |root: &Path| -> Option<PathBuf> {
            let versions = fs_err::read_dir(root.join("usr/lib/postgresql")).ok()?;
            let bin = versions.flatten().map(|version| version.path().join("bin"));
            bin.filter(|bin| bin.join("initdb").exists()).max()
        };
        if let Some(bin) = newest(Path::new("/")) {
            return Self { bin, libraries: None };
        }
        let bin = newest(&peers).expect("PostgreSQL is missing; `cargo xtask test --only peers` fetches it");
        let libraries = peers.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        Self { bin, libraries: Some(libraries) }
    }

    #[expect(clippy::disallowed_methods, reason = "the server is the other side of the test")]
    fn command(&self, program: &str) -> Command {
        let mut command =
            if program == "sh" { Command::new("sh") } else { Command::new(self.bin.join(program)) };
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8").current_dir("/");
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

impl TestServer {
    pub(crate) fn start() -> Self {
        let programs = Programs::find();
        let folder = TempDir::new().expect("the temporary folder can be written to");
        fs_err::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).expect("it is ours");
        if rustix::process::geteuid().is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let data = folder.path().join("data");
        let made = programs
            .command("initdb")
            .args(["--auth=trust", "--username=toolgate", "--encoding=UTF8", "--no-instructions", "-D"])
            .arg(&data)
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let server = Self { shell: Self::launch(&programs, folder.path()), folder };
        server.wait();
        server
    }

    /// Starts the server below a shell. The shell stops it at the end of its input: the end of this process.
    fn launch(programs: &Programs, folder: &Path) -> Child {
        let script = "\"$1\" -D \"$2/data\" -k \"$2\" -c listen_addresses= -c shared_buffers=32MB \
            -c max_connections=200 -c wal_level=replica > \"$2/log\" 2>&1 & \
            cat > /dev/null; kill -QUIT $! 2> /dev/null; wait";
        let mut shell = programs.command("sh");
        shell.args(["-c", script, "sh"]).arg(programs.bin.join("postgres")).arg(folder);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.process_group(0).spawn().expect("a shell starts")
    }

    /// Waits until the server answers.
    #[expect(clippy::disallowed_methods, reason = "what is waited for is another process")]
    fn wait(&self) {
        let start = Instant::now();
        while !self.psql("postgres", "SELECT 1").0 {
            let log = fs_err::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "PostgreSQL does not start: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a statement. Returns whether it succeeded, and its output.
    pub(crate) fn psql(&self, database: &str, sql: &str) -> (bool, String) {
        let mut psql = Programs::find().command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-U", "toolgate", "-d", database, "-c", sql, "-h"]);
        let done = psql.arg(self.folder.path()).output().expect("psql starts");
        (done.status.success(), String::from_utf8_lossy(&done.stdout).trim_end().to_owned())
    }

    /// Creates a database. Returns its connection string.
    pub(crate) fn create_database(&self) -> TestDatabase<'_> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        assert!(self.psql("postgres", &format!("CREATE DATABASE {name}")).0, "it is created");
        TestDatabase { server: self, name }
    }

    /// Sends a signal to the server.
    #[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
    pub(crate) fn signal(&self, name: &str) {
        let id = fs_err::read_to_string(self.folder.path().join("data/postmaster.pid")).expect("it runs");
        let id = id.lines().next().expect("the first line is its id").to_owned();
        assert!(Command::new("kill").args([name, &id]).status().expect("`kill` is installed").success());
    }

    /// Sends a signal to the server and to all of its processes.
    #[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
    pub(crate) fn signal_all(&self, name: &str) {
        let id = fs_err::read_to_string(self.folder.path().join("data/postmaster.pid")).expect("it runs");
        let id = id.lines().next().expect("the first line is its id").to_owned();
        let list =
            Command::new("ps").args(["-o", "pid=", "--ppid", &id]).output().expect("`ps` is installed");
        let children = String::from_utf8_lossy(&list.stdout).into_owned();
        // Those that serve connections are gone if they end meanwhile.
        let _ = Command::new("kill").arg(name).arg(&id).args(children.split_whitespace()).status();
    }

    /// Kills the server and all of its processes, as a crash does, then starts it again.
    pub(crate) fn crash(&mut self) {
        self.signal("-QUIT");
        drop(self.shell.stdin.take());
        self.shell.wait().expect("it is our child");
        self.shell = Self::launch(&Programs::find(), self.folder.path());
        self.wait();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// A database of a server.
pub(crate) struct TestDatabase<'a> {
    server: &'a TestServer,
    pub(crate) name: String,
}

impl TestDatabase<'_> {
    /// The connection string over the Unix socket.
    pub(crate) fn url(&self) -> String {
        let folder = self.server.folder.path().to_str().expect("UTF-8").replace('/', "%2F");
        format!("postgres://toolgate@{folder}/{}", self.name)
    }

    /// Runs a statement and returns its output.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let (done, output) = self.server.psql(&self.name, sql);
        assert!(done, "{sql}");
        output
    }
}

/// The server of this test process.
pub(crate) fn shared_server() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(TestServer::start)
}
