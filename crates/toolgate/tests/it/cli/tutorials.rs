//! The tutorials and how-tos, typed line by line. Programs that the pages use (`npx`, `uvx`) run the packages that the tests install.

use std::path::Path;

use crate::support::program::Program;
use crate::support::third_party::{node, peers, script, text};
use crate::support::typed_page::{follow, write_program};

/// Writes programs that run the installed packages, as `npx -y NAME` and `uvx NAME` do with a network.
fn install_runners(folder: &Path) {
    let peers = peers();
    let node = node(&peers);
    let mut npx = String::from("#!/bin/sh\n[ \"$1\" = -y ] && shift\nname=$1; shift\ncase $name in\n");
    for package in ["server-everything", "server-filesystem", "server-memory"] {
        let path = script(&peers, package);
        npx +=
            &format!("@modelcontextprotocol/{package}) exec '{}' '{}' \"$@\" ;;\n", text(&node), text(&path));
    }
    npx += "esac\necho \"npx: no such package: $name\" >&2\nexit 1\n";
    let python = peers.join("python/bin");
    let uvx = format!("#!/bin/sh\nname=$1; shift\nexec '{}/'\"$name\" \"$@\"\n", text(&python));
    let python = format!("#!/bin/sh\nexec '{}/python' \"$@\"\n", text(&python));
    for (name, content) in [("npx", npx), ("uvx", uvx), ("python", python)] {
        write_program(&folder.join(name), &content);
    }
}

/// Types a page in an empty folder.
fn follow_with_packages(page: &str) {
    let program = Program::new(&[]);
    let folder = program.path("~/bin");
    fs_err::create_dir_all(&folder).expect("the folder is writable");
    install_runners(&folder);
    follow(page, &program, &[]);
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn an_agent_with_the_servers_of_an_editor() {
    follow_with_packages(include_str!("../../../../../docs/tutorials/agent-builder.md"));
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn a_gateway_for_three_teams() {
    follow_with_packages(include_str!("../../../../../docs/tutorials/operator.md"));
}

#[test]
fn tools_in_python() {
    follow(include_str!("../../../../../docs/tutorials/python-tools.md"), &Program::new(&[]), &[]);
}

#[test]
fn ask_a_person() {
    follow(include_str!("../../../../../docs/how-to/approvals.md"), &Program::new(&[]), &[]);
}

#[test]
fn watch_with_prometheus() {
    follow(include_str!("../../../../../docs/how-to/monitoring.md"), &Program::new(&[]), &[]);
}

#[test]
fn back_up_and_restore() {
    follow(include_str!("../../../../../docs/how-to/backup-and-upgrade.md"), &Program::new(&[]), &[]);
}

#[test]
fn rotate_keys() {
    follow(include_str!("../../../../../docs/how-to/rotate-keys.md"), &Program::new(&[]), &[]);
}

#[test]
fn install_completions_and_man_pages() {
    follow(include_str!("../../../../../docs/how-to/install.md"), &Program::new(&[]), &[]);
}
