//! The order of the shutdown stages, and the command line.

use super::*;

const NOTHING: Observation = Observation {
    now: Duration::ZERO,
    grace: STDIN_GRACE,
    ended: false,
    asked_to_end: false,
    hung_up: false,
    orphaned: false,
};

/// Steps the state machine every 10 ms, and compares the stages with their start times.
fn check(facts: Observation, expected: &str) {
    let mut stage = ShutdownStage::Running;
    let mut message = String::new();
    for now in (0..6000).step_by(10) {
        let next = stage.next(Observation { now: Duration::from_millis(now), ..facts });
        if next != stage {
            let name = match next {
                ShutdownStage::Running => "run",
                ShutdownStage::Waiting { .. } => "wait",
                ShutdownStage::Terminating { .. } => "term",
                ShutdownStage::Killing => "kill",
            };
            message += &format!("{now} {name}, ");
        }
        stage = next;
    }
    assert_eq!(message.trim_end_matches(", "), expected, "{facts:?}");
}

#[test]
fn shutdown_stages_follow_in_order() {
    check(NOTHING, "");
    check(Observation { orphaned: true, ..NOTHING }, "");
    check(Observation { hung_up: true, ..NOTHING }, "0 wait, 2000 term, 4000 kill");
    check(Observation { hung_up: true, orphaned: true, ..NOTHING }, "0 wait, 200 term, 1200 kill");
    check(Observation { asked_to_end: true, ..NOTHING }, "0 term, 2000 kill");
    check(Observation { asked_to_end: true, hung_up: true, ..NOTHING }, "0 term, 2000 kill");
    check(Observation { ended: true, ..NOTHING }, "0 term, 500 kill");
    let long = Observation { grace: Duration::from_secs(60), ..NOTHING };
    check(Observation { hung_up: true, ..long }, "0 wait");
    check(Observation { hung_up: true, orphaned: true, ..long }, "0 wait, 200 term, 1200 kill");
}

#[test]
fn the_command_line_round_trips() {
    let args = ShimArgs {
        parent: Pid::from_raw(7),
        grace: Duration::from_millis(1500),
        limits: ProcessLimits {
            open_files: Some(64),
            processes: None,
            memory_bytes: Some(1 << 30),
            data_bytes: Some(1 << 29),
            file_bytes: Some(1 << 28),
        },
        sandbox: Some(SandboxSpec {
            read: vec!["/a b".into(), "--".into()],
            scratch: "/s".into(),
            max_bytes: 5,
            max_entries: 6,
        }),
        file: Some(9),
        program: "x".into(),
        args: vec!["--".into(), "--limit".into(), "".into()],
    };
    let line = args.to_command_line();
    let parsed = ShimArgs::parse(line.clone()).unwrap();
    assert_eq!(format!("{parsed:?}"), format!("{args:?}"), "{line:?}");
}

#[test]
fn the_separator_is_optional() {
    // As clap passes them, if flags of `toolgate` come before `shim`.
    let parsed = ShimArgs::parse(["--grace", "5", "sh", "-c", "--"].map(OsString::from)).unwrap();
    assert_eq!((parsed.program, parsed.args), ("sh".into(), vec!["-c".into(), "--".into()]));
}

#[test]
fn reports_wrong_usage() {
    let check = |line: &str, expected: &str| {
        let UsageError(message) = ShimArgs::parse(line.split_whitespace().map(OsString::from)).unwrap_err();
        assert_eq!(message, expected);
    };
    check("", "no program is given");
    check("--", "no program is given");
    check("-x", "unknown flag `-x`");
    check("--limit disk=1 -- x", "`disk=1` is not a valid value for `--limit`");
    check("--parent 0 -- x", "`0` is not a valid value for `--parent`");
    check("--grace", "`` is not a valid value for `--grace`");
}
