//! What can be told without a process. The rest is in `tests/process.rs`.

use super::*;

#[test]
fn an_end_in_words() {
    let check = |raw: i32, expected: &str| {
        assert_eq!(Exit::of_shim(ExitStatus::from_raw(raw)).to_string(), expected);
    };
    check(0, "exited with code 0");
    check(3 << 8, "exited with code 3");
    check(127 << 8, "exited with code 127");
    check((128 + 11) << 8, "was killed by signal 11 (SIGSEGV)");
    check((128 + 15) << 8, "was killed by signal 15 (SIGTERM)");
    check(255 << 8, "exited with code 255");
    check(9, "was killed by signal 9 (SIGKILL)");
    assert_eq!(Exit::Signal(60).to_string(), "was killed by signal 60");
    assert_eq!(Exit::Unknown.to_string(), "ended, and nobody saw how");
}

#[test]
fn a_missing_program_is_explained() {
    let check = |program: &str, message: &str, hint: &str| {
        let path = OsString::from("/nowhere:also-nowhere");
        let error = resolve(&Text::plain(program), Some(&path), Path::new("/")).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.hint().as_deref()), (message, Some(hint)));
    };
    check(
        "npx",
        "command `npx` was not found",
        "install Node.js, which brings `npx`, or give its full path; looked in `PATH=/nowhere:also-nowhere`",
    );
    check(
        "uvx",
        "command `uvx` was not found",
        "install uv, which brings `uvx`, or give its full path; looked in `PATH=/nowhere:also-nowhere`",
    );
    check(
        "frob",
        "command `frob` was not found",
        "install `frob`, or give its full path; looked in `PATH=/nowhere:also-nowhere`",
    );
    check(
        "bin/frob",
        "command `bin/frob` was not found",
        "a path is taken from the working folder of the server",
    );
    check("/etc/passwd", "`/etc/passwd` is not executable", "`chmod +x /etc/passwd` makes it so");
}

#[test]
fn secrets_stay_hidden() {
    let spec = ChildSpec {
        args: vec![Text::hidden("s3cret")],
        env: BTreeMap::from([("TOKEN".into(), Some(Text::hidden("s3cret")))]),
        ..ChildSpec::new(Text::plain("x"), "/")
    };
    assert!(!format!("{spec:?}").contains("s3cret"));
}

#[test]
fn the_environment_is_ours_then_theirs() {
    let spec = ChildSpec {
        env: BTreeMap::from([
            ("PATH".into(), Some(Text::plain("/p"))),
            ("HOME".into(), None),
            ("X".into(), Some(Text::plain("1"))),
        ]),
        ..ChildSpec::new(Text::plain("x"), "/")
    };
    let all = spec.environment();
    assert_eq!(all.get(OsStr::new("PATH")), Some(&"/p".into()));
    assert_eq!(all.get(OsStr::new("X")), Some(&"1".into()));
    assert!(!all.contains_key(OsStr::new("HOME")));
    assert!(all.keys().all(|name| name == "X" || INHERITED.iter().any(|known| name == known)), "{all:?}");
}
