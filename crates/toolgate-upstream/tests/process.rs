//! Real processes under the real shim: their environment, their exit, and that none is left behind.
//!
//! The test executable also plays other roles, selected by its first argument: see `main`. `--ignored` runs a
//! measurement instead of the tests.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "tests that play other roles")]
#![expect(clippy::disallowed_methods, reason = "real processes run in real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use toolgate_types::ConfigString;
use toolgate_upstream::process::{Child, ChildExit, ChildSpec, ProcessLimits, SpawnError, shim};

/// A test that takes this long hangs.
const BOUND: Duration = Duration::from_secs(20);
/// The variable that marks the processes of one test.
const MARKER: &str = "TOOLGATE_TEST_MARKER";

type TestFunction = (&'static str, fn(&Runtime));

const TESTS: &[TestFunction] = &[
    ("a_child_inherits_only_what_is_declared", a_child_inherits_only_what_is_declared),
    ("a_missing_program_is_an_error", a_missing_program_is_an_error),
    ("a_failed_start_reports_the_reason", a_failed_start_reports_the_reason),
    ("a_missing_folder_is_an_error", a_missing_folder_is_an_error),
    ("displays_exit_statuses", displays_exit_statuses),
    ("limits_are_set", limits_are_set),
    ("closed_stdin_ends_a_cooperative_child", closed_stdin_ends_a_cooperative_child),
    ("unread_input_does_not_hide_the_hang_up", unread_input_does_not_hide_the_hang_up),
    ("sigterm_is_answered_before_sigkill", sigterm_is_answered_before_sigkill),
    ("killing_its_group_spares_the_shim", killing_its_group_spares_the_shim),
    ("a_long_grace_lets_work_finish", a_long_grace_lets_work_finish),
    ("leftovers_do_not_hold_stdout", leftovers_do_not_hold_stdout),
    ("a_flood_of_stderr_blocks_nothing", a_flood_of_stderr_blocks_nothing),
    ("stop_ends_the_whole_tree", stop_ends_the_whole_tree),
    ("drop_ends_the_whole_tree", drop_ends_the_whole_tree),
    ("a_stopped_shim_is_forced", a_stopped_shim_is_forced),
    ("a_killed_shim_leaves_no_session", a_killed_shim_leaves_no_session),
    ("sigkill_of_the_parent_leaves_nothing", sigkill_of_the_parent_leaves_nothing),
    ("many_cycles_leave_nothing", many_cycles_leave_nothing),
];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().unwrap_or_default().to_str() {
        Some("shim") => return shim::main(args),
        Some("play-leaky-parent") => return runtime().block_on(play_leaky_parent()),
        Some("play-busy-parent") => return runtime().block_on(play_busy_parent()),
        _ => {}
    }
    let mut arguments = Arguments::from_args();
    // Some tests count the descriptors and children of this process, so no other test may run beside them.
    arguments.test_threads = Some(1);
    let tests = TESTS.iter().map(|&(name, test)| {
        Trial::test(name, move || {
            let runtime = runtime();
            test(&runtime);
            runtime.shutdown_timeout(BOUND);
            Ok(())
        })
    });
    let measurement = Trial::test("measure_start_times", || {
        runtime().block_on(measure_start_times());
        Ok(())
    });
    let tests = tests.chain([measurement.with_ignored_flag(true)]);
    libtest_mimic::run(&arguments, tests.collect()).exit_code()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

// The environment of a child.

fn a_child_inherits_only_what_is_declared(_: &Runtime) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("play-leaky-parent")
        .arg(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HTTPS_PROXY", "http://proxy:3128")
        .envs((1..=5).map(|number| (format!("SECRET_{number}"), "s3cret")))
        .envs([("LANG", "C"), ("TZ", "UTC"), ("HOME", "/h")])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{message}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!message.contains("s3cret"), "{message}");
    let (environment, rest) = message.split_once("---\n").unwrap();
    let names: BTreeSet<&str> =
        environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let allowed =
        BTreeSet::from(["DECLARED", "HTTPS_PROXY", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER"]);
    assert!(names.is_subset(&allowed), "{names:?}");
    assert!(
        names.is_superset(&BTreeSet::from(["DECLARED", "HTTPS_PROXY", "LANG", "PATH", "TZ"])),
        "{names:?}"
    );
    assert!(environment.contains("DECLARED=yes\n") && environment.contains("TZ=CET\n"), "{environment}");
    let cwd = fs_err::canonicalize(folder.path()).unwrap();
    assert_eq!(rest, format!("fds: 0 1 2\numask: 0077\ncwd: {}\ncore: 0\n", cwd.display()));
}

/// A parent with open files and sockets, some inheritable, and secrets in its environment.
async fn play_leaky_parent() -> ExitCode {
    let folder = std::env::args_os().nth(2).unwrap();
    let sockets: Vec<_> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let files: Vec<_> = (0..5).map(|_| fs_err::File::open("/dev/null").unwrap()).collect();
    // Without close-on-exec, as a careless program leaves them.
    for socket in &sockets[..3] {
        rustix::io::fcntl_setfd(socket, FdFlags::empty()).unwrap();
    }
    for file in &files[..3] {
        rustix::io::fcntl_setfd(file.file(), FdFlags::empty()).unwrap();
    }
    // The shell starts no program before it prints its environment.
    let script = "tr '\\0' '\\n' < /proc/$$/environ; echo ---; printf fds:
        for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
            if [ -e /proc/$$/fd/$n ]; then printf \" $n\"; fi; done
        echo; echo umask: $(umask); echo cwd: $(pwd); echo core: $(ulimit -c)";
    let mut spec = sh(script);
    spec.cwd = folder.into();
    spec.env = BTreeMap::from([
        ("DECLARED".into(), Some(ConfigString::plain("yes"))),
        ("TZ".into(), Some(ConfigString::plain("CET"))),
        ("HOME".into(), None),
    ]);
    let mut child = Child::spawn(&spec).unwrap();
    print!("{}", all_output(&mut child).await);
    let exit = within(child.exit()).await;
    if exit.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn limits_are_set(runtime: &Runtime) {
    runtime.block_on(async {
        let mut spec = sh("ulimit -n; ulimit -c; ulimit -v; ulimit -d; ulimit -f");
        spec.limits = ProcessLimits {
            open_files: Some(64),
            processes: Some(5000),
            memory_bytes: Some(1 << 30),
            data_bytes: Some(1 << 29),
            file_bytes: Some(1 << 20),
        };
        let mut child = Child::spawn(&spec).unwrap();
        assert_eq!(all_output(&mut child).await, "64\n0\n1048576\n524288\n2048\n");
        assert_eq!(within(child.exit()).await, ChildExit::Code(0));
    });
}

// Failed starts.

fn a_missing_program_is_an_error(runtime: &Runtime) {
    runtime.block_on(async {
        let mut spec = ChildSpec::new(ConfigString::plain("npx"), "/");
        spec.env.insert("PATH".into(), Some(ConfigString::plain("/nowhere")));
        let error = Child::spawn(&spec).unwrap_err();
        assert!(matches!(error, SpawnError::NotFound { .. }), "{error:?}");
        assert_eq!(error.to_string(), "command `npx` was not found");
        let hint = error.hint().unwrap();
        assert!(hint.contains("Node.js") && hint.contains("PATH=/nowhere"), "{hint}");
    });
}

fn a_missing_folder_is_an_error(runtime: &Runtime) {
    runtime.block_on(async {
        let error = Child::spawn(&ChildSpec::new(ConfigString::plain("sh"), "/nowhere/at/all")).unwrap_err();
        let message = error.to_string();
        assert_eq!(message, "the working folder `/nowhere/at/all` of command `sh` does not exist");
    });
}

fn a_failed_start_reports_the_reason(runtime: &Runtime) {
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        for (text, why) in [
            ("#!/nowhere/interpreter\n", "the interpreter in its first line does not exist"),
            ("\u{1}\u{2}\u{3}", "it is not a program; a script needs a first line such as `#!/bin/sh`"),
        ] {
            let path = folder.path().join("program");
            fs_err::write(&path, text).unwrap();
            rustix::fs::chmod(&path, 0o755.into()).unwrap();
            let child =
                Child::spawn(&ChildSpec::new(ConfigString::plain("./program"), folder.path())).unwrap();
            assert_eq!(within(child.exit()).await, ChildExit::Code(127));
            let message = child.stderr_tail(5).join("\n");
            assert!(message.starts_with("toolgate: cannot start `/"), "{message}");
            assert!(message.ends_with(&format!("program`: {why}")), "{message}");
        }
    });
}

// Exit statuses.

fn displays_exit_statuses(runtime: &Runtime) {
    runtime.block_on(async {
        for (script, expected) in [
            ("exit 0", "exited with code 0"),
            ("exit 3", "exited with code 3"),
            ("kill -SEGV $$", "was killed by signal 11 (SIGSEGV)"),
            ("kill -KILL $$", "was killed by signal 9 (SIGKILL)"),
        ] {
            let child = Child::spawn(&sh(&format!("echo last words >&2; {script}"))).unwrap();
            assert_eq!(within(child.exit()).await.to_string(), expected, "{script}");
            assert_eq!(child.stderr_tail(1), ["last words"], "{script}");
        }
    });
}

fn closed_stdin_ends_a_cooperative_child(runtime: &Runtime) {
    runtime.block_on(async {
        let mut child = Child::spawn(&ChildSpec::new(ConfigString::plain("cat"), "/")).unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdin.write_all(b"hello").await.unwrap();
        let mut answer = [0; 5];
        within(stdout.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"hello");
        // Taken, so its owner has to close it.
        drop(stdin);
        let start = Instant::now();
        assert_eq!(child.stop(Duration::from_secs(2)).await, ChildExit::Code(0));
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());

        let mut child = Child::spawn(&ChildSpec::new(ConfigString::plain("cat"), "/")).unwrap();
        assert_eq!(child.stop(Duration::from_secs(2)).await, ChildExit::Code(0));
    });
}

fn unread_input_does_not_hide_the_hang_up(runtime: &Runtime) {
    runtime.block_on(async {
        let mut child = Child::spawn(&sh("echo ready; sleep 1000")).unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&[b'x'; 10_000]).await.unwrap();
        ready(&mut child, 1).await;
        drop(stdin);
        let start = Instant::now();
        assert_eq!(within(child.exit()).await, ChildExit::Signal(15));
        let took = start.elapsed();
        assert!((Duration::from_millis(1900)..Duration::from_secs(3)).contains(&took), "{took:?}");
    });
}

fn sigterm_is_answered_before_sigkill(runtime: &Runtime) {
    runtime.block_on(async {
        let mut child =
            Child::spawn(&sh("trap 'exit 7' TERM; echo ready; while :; do read x || sleep 0.02; done"))
                .unwrap();
        ready(&mut child, 1).await;
        let start = Instant::now();
        assert_eq!(child.stop(Duration::ZERO).await, ChildExit::Code(7));
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    });
}

fn killing_its_group_spares_the_shim(runtime: &Runtime) {
    runtime.block_on(async {
        let child = Child::spawn(&sh("trap '' TERM; kill 0; exit 5")).unwrap();
        assert_eq!(within(child.exit()).await, ChildExit::Code(5));
    });
}

fn a_long_grace_lets_work_finish(runtime: &Runtime) {
    runtime.block_on(async {
        let mut spec = sh("cat > /dev/null; sleep 2.5; echo worked");
        spec.grace = BOUND;
        let mut child = Child::spawn(&spec).unwrap();
        drop(child.stdin.take());
        assert_eq!(all_output(&mut child).await, "worked\n");
        assert_eq!(within(child.exit()).await, ChildExit::Code(0));
    });
}

fn leftovers_do_not_hold_stdout(runtime: &Runtime) {
    runtime.block_on(async {
        let marker = marker();
        let daemon = "import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1); os._exit(4)
os.setsid()
if os.fork(): os._exit(0)
os.write(writer, b'x')
signal.pause()";
        let mut child = Child::spawn(&marked(python(daemon), &marker)).unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let exit = child.exit();
        // End of file: the daemon holds stdout open until it is killed.
        assert_eq!(within(stdout.read(&mut [0])).await.unwrap(), 0);
        assert_eq!(within(exit).await, ChildExit::Code(4));
        assert_eq!(living(&marker), Vec::<i32>::new());
    });
}

fn a_flood_of_stderr_blocks_nothing(runtime: &Runtime) {
    runtime.block_on(async {
        let flood =
            "yes 'a line of no interest whatsoever' | head -n 3000000 >&2; echo the end >&2; echo done";
        let mut child = Child::spawn(&sh(flood)).unwrap();
        let before = resident_bytes();
        assert_eq!(all_output(&mut child).await, "done\n");
        assert_eq!(within(child.exit()).await, ChildExit::Code(0));
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 4 << 20, "grew by {grown} bytes");
        assert_eq!(child.stderr_tail(1), ["the end"]);
        let tail = child.stderr_tail(1_000_000);
        assert!((1000..2000).contains(&tail.len()), "{} lines", tail.len());
        assert_eq!(tail[0], "a line of no interest whatsoever");
    });
}

// No process is left behind.

/// A plain child, one in its own session, one forked twice; all except one ignore SIGTERM, as does their parent. Each
/// prints `ready`.
const TREE: &str = "import os, signal, sys, time
def rest(deaf):
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else signal.SIG_DFL)
    os.write(1, b'ready\\n')
    while True: time.sleep(1000)
if not os.fork(): rest(False)
if not os.fork(): rest(True)
if not os.fork():
    os.setsid(); rest(True)
if not os.fork():
    os.setsid()
    if not os.fork():
        os.chdir('/'); rest(True)
    os._exit(0)
rest(True)";
const TREE_SIZE: usize = 5;

fn stop_ends_the_whole_tree(runtime: &Runtime) {
    runtime.block_on(async {
        for grace in [Duration::ZERO, Duration::from_secs(1)] {
            let (mut child, marker) = tree().await;
            let start = Instant::now();
            let exit = child.stop(grace).await;
            let took = start.elapsed();
            assert_eq!(living(&marker), Vec::<i32>::new());
            assert_eq!(exit, ChildExit::Signal(9));
            assert!(took < Duration::from_millis(3500), "{took:?}");
            assert_eq!(zombies(), Vec::<i32>::new());
        }
    });
}

fn drop_ends_the_whole_tree(runtime: &Runtime) {
    runtime.block_on(async {
        let (child, marker) = tree().await;
        drop(child);
        until(Duration::from_secs(5), || living(&marker).is_empty()).await;
        // Another owner holds stdin: the tree ends anyway.
        let (mut child, marker) = tree().await;
        let stdin = child.stdin.take();
        drop(child);
        until(Duration::from_secs(4), || living(&marker).is_empty()).await;
        drop(stdin);
        until(BOUND, || zombies().is_empty()).await;
    });
}

fn a_stopped_shim_is_forced(runtime: &Runtime) {
    runtime.block_on(async {
        let (mut child, marker) = tree().await;
        kill_process(pid(child.id()), Signal::STOP).unwrap();
        assert_eq!(within(child.stop(Duration::ZERO)).await, ChildExit::Signal(9));
        until(Duration::from_secs(1), || living(&marker).is_empty()).await;
    });
}

fn a_killed_shim_leaves_no_session(runtime: &Runtime) {
    runtime.block_on(async {
        let marker = marker();
        let mut child = Child::spawn(&marked(sh("trap '' TERM; echo ready; sleep 1000"), &marker)).unwrap();
        ready(&mut child, 1).await;
        kill_process(pid(child.id()), Signal::KILL).unwrap();
        assert_eq!(within(child.exit()).await, ChildExit::Signal(9));
        assert_eq!(living(&marker), Vec::<i32>::new());
    });
}

const BUSY_CHILDREN: usize = 20;

fn sigkill_of_the_parent_leaves_nothing(runtime: &Runtime) {
    let marker = marker();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .arg("play-busy-parent")
        .arg(&marker)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut message = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut message).unwrap();
    assert_eq!(message, "all busy\n");
    // Each tree is a shim, a busy program, and its busy child in another session.
    assert!(living(&marker).len() >= 3 * BUSY_CHILDREN, "{}", living(&marker).len());
    parent.kill().unwrap();
    parent.wait().unwrap();
    let start = Instant::now();
    runtime.block_on(until(Duration::from_secs(3), || living(&marker).is_empty()));
    println!("     none of {BUSY_CHILDREN} trees left after {:.2?}", start.elapsed());
}

/// Starts busy trees that ignore SIGTERM and their stdin, reports them ready, and waits to be killed.
async fn play_busy_parent() -> ExitCode {
    let busy = "import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork(): os.setsid()
os.write(1, b'ready\\n')
os.read(0, 1)
while True: pass";
    let marker = std::env::args().nth(2).unwrap();
    let mut children = Vec::new();
    for _ in 0..BUSY_CHILDREN {
        children.push(Child::spawn(&marked(python(busy), &marker)).unwrap());
    }
    for child in &mut children {
        ready(child, 2).await;
    }
    // Released only now, because starting takes long beside busy processes.
    for child in &mut children {
        child.stdin.as_mut().unwrap().write_all(b"go").await.unwrap();
    }
    println!("all busy");
    std::future::pending().await
}

fn many_cycles_leave_nothing(runtime: &Runtime) {
    runtime.block_on(async {
        let cat = ChildSpec::new(ConfigString::plain("cat"), "/");
        // The first child opens descriptors that the runtime keeps.
        Child::spawn(&cat).unwrap().stop(BOUND).await;
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        until(BOUND, || tasks() == 0).await;
        let before = open_descriptors();
        for cycle in 0..200 {
            let mut child = Child::spawn(&cat).unwrap();
            if cycle % 4 == 0 {
                drop(child);
            } else {
                assert_eq!(child.stop(BOUND).await, ChildExit::Code(0));
            }
        }
        until(BOUND, || tasks() == 0).await;
        until(BOUND, || open_descriptors() == before).await;
        until(BOUND, || zombies().is_empty()).await;
    });
}

/// Measures the time from spawn to the first byte of output, and to the exit.
async fn measure_start_times() {
    const ROUNDS: u32 = 200;
    let spec = ChildSpec::new(ConfigString::plain("echo"), "/");
    let (mut first, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut child = Child::spawn(&spec).unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).await.unwrap();
        first.push(start.elapsed());
        child.exit().await;
        whole.push(start.elapsed());
    }
    report("through the shim", first, whole);
    let (mut first, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut child = tokio::process::Command::new("/bin/echo")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).await.unwrap();
        first.push(start.elapsed());
        child.wait().await.unwrap();
        whole.push(start.elapsed());
    }
    report("bare", first, whole);
}

fn report(name: &str, mut first: Vec<Duration>, mut whole: Vec<Duration>) {
    first.sort_unstable();
    whole.sort_unstable();
    let median = |times: &[Duration]| times[times.len() / 2];
    println!("{name}: first byte {:.2?}, end {:.2?} (median)", median(&first), median(&whole));
}

// Helpers.

fn sh(script: &str) -> ChildSpec {
    ChildSpec {
        args: vec![ConfigString::plain("-c"), ConfigString::plain(script)],
        ..ChildSpec::new(ConfigString::plain("sh"), std::env::temp_dir())
    }
}

fn python(script: &str) -> ChildSpec {
    // Only Linux finds the processes of other sessions; elsewhere, those of other groups are found.
    let script = match cfg!(feature = "portable") {
        true => script.replace("os.setsid()", "os.setpgid(0, 0)"),
        false => script.to_owned(),
    };
    ChildSpec {
        args: vec![ConfigString::plain("-c"), ConfigString::plain(script)],
        ..ChildSpec::new(ConfigString::plain("python3"), std::env::temp_dir())
    }
}

fn marked(mut spec: ChildSpec, marker: &str) -> ChildSpec {
    spec.env.insert(MARKER.into(), Some(ConfigString::plain(marker)));
    spec
}

fn marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

async fn tree() -> (Child, String) {
    let marker = marker();
    let mut child = Child::spawn(&marked(python(TREE), &marker)).unwrap();
    ready(&mut child, TREE_SIZE).await;
    assert!(living(&marker).len() > TREE_SIZE, "the shim is marked too");
    (child, marker)
}

/// Waits for this many `ready` lines.
async fn ready(child: &mut Child, lines: usize) {
    let mut reader = tokio::io::BufReader::new(child.stdout.as_mut().unwrap()).lines();
    for _ in 0..lines {
        let line = within(reader.next_line()).await.unwrap();
        assert_eq!(line.as_deref(), Some("ready"), "{:?}", child.stderr_tail(20));
    }
}

async fn all_output(child: &mut Child) -> String {
    let mut text = String::new();
    within(child.stdout.take().unwrap().read_to_string(&mut text)).await.unwrap();
    text
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(BOUND, future).await.expect("timed out")
}

#[track_caller]
fn until(bound: Duration, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    let start = Instant::now();
    async move {
        while !condition() {
            assert!(start.elapsed() < bound, "{caller}: not within {bound:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).unwrap()
}

fn all_processes() -> impl Iterator<Item = (i32, std::path::PathBuf)> {
    fs_err::read_dir("/proc").unwrap().filter_map(|entry| {
        Some((entry.as_ref().ok()?.file_name().to_str()?.parse().ok()?, entry.ok()?.path()))
    })
}

/// Processes with this marker in their environment. Zombies have none.
fn living(marker: &str) -> Vec<i32> {
    let wanted = format!("{MARKER}={marker}\0");
    let is_marked = |folder: &Path| {
        let environment = fs_err::read(folder.join("environ")).unwrap_or_default();
        environment.windows(wanted.len()).any(|window| window == wanted.as_bytes())
    };
    all_processes().filter(|(_, folder)| is_marked(folder)).map(|(pid, _)| pid).collect()
}

/// Our own children that have exited and were not reaped.
fn zombies() -> Vec<i32> {
    let ours = format!(") Z {} ", std::process::id());
    all_processes()
        .filter(|(_, folder)| fs_err::read_to_string(folder.join("stat")).unwrap_or_default().contains(&ours))
        .map(|(pid, _)| pid)
        .collect()
}

fn open_descriptors() -> usize {
    fs_err::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_bytes() -> u64 {
    let statm = fs_err::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
