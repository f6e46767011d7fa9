//! Attempts to escape from the sandbox of `code_execution`, run with the real executable.
//!
//! `sandbox_attempts.py` lists the attempts. All of them run with namespaces and without (as in a container that forbids
//! them), as the user of the tests and, if that is root, as an unprivileged user too. After each call the test compares
//! everything that an attempt could have changed outside: a victim process, files, System V objects, sockets.

use std::fmt::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

const PRELUDE: &str = include_str!("sandbox_prelude.py");
const ATTEMPTS: &str = include_str!("sandbox_attempts.py");
const ORDINARY: &str = include_str!("sandbox_ordinary.py");
/// Part of every secret.
const SECRET: &str = "hunter2";
/// The unprivileged user.
const NOBODY: u32 = 65_534;
/// The key of System V objects.
const KEY: u32 = 0x7067_7361;
/// Runs a program without a system call, as in a container. The first arguments are its numbers on x86-64 and ARM.
const WITHOUT_CALL: &str = r"
import ctypes, os, struct, sys
number = int(sys.argv[1 if os.uname().machine == 'x86_64' else 2])
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
rules = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('rules', ctypes.c_void_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.cast(rules, ctypes.c_void_p))), 0, 0) == 0
os.execv(sys.argv[3], sys.argv[3:])
";
const UNSHARE: [&str; 2] = ["272", "97"];
const PIVOT_ROOT: [&str; 2] = ["155", "41"];
const CAPSET: [&str; 2] = ["126", "91"];

/// The way to run Toolgate.
#[derive(Debug, Clone, Copy)]
struct Mode {
    namespaces: bool,
    unprivileged: bool,
}

const MODES: [Mode; 4] = [
    Mode { namespaces: true, unprivileged: false },
    Mode { namespaces: false, unprivileged: false },
    Mode { namespaces: true, unprivileged: true },
    Mode { namespaces: false, unprivileged: true },
];

/// A project, a process and sockets that the code must not reach.
struct World {
    mode: Mode,
    folder: tempfile::TempDir,
    token: String,
    victim: Child,
    tcp: TcpListener,
    udp: UdpSocket,
    streams: [UnixListener; 2],
    datagrams: [UnixDatagram; 2],
}

impl World {
    /// `None` if the mode needs another user and the tests do not run as root.
    fn new(mode: Mode, config: Json) -> Option<Self> {
        let user = fs_err::metadata("/proc/self").expect("there is `/proc`").uid();
        if mode.unprivileged && user != 0 {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().canonicalize().expect("it exists");
        let mut code = json!({ "enabled": true, "timeout": "10m", "read": ["shared"] });
        code.as_object_mut().expect("a map").extend(config.as_object().cloned().unwrap_or_default());
        if mode.unprivileged {
            // That of the tests may be in the home folder of root.
            code["python"] = "/usr/bin/python3".into();
        }
        fs_err::create_dir(path.join("shared")).expect("a new folder");
        let config = json!({ "code_execution": code }).to_string();
        for (name, text) in [
            ("toolgate.yaml", config.as_str()),
            (".env", "SECRET=hunter2-in-a-file\n"),
            ("shared/file", "shared"),
        ] {
            fs_err::write(path.join(name), text).expect("a new file");
        }
        let present = ["-n", "user.present", "-v", "1"];
        // Not every file system has attributes.
        let _ = command("setfattr").args(present).arg(path.join(".env")).stderr(Stdio::null()).status();
        let token = format!("toolgate-{}", path.file_name().expect("it has a name").display());
        let name =
            |suffix: &str| SocketAddr::from_abstract_name(format!("{token}{suffix}")).expect("a short name");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let udp = UdpSocket::bind(tcp.local_addr().expect("it is bound")).expect("a free port");
        let streams = [
            UnixListener::bind(path.join("socket")).expect("a new socket"),
            UnixListener::bind_addr(&name("")).expect("a new name"),
        ];
        let datagrams = [
            UnixDatagram::bind(path.join("socket.datagram")).expect("a new socket"),
            UnixDatagram::bind_addr(&name(".datagram")).expect("a new name"),
        ];
        tcp.set_nonblocking(true).expect("a socket");
        udp.set_nonblocking(true).expect("a socket");
        streams.iter().for_each(|socket| socket.set_nonblocking(true).expect("a socket"));
        datagrams.iter().for_each(|socket| socket.set_nonblocking(true).expect("a socket"));
        if mode.unprivileged {
            for name in ["", "shared", "toolgate.yaml", ".env", "shared/file", "socket", "socket.datagram"] {
                chown(path.join(name), Some(NOBODY), Some(NOBODY)).expect("root can do that");
            }
        }
        let mut victim = command("sleep");
        if mode.unprivileged {
            victim = as_nobody("sleep");
        }
        let victim =
            victim.arg("3000").env("SECRET", "hunter2-in-a-process").spawn().expect("there is `sleep`");
        let start = now();
        let sleeps = |victim: &Child| {
            let stat = fs_err::read_to_string(format!("/proc/{}/stat", victim.id())).unwrap_or_default();
            stat.contains("(sleep) S")
        };
        while !sleeps(&victim) && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Self { mode, folder, token, victim, tcp, udp, streams, datagrams })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("it exists").join(name)
    }

    /// The command that runs Toolgate.
    fn toolgate(&self, args: &[&str]) -> Command {
        self.toolgate_without(if self.mode.namespaces { None } else { Some(UNSHARE) }, args)
    }

    /// The command that runs Toolgate without a system call.
    fn toolgate_without(&self, call: Option<[&str; 2]>, args: &[&str]) -> Command {
        let executable = env!("CARGO_BIN_EXE_toolgate");
        let mut line = Vec::new();
        if let Some([x86, arm]) = call {
            line.extend(["python3", "-c", WITHOUT_CALL, x86, arm]);
        }
        line.push(executable);
        line.extend(args);
        let mut command = if self.mode.unprivileged {
            as_nobody(if call.is_none() { executable } else { "/usr/bin/python3" })
        } else {
            command(line[0])
        };
        command.args(&line[1..]).current_dir(self.path("")).env("TOOLGATE_LOG", "off");
        command.env("API_SECRET", "hunter2-in-the-environment").env("HOME", self.path(""));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, code: &str) -> Json {
        let arguments = json!({ "language": "python", "code": code }).to_string();
        let line = ["tools", "call", "code_execution", "--json", "--args", &arguments];
        let output: Output = self.toolgate(&line).output().expect("it runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{:?}: {output:?}", self.mode))
    }

    /// Runs attempts in one call. Returns the output of the code.
    fn attempt(&self, attempts: &[(&str, String)]) -> String {
        let home = std::env::var("HOME").unwrap_or_default();
        let mut code = PRELUDE.to_owned();
        for (name, value) in [
            ("SECRET", self.path(".env").display().to_string()),
            ("PROJECT", self.folder.path().display().to_string()),
            ("SHARED", self.path("shared/file").display().to_string()),
            ("SOCKET", self.path("socket").display().to_string()),
            ("EXECUTABLE", env!("CARGO_BIN_EXE_toolgate").to_owned()),
            ("TOKEN", self.token.clone()),
            ("HOME", home),
        ] {
            writeln!(code, "{name} = {}", json!(value)).expect("a string");
        }
        let port = self.tcp.local_addr().expect("it is bound").port();
        writeln!(code, "VICTIM, PORT, KEY = {}, {port}, {KEY}", self.victim.id()).expect("a string");
        for (name, body) in attempts {
            writeln!(code, "def attempt():\n{body}\nrun({}, attempt)", json!(name)).expect("a string");
        }
        let result = self.run(&code);
        let said = result["data"]["stdout"].as_str().unwrap_or_default();
        assert!(said.matches("tried: ").count() == attempts.len(), "{:?}: {result}", self.mode);
        // Links and files of others are not returned.
        assert!(!result.to_string().contains(SECRET), "{:?}: {result}", self.mode);
        said.to_owned()
    }

    /// Everything outside of the sandbox that an attempt could have changed.
    fn state(&mut self) -> String {
        let mut state = String::new();
        let mut note = |name: &str, value: String| writeln!(state, "{name}: {value}").expect("a string");
        let read = |path: String| fs_err::read_to_string(path).unwrap_or_default();
        note("victim", format!("{:?}", self.victim.try_wait().expect("a child")));
        let victim = self.victim.id();
        let stat = read(format!("/proc/{victim}/stat"));
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // State, nice value and scheduling policy.
        note("victim process", format!("{:?}", [0, 16, 38].map(|field| fields.get(field).copied())));
        for file in ["limits", "oom_score_adj"] {
            note(file, read(format!("/proc/{victim}/{file}")));
        }
        let status = read(format!("/proc/{victim}/status"));
        let lines = status.lines().filter(|line| line.starts_with("Cpus") || line.starts_with("Tracer"));
        note("victim status", lines.collect::<Vec<_>>().join(" "));
        for file in [".env", "shared/file", "shared", "socket"].map(|name| self.path(name)) {
            note("file", description(&file));
        }
        note("program", description(Path::new("/usr/bin/env")));
        note("executable", description(Path::new(env!("CARGO_BIN_EXE_toolgate"))));
        note(
            "content",
            format!("{:?}", [".env", "shared/file"].map(|name| fs_err::read(self.path(name)).ok())),
        );
        let mut names: Vec<_> = fs_err::read_dir(self.path(""))
            .expect("it is there")
            .map(|entry| entry.expect("it can be read").file_name())
            .filter(|name| name != ".toolgate")
            .collect();
        names.sort();
        note("files", format!("{names:?}"));
        let mode = fs_err::metadata(self.path("")).expect("it is there");
        note("folder", format!("{:o} {}", mode.permissions().mode(), mode.uid()));
        for folder in ["/tmp", "/usr", "/dev/shm", "/sys/fs/cgroup"] {
            note(folder, Path::new(folder).join(format!("escaped-{}", self.token)).exists().to_string());
        }
        for kind in ["shm", "sem", "msg"] {
            let objects = read(format!("/proc/sysvipc/{kind}"));
            note(kind, objects.lines().any(|line| line.trim().starts_with(&KEY.to_string())).to_string());
        }
        for setting in ["hostname", "domainname", "core_pattern"] {
            note(setting, read(format!("/proc/sys/kernel/{setting}")));
        }
        note("tcp", self.tcp.accept().is_ok().to_string());
        note("udp", self.udp.recv(&mut [0; 9]).is_ok().to_string());
        note("streams", format!("{:?}", self.streams.each_ref().map(|socket| socket.accept().is_ok())));
        note(
            "datagrams",
            format!("{:?}", self.datagrams.each_ref().map(|socket| socket.recv(&mut [0; 9]).is_ok())),
        );
        state
    }

    /// Processes whose working folder is a scratch folder of this project.
    fn processes(&self) -> Vec<PathBuf> {
        let scratch = self.path(".toolgate/scratch");
        let all = fs_err::read_dir("/proc").expect("it is there").flatten().map(|entry| entry.path());
        all.filter(|process| {
            fs_err::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&scratch))
        })
        .collect()
    }

    /// Checks that a call has left no process and no scratch folder.
    fn check_nothing_left(&self) {
        let start = now();
        while !self.processes().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {:?}", self.mode, self.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
        let left: Vec<_> =
            fs_err::read_dir(self.path(".toolgate/scratch")).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "{:?}: {left:?}", self.mode);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a bound for a wait in a test")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the tests start programs")]
fn command(program: &str) -> Command {
    Command::new(program)
}

fn as_nobody(program: &str) -> Command {
    let mut command = command("setpriv");
    let user = NOBODY.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--", program]);
    command
}

/// The metadata of a file. The change time covers attributes too.
fn description(path: &Path) -> String {
    fs_err::symlink_metadata(path).map_or_else(
        |error| error.to_string(),
        |meta| {
            let changed = (meta.ctime(), meta.ctime_nsec());
            format!("{:o} {} {} {} {changed:?}", meta.mode(), meta.uid(), meta.nlink(), meta.len())
        },
    )
}

/// The attempts with their names, as bodies of functions.
fn attempts() -> Vec<(&'static str, String)> {
    let parts = ATTEMPTS.split("\n#: ").skip(1);
    let parts = parts.map(|part| part.split_once('\n').expect("a name and a body"));
    parts.map(|(name, body)| (name, body.lines().map(|line| format!("    {line}\n")).collect())).collect()
}

/// Runs all attempts, `together` in one call.
fn check(mode: Mode, together: usize) {
    let Some(mut world) = World::new(mode, json!({})) else { return };
    let all = attempts();
    assert!(all.len() > 60, "{}", all.len());
    let before = world.state();
    let mut failures = String::new();
    for group in all.chunks(together) {
        let said = world.attempt(group);
        let wrong = said.lines().filter(|line| line.starts_with("ESCAPED") || line.starts_with("BROKEN"));
        wrong.for_each(|line| writeln!(failures, "{line}").expect("a string"));
        let after = world.state();
        if after != before {
            let names: Vec<_> = group.iter().map(|(name, _)| name).collect();
            panic!(
                "{mode:?}: changed by {names:?}\n{}\n{said}",
                similar::TextDiff::from_lines(&before, &after).unified_diff()
            );
        }
        world.check_nothing_left();
    }
    assert!(failures.is_empty(), "{mode:?}:\n{failures}");
}

#[test]
fn no_attempt_escapes() {
    check(MODES[0], 3);
}

#[test]
fn no_attempt_escapes_without_namespaces() {
    check(MODES[1], 8);
}

#[test]
fn no_attempt_escapes_as_an_unprivileged_user() {
    check(MODES[2], 8);
}

#[test]
fn no_attempt_escapes_as_an_unprivileged_user_without_namespaces() {
    check(MODES[3], 8);
}

/// Code that exceeds a limit in an unusual way is stopped, or gets an error.
#[test]
fn limits_hold_against_tricks() {
    let unlinked = "
import os, time
kept = []
for n in range(64):
    f = open(f'{n}', 'wb', buffering=0)
    os.remove(f'{n}')
    f.write(bytes(1 << 20))
    kept.append(f)
time.sleep(0.5)
print('ESCAPED')";
    let mapped = "
import mmap, os, time
kept = []
for n in range(64):
    f = os.open(f'{n}', os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(f, 0, 1 << 20)
    kept.append(mmap.mmap(f, 1 << 20))
    os.remove(f'{n}')
    os.close(f)
time.sleep(0.5)
print('ESCAPED')";
    let thread = "
import ctypes, os, threading, time
def work():
    time.sleep(0.2)
    kept = []
    for n in range(64):
        f = os.open(f'{n}', os.O_CREAT | os.O_RDWR)
        os.remove(f'{n}')
        os.posix_fallocate(f, 0, 1 << 20)
        kept.append(f)
    time.sleep(0.5)
    print('ESCAPED', flush=True)
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)";
    let sparse = "
for n in range(100):
    with open(f'{n:03}', 'wb') as f: f.truncate(4 << 20)
print('done')";
    let descriptors = "
import os
kept = [os.open('.main.py', os.O_RDONLY) for _ in range(1000)]
print('ESCAPED')";
    let bomb = "
import os, time
time.sleep(0.1)
for _ in range(6): os.fork()
time.sleep(3000)";
    let memory = "
import os, time
for _ in range(3): os.fork()
kept = bytearray(os.urandom(1)) * (150 << 20)
time.sleep(3000)";
    let cpu = "
import os
os.fork()
while True: pass";
    for mode in MODES {
        let limits =
            json!({ "max_disk": "4MiB", "max_memory": "400MiB", "max_processes": 16, "timeout": "20s" });
        let Some(world) = World::new(mode, limits) else { continue };
        for (code, error) in [
            (unlinked, &["max_disk", "No space left"][..]),
            (mapped, &["max_disk", "No space left"]),
            (thread, &["max_disk", "No space left"]),
            (descriptors, &["Too many open files"]),
            (bomb, &["max_processes", "Resource temporarily unavailable"]),
            (memory, &["max_memory", "MemoryError"]),
        ] {
            let result = world.run(code);
            let text = result.to_string();
            assert!(error.iter().any(|error| text.contains(error)), "{mode:?}: {result}");
            assert!(!text.contains("ESCAPED"), "{mode:?}: {result}");
            world.check_nothing_left();
        }
        // The real folder never holds more than the limit, although the files pretend to be larger.
        let result = world.run(sparse);
        assert_eq!(result["data"]["stdout"], "done\n", "{mode:?}: {result}");
        world.check_nothing_left();
        let Some(world) = World::new(mode, json!({ "timeout": "1s" })) else { continue };
        assert_eq!(world.run(cpu)["error"]["code"], "timeout", "{mode:?}");
        world.check_nothing_left();
    }
}

/// A layer that cannot be set up stops the call, and the error names it.
#[test]
fn a_missing_layer_stops_the_call() {
    for (call, layer) in [(PIVOT_ROOT, "the root folder"), (CAPSET, "the capabilities")] {
        let Some(world) = World::new(MODES[0], json!({})) else { continue };
        let arguments = json!({ "language": "shell", "code": "echo ran" }).to_string();
        let line = ["tools", "call", "code_execution", "--json", "--args", &arguments];
        let output = world.toolgate_without(Some(call), &line).output().expect("it runs");
        let result: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(result["error"]["code"], "service_unavailable", "{result}");
        assert!(result["error"]["message"].as_str().is_some_and(|text| text.contains(layer)), "{result}");
        assert!(
            result["error"]["hint"].as_str().is_some_and(|hint| hint.contains("sandbox: false")),
            "{result}"
        );
        world.check_nothing_left();
    }
}

/// A process that has left its session ends, even if Toolgate and the shim are killed together.
#[test]
fn nothing_survives_a_killed_shim() {
    for mode in MODES.into_iter().filter(|mode| mode.namespaces) {
        let Some(world) = World::new(mode, json!({})) else { continue };
        let code = "import os, time\nos.fork()\nos.setsid() if os.getpid() > 2 else None\ntime.sleep(3000)";
        let arguments = json!({ "language": "python", "code": code }).to_string();
        let line = ["tools", "call", "code_execution", "--args", &arguments];
        let mut toolgate = world.toolgate(&line).stdout(Stdio::null()).spawn().expect("it runs");
        let start = now();
        // The shim, the first process, and two of the program.
        while world.processes().len() < 4 {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", world.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
        let shims = world.processes().into_iter().filter(|process| {
            let line = fs_err::read(process.join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"--grace")
        });
        let pids = shims.filter_map(|process| process.file_name()?.to_str().map(str::to_owned));
        let killed = command("kill").arg("-9").arg(toolgate.id().to_string()).args(pids).status();
        assert!(killed.expect("there is `kill`").success());
        toolgate.wait().expect("a child");
        while !world.processes().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", world.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Ordinary programs work in every mode.
#[test]
fn ordinary_code_works() {
    for mode in MODES {
        let Some(world) = World::new(mode, json!({ "max_memory": "2GiB", "max_processes": 64 })) else {
            continue;
        };
        let result = world.run(ORDINARY);
        assert_eq!(result["data"]["stdout"], "child\nall works\n", "{mode:?}: {result}");
        world.check_nothing_left();
    }
}

/// `check` and the start of a gateway report that the machine forbids namespaces, once and with the reason.
#[test]
fn missing_namespaces_are_reported() {
    for mode in MODES {
        let Some(world) = World::new(mode, json!({})) else { continue };
        for line in [&["check"][..], &["stdio"]] {
            let output: Output = world.toolgate(line).output().expect("it runs");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let warning = "the sandbox of `code_execution` has no namespaces: Operation not permitted";
            assert_eq!(
                stderr.matches(warning).count(),
                usize::from(!mode.namespaces),
                "{mode:?} {line:?}: {stderr}"
            );
            assert!(output.status.success(), "{mode:?} {line:?}: {stderr}");
        }
    }
    // Without the sandbox, there is nothing to report.
    let mode = Mode { namespaces: false, unprivileged: false };
    let Some(world) = World::new(mode, json!({ "sandbox": false })) else { return };
    let output = world.toolgate(&["check"]).output().expect("it runs");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("namespaces"), "{output:?}");
}
