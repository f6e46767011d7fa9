//! The order of the end, and the command line that says it.

use super::*;

const NOTHING: Facts = Facts {
    now: Duration::ZERO,
    grace: STDIN_GRACE,
    ended: false,
    asked_to_end: false,
    hung_up: false,
    orphaned: false,
};

/// Looks every 10 ms until the tree is to be killed, and tells the stages with the time they began.
fn check(facts: Facts, expected: &str) {
    let mut stage = Stage::Running;
    let mut told = String::new();
    for now in (0..6000).step_by(10) {
        let next = stage.next(Facts { now: Duration::from_millis(now), ..facts });
        if next != stage {
            let name = match next {
                Stage::Running => "run",
                Stage::Waiting { .. } => "wait",
                Stage::Terminating { .. } => "term",
                Stage::Killing => "kill",
            };
            told += &format!("{now} {name}, ");
        }
        stage = next;
    }
    assert_eq!(told.trim_end_matches(", "), expected, "{facts:?}");
}

#[test]
fn stages_follow_each_other() {
    check(NOTHING, "");
    check(Facts { orphaned: true, ..NOTHING }, "");
    check(Facts { hung_up: true, ..NOTHING }, "0 wait, 2000 term, 4000 kill");
    check(Facts { hung_up: true, orphaned: true, ..NOTHING }, "0 wait, 200 term, 1200 kill");
    check(Facts { asked_to_end: true, ..NOTHING }, "0 term, 2000 kill");
    check(Facts { asked_to_end: true, hung_up: true, ..NOTHING }, "0 term, 2000 kill");
    check(Facts { ended: true, ..NOTHING }, "0 term, 500 kill");
    let long = Facts { grace: Duration::from_secs(60), ..NOTHING };
    check(Facts { hung_up: true, ..long }, "0 wait");
    check(Facts { hung_up: true, orphaned: true, ..long }, "0 wait, 200 term, 1200 kill");
}

#[test]
fn the_command_line_says_all() {
    let args = Args {
        parent: Pid::from_raw(7),
        grace: Duration::from_millis(1500),
        limits: Limits {
            open_files: Some(64),
            processes: None,
            memory_bytes: Some(1 << 30),
            data_bytes: Some(1 << 29),
            file_bytes: Some(1 << 28),
        },
        program: "x".into(),
        args: vec!["--".into(), "--limit".into(), "".into()],
    };
    let line = args.to_command_line();
    let parsed = Args::parse(line.clone()).unwrap();
    assert_eq!(format!("{parsed:?}"), format!("{args:?}"), "{line:?}");
}

#[test]
fn the_dashes_may_be_left_out() {
    // As clap does, when flags of `toolgate` stand before `shim`.
    let parsed = Args::parse(["--grace", "5", "sh", "-c", "--"].map(OsString::from)).unwrap();
    assert_eq!((parsed.program, parsed.args), ("sh".into(), vec!["-c".into(), "--".into()]));
}

#[test]
fn wrong_usage_is_named() {
    let check = |line: &str, expected: &str| {
        let Usage(told) = Args::parse(line.split_whitespace().map(OsString::from)).unwrap_err();
        assert_eq!(told, expected);
    };
    check("", "no program is given");
    check("--", "no program is given");
    check("-x", "unknown flag `-x`");
    check("--limit disk=1 -- x", "`disk=1` is not a value of `--limit`");
    check("--parent 0 -- x", "`0` is not a value of `--parent`");
    check("--grace", "`` is not a value of `--grace`");
}
