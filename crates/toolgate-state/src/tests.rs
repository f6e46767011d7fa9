//! Folders with planted links, special files and leftovers.

use std::os::unix::fs::symlink;

use super::*;

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().mode() & 0o777
}

const ALL: [FileAccess; 5] =
    [FileAccess::Read, FileAccess::Write, FileAccess::Create, FileAccess::Append, FileAccess::AppendNew];

#[test]
fn folders_are_private() {
    let project = tempfile::tempdir().unwrap();
    let state = project.path().join(STATE_FOLDER);
    fs_err::create_dir(&state).unwrap();
    fs_err::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    StateDir::create(&state.join("a/b")).unwrap();
    assert_eq!([&state, &state.join("a"), &state.join("a/b")].map(|path| mode(path)), [0o700; 3]);
    assert_eq!(StateDir::open(&state.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    // The mode of a folder elsewhere is the choice of the user.
    let other = project.path().join("log");
    fs_err::create_dir(&other).unwrap();
    fs_err::set_permissions(&other, Permissions::from_mode(0o750)).unwrap();
    StateDir::create(&other).unwrap();
    assert_eq!(mode(&other), 0o750);
}

#[test]
fn links_are_not_followed() {
    let project = tempfile::tempdir().unwrap();
    let (victim, target) = (project.path().join("victim"), project.path().join("target"));
    fs_err::write(&victim, "precious").unwrap();
    fs_err::create_dir(&target).unwrap();
    let state = project.path().join(STATE_FOLDER);
    symlink(&target, &state).unwrap();
    for path in [&state, &state.join("log")] {
        assert!(StateDir::create(path).unwrap_err().to_string().contains("is a link"), "{path:?}");
    }
    fs_err::remove_file(&state).unwrap();
    let folder = StateDir::create(&state).unwrap();
    symlink(&target, state.join("log")).unwrap();
    assert!(StateDir::create(&state.join("log")).is_err());
    symlink(&victim, state.join("file")).unwrap();
    symlink(project.path().join("new"), state.join("dangling")).unwrap();
    for access in ALL {
        assert!(folder.open_file("file", access).is_err(), "{access:?}");
        assert!(folder.open_file("dangling", access).is_err(), "{access:?}");
    }
    assert!(open_private(&state.join("file"), FileAccess::Write).is_err());
    // The link itself is replaced.
    folder.replace("file", b"own").unwrap();
    assert_eq!(folder.read("file", 10).unwrap(), b"own");
    assert_eq!(fs_err::read_to_string(&victim).unwrap(), "precious");
    assert!(!project.path().join("new").exists() && fs_err::read_dir(&target).unwrap().next().is_none());
}

#[test]
fn files_with_a_hard_link_are_not_written() {
    let project = tempfile::tempdir().unwrap();
    let victim = project.path().join("victim");
    fs_err::write(&victim, "precious").unwrap();
    let folder = StateDir::create(&project.path().join(STATE_FOLDER)).unwrap();
    fs_err::hard_link(&victim, folder.path().join("file")).unwrap();
    for access in ALL.into_iter().filter(|access| *access != FileAccess::Read) {
        assert!(folder.open_file("file", access).is_err(), "{access:?}");
    }
    assert_eq!(folder.read("file", 10).unwrap(), b"precious");
    // The other name keeps its content.
    folder.replace("file", b"own").unwrap();
    assert_eq!(fs_err::read_to_string(&victim).unwrap(), "precious");
    folder.open_file("file", FileAccess::Write).unwrap();
}

/// A folder above the file is checked too.
#[test]
fn links_in_the_middle_of_a_path_are_not_followed() {
    let project = tempfile::tempdir().unwrap();
    let target = project.path().join("target");
    fs_err::create_dir(&target).unwrap();
    fs_err::write(target.join("file"), "precious").unwrap();
    let state = StateDir::create(&project.path().join(STATE_FOLDER)).unwrap();
    symlink(&target, state.path().join("log")).unwrap();
    for access in ALL {
        assert!(open_private(&state.path().join("log/file"), access).is_err(), "{access:?}");
    }
}

// Apple's systems have no `mknodat`.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn special_files_do_not_block() {
    let project = tempfile::tempdir().unwrap();
    let folder = StateDir::create(&project.path().join(STATE_FOLDER)).unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for access in [FileAccess::Read, FileAccess::Create] {
        assert!(folder.open_file("fifo", access).is_err(), "{access:?}");
    }
    assert!(open_private(&fifo, FileAccess::Read).is_err());
    assert_eq!(read_regular(&fifo, 10).unwrap_err().to_string(), "it is not a regular file");
    assert!(folder.has_socket("fifo").is_err());
    assert!(!folder.has_socket("none").unwrap());
}

#[test]
fn reading_is_limited() {
    let project = tempfile::tempdir().unwrap();
    let path = project.path().join("a");
    fs_err::write(&path, "123").unwrap();
    assert_eq!(read_regular(&path, 3).unwrap(), b"123");
    assert_eq!(read_regular(&path, 2).unwrap_err().kind(), ErrorKind::FileTooLarge);
}

#[test]
fn leftovers_of_killed_processes_are_removed() {
    let project = tempfile::tempdir().unwrap();
    let state = project.path().join(STATE_FOLDER);
    let folder = StateDir::create(&state).unwrap();
    let below = StateDir::create(&state.join("results")).unwrap();
    // No process has this id: it is above the limit of the kernel.
    let dead = format!("{TEMPORARY}{}-0", i32::MAX);
    let living = temporary_name();
    for name in [dead.as_str(), &living, ".tmpAbCdEf", "keys.json"] {
        below.replace(name, b"x").unwrap();
    }
    fs_err::create_dir(state.join(&dead)).unwrap();
    fs_err::write(state.join(&dead).join("s"), "").unwrap();
    remove_orphans(&state);
    let names = |folder: &StateDir| {
        let mut names = folder.names().unwrap();
        names.sort();
        names
    };
    assert_eq!(names(&folder), ["results"]);
    assert_eq!(names(&below), [living.as_str(), ".tmpAbCdEf", "keys.json"]);
    // Old ones have no owner any more.
    below.remove_orphans(SystemTime::now() + MAX_TEMPORARY_AGE * 2);
    assert_eq!(names(&below), ["keys.json"]);
}

#[test]
fn files_that_others_can_change_are_found() {
    let project = tempfile::tempdir().unwrap();
    let file = project.path().join("file");
    fs_err::write(&file, "").unwrap();
    let is_found = |path: &Path, mode: u32| {
        fs_err::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        is_writable_by_others(path)
    };
    assert!(!is_found(&file, 0o644) && is_found(&file, 0o646) && is_found(&file, 0o1646));
    let folder = project.path();
    assert!(!is_found(folder, 0o755) && is_found(folder, 0o777) && !is_found(folder, 0o1777));
    assert!(!is_writable_by_others(&folder.join("none")));
    fs_err::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    if geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert!(is_writable_by_others(&file), "it belongs to another user");
    }
}
