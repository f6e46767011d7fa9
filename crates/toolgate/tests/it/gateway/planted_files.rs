//! Projects with links, special files and leftovers in place of the files that Toolgate writes.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::json;

use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::program::{Program, report_skipped};

const PRECIOUS: &str = "precious\n";

/// Runs everything that writes below `.toolgate`. Some of it may fail, but nothing may hang.
fn use_everything(program: &Program) {
    let command = |arguments: &[&str]| {
        let output = program.command(arguments).output().expect("the executable starts");
        assert!(output.status.code().is_some_and(|code| code != 101), "{arguments:?}: {output:?}");
        output.status.success()
    };
    command(&["callers", "add", "ann", "--permission", "s:*"]);
    command(&["tools", "call", "echo", "--args", r#"{"message": "hi"}"#]);
    command(&["tools", "list"]);
    command(&["servers"]);
    command(&["log"]);
    command(&["log", "verify"]);
    command(&["runs"]);
    command(&["callers", "remove", "ann"]);
}

/// Puts a link in place of a file below `.toolgate`, or of the folder itself.
fn plant(program: &Program, name: &str, target: &Path) {
    let state = program.path(".toolgate");
    let link = if name.is_empty() { state } else { state.join(name) };
    fs_err::create_dir_all(link.parent().expect("a folder")).expect("a folder");
    symlink(target, link).expect("a link");
}

/// A repository that was cloned may hold links to the files of its user.
#[test]
fn planted_links_are_not_followed() {
    let today = jiff::Timestamp::now().strftime("%F").to_string();
    let day = format!("log/1/{today}.jsonl");
    let names = [
        "keys.json",
        "keys.lock",
        "serve.lock",
        "socket",
        ".gitignore",
        "log",
        "log/1",
        "log/1/lock",
        "log/1/removed.jsonl",
        &day,
        "results",
        "runs",
        "",
    ];
    for name in names {
        for target in ["file", "folder", "missing"] {
            let program = project(&json!({ "serve": { "listen": "127.0.0.1:0" } }));
            let outside = program.path("~/outside");
            fs_err::create_dir_all(outside.join("folder")).expect("a folder");
            fs_err::write(outside.join("file"), PRECIOUS).expect("a file");
            plant(&program, name, &outside.join(target));
            use_everything(&program);
            let file = fs_err::read_to_string(outside.join("file")).expect("it is there");
            assert_eq!(file, PRECIOUS, "{name} -> {target}");
            let folder = fs_err::read_dir(outside.join("folder")).expect("it is there").count();
            assert_eq!(folder, 0, "{name} -> {target}");
            assert!(!outside.join("missing").exists(), "{name} -> {target}");
        }
    }
}

/// The gateway itself refuses them too, and says so.
#[test]
fn the_gateway_refuses_planted_links() {
    for name in ["serve.lock", "log", ""] {
        let program = project(&json!({ "serve": { "listen": "127.0.0.1:0" } }));
        let victim = program.path("~/victim");
        fs_err::write(&victim, PRECIOUS).expect("a file");
        plant(&program, name, &victim);
        if name == "serve.lock" {
            // Without its socket, the gateway still answers.
            let gateway = Gateway::serve(program);
            assert_eq!(gateway.get("/v1/tools", OWNER).status, 200);
            assert_eq!(fs_err::read_to_string(&victim).expect("it is there"), PRECIOUS, "{name}");
        } else {
            let run = program.run("serve");
            assert_eq!(run.code, 1, "{run}");
            assert!(run.stderr.contains("link"), "{name}: {run}");
            assert_eq!(fs_err::read_to_string(&victim).expect("it is there"), PRECIOUS, "{name}");
        }
    }
}

/// A FIFO in place of a file blocks nothing.
// Apple's systems have no `mknodat`.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn planted_fifos_do_not_block() {
    let names = [
        ".toolgate/keys.json",
        ".toolgate/socket",
        ".toolgate/log/1/lock",
        ".toolgate/log/1/reserve",
        ".toolgate/log/1/removed.jsonl",
        "toolgate.lock",
        "mcp.json",
        "tools.json",
        ".env",
    ];
    for name in names {
        let program = project(&json!({}));
        let path = program.path(name);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        make_fifo(&path);
        use_everything(&program);
        let check = program.run("check");
        assert!(check.code == 0 || check.code == 78, "{name}: {check}");
    }
    let program = Program::new(&[("toolgate.yaml", "registries: { tools: tools.json, mcp: mcp.json }\n")]);
    make_fifo(&program.path("tools.json"));
    make_fifo(&program.path("mcp.json"));
    for arguments in
        ["check", "tools list", "servers add a --url https://example.com/mcp", "--file mcp.json check"]
    {
        assert_eq!(program.run(arguments).code, 78, "{arguments}");
    }
}

/// An endless file is not read to its end.
#[test]
fn planted_devices_are_not_read() {
    for name in [".toolgate/log/1/removed.jsonl", "toolgate.lock"] {
        let program = project(&json!({}));
        assert_eq!(program.run("tools call echo message=hi").code, 0);
        let _ = fs_err::remove_file(program.path(name));
        symlink("/dev/zero", program.path(name)).expect("a link");
        let (command, code) = if name == "toolgate.lock" { ("tools list", 78) } else { ("log verify", 1) };
        let (run, peak) = program.run_measured(command);
        assert_eq!(run.code, code, "{name}: {run}");
        assert!(peak < 256 << 20, "{name}: {peak} bytes");
    }
}

/// A hard link is a file of its folder, but writing to it changes the file elsewhere.
#[test]
fn planted_hard_links_are_not_written() {
    let today = jiff::Timestamp::now().strftime("%F").to_string();
    let day = format!("log/1/{today}.jsonl");
    let names = [
        "keys.json",
        "keys.lock",
        "serve.lock",
        ".gitignore",
        "log/1/lock",
        "log/1/reserve",
        "log/1/removed.jsonl",
        &day,
    ];
    for name in names {
        let program = project(&json!({}));
        program.write("~/outside", PRECIOUS);
        let link = program.path(".toolgate").join(name);
        fs_err::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        fs_err::hard_link(program.path("~/outside"), link).expect("a link");
        use_everything(&program);
        // Not `assert_eq!`, which would print a reserve of 64 MiB.
        assert!(program.read("~/outside") == PRECIOUS, "{name} was written");
    }
}

#[cfg(not(target_vendor = "apple"))]
fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
}

#[test]
fn the_state_folder_is_private() {
    let program = project(&json!({}));
    fs_err::create_dir(program.path(".toolgate")).expect("a folder");
    let open = std::fs::Permissions::from_mode(0o777);
    fs_err::set_permissions(program.path(".toolgate"), open).expect("it is our folder");
    let gateway = Gateway::serve(program);
    let mode = |name: &str| {
        fs_err::metadata(gateway.program.path(".toolgate").join(name)).expect("it exists").mode() & 0o777
    };
    assert_eq!((mode(""), mode("log"), mode("socket"), mode("serve.lock")), (0o700, 0o700, 0o600, 0o600));
}

/// Temporary files of a process that was killed are removed at the next start.
#[test]
fn leftovers_of_killed_processes_are_removed() {
    let program = project(&json!({}));
    // Above the limit of process ids.
    let dead = format!(".tmp-{}-0", i32::MAX);
    for name in
        [format!(".toolgate/{dead}"), format!(".toolgate/results/{dead}"), format!(".toolgate/{dead}d/s")]
    {
        program.write(&name, "x");
    }
    let living = format!(".toolgate/.tmp-{}-0", std::process::id());
    program.write(&living, "x");
    program.write(".toolgate.lock.aB3xYz", "x");
    let gateway = Gateway::serve(program);
    let left = |name: &str| gateway.program.path(name).exists();
    assert!(!left(&format!(".toolgate/{dead}")) && !left(&format!(".toolgate/results/{dead}")));
    assert!(!left(&format!(".toolgate/{dead}d")), "a folder with a socket");
    assert!(!left(".toolgate.lock.aB3xYz"), "beside the lock file");
    assert!(left(&living), "its process is running");
}

/// Others could add commands to a file that they can write, or replace it in a folder that they can write to.
#[test]
fn files_that_others_can_write_are_reported() {
    let lock = r#"{"version": 1, "servers": {}}"#;
    let program = Program::new(&[("toolgate.yaml", "name: x\n"), ("toolgate.lock", lock)]);
    let shown = |arguments: &str| {
        let run = program.run(arguments);
        assert_eq!(run.code, 0, "{run}");
        format!("{}{}", run.stdout, run.stderr)
    };
    let set_mode = |path: &Path, mode| {
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    assert!(!shown("check").contains("other users can change"));
    for (name, mode) in [("toolgate.yaml", 0o666), ("toolgate.lock", 0o666), ("", 0o777)] {
        let path = program.path(name);
        let usual = fs_err::metadata(&path).expect("it is there").mode();
        set_mode(&path, mode);
        for command in ["check", "tools list"] {
            let shown = shown(command);
            let place = if name.is_empty() { "[project]" } else { name };
            assert!(shown.contains("other users can change `"), "{command} {name}: {shown}");
            assert!(
                shown.contains(&format!("{}`", place.trim_end_matches('/'))),
                "{command} {name}: {shown}"
            );
        }
        set_mode(&path, usual);
    }
    set_mode(&program.project, 0o1777);
    assert!(!shown("check").contains("other users can change"), "others cannot replace files of the user");
    set_mode(&program.project, 0o755);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(program.path("toolgate.yaml"), Some(65534), None).expect("root may");
        assert!(shown("check").contains("other users can change `toolgate.yaml`"));
    } else {
        report_skipped("only root can give a file to another user");
    }
}

/// A key file or a socket of another user could let its owner in.
#[test]
fn keys_and_sockets_of_another_user_are_refused() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        report_skipped("only root can give a file to another user");
        return;
    }
    let give_away =
        |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    let program = project(&json!({}));
    assert_eq!(program.run("callers add ann --permission s:*").code, 0);
    give_away(&program.path(".toolgate/keys.json"));
    let listed = program.run("callers list");
    assert_eq!(listed.code, 1, "{listed}");
    assert!(listed.stderr.contains("keys.json` belongs to another user"), "{listed}");

    let gateway = Gateway::serve(program);
    assert_eq!(gateway.get("/v1/tools", OWNER).status, 200, "its key is in the environment");
    let said = gateway.program.read("~/stderr");
    assert!(said.contains("warning: callers with a created key cannot log in"), "{said}");
    assert!(said.contains("keys.json` belongs to another user"), "{said}");
    let listed = gateway.program.run("callers list");
    assert_eq!(listed.code, 0, "{listed}");
    assert!(listed.stdout.contains("owner") && !listed.stdout.contains("ann"), "{listed}");
    assert!(listed.stderr.contains("keys.json` belongs to another user"), "{listed}");

    give_away(&gateway.program.path(".toolgate/socket"));
    for command in ["callers list", "callers add bob --permission s:*", "questions"] {
        let refused = gateway.program.run(command);
        assert_eq!(refused.code, 1, "{command}: {refused}");
        assert!(refused.stderr.contains("socket` belongs to another user"), "{command}: {refused}");
    }
}
