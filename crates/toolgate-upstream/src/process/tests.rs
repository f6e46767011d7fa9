//! Tests that need no process. The others are in `tests/process.rs`.

use super::*;

#[test]
fn displays_exit_statuses() {
    let check = |raw: i32, expected: &str| {
        assert_eq!(ChildExit::from_shim_status(ExitStatus::from_raw(raw)).to_string(), expected);
    };
    check(0, "exited with code 0");
    check(3 << 8, "exited with code 3");
    check(127 << 8, "exited with code 127");
    check((128 + 11) << 8, "was killed by signal 11 (SIGSEGV)");
    check((128 + 15) << 8, "was killed by signal 15 (SIGTERM)");
    check(255 << 8, "exited with code 255");
    check(9, "was killed by signal 9 (SIGKILL)");
    assert_eq!(ChildExit::Signal(60).to_string(), "was killed by signal 60");
    assert_eq!(ChildExit::Unknown.to_string(), "ended with unknown status");
}

#[test]
fn explains_a_missing_program() {
    let check = |program: &str, message: &str, hint: &str| {
        let path = OsString::from("/nowhere:also-nowhere");
        let error = resolve(&ConfigString::plain(program), Some(&path), Path::new("/")).unwrap_err();
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
        "relative paths start at the server's working folder",
    );
    check("/etc/passwd", "`/etc/passwd` is not executable", "make it executable with `chmod +x /etc/passwd`");
}

#[test]
fn debug_output_hides_secrets() {
    let spec = ChildSpec {
        args: vec![ConfigString::hidden("s3cret")],
        env: BTreeMap::from([("TOKEN".into(), Some(ConfigString::hidden("s3cret")))]),
        ..ChildSpec::new(ConfigString::plain("x"), "/")
    };
    assert!(!format!("{spec:?}").contains("s3cret"));
}

#[test]
fn the_child_environment_overrides_inherited_variables() {
    let spec = ChildSpec {
        env: BTreeMap::from([
            ("PATH".into(), Some(ConfigString::plain("/p"))),
            ("HOME".into(), None),
            ("X".into(), Some(ConfigString::plain("1"))),
        ]),
        ..ChildSpec::new(ConfigString::plain("x"), "/")
    };
    let all = spec.environment();
    assert_eq!(all.get(OsStr::new("PATH")), Some(&"/p".into()));
    assert_eq!(all.get(OsStr::new("X")), Some(&"1".into()));
    assert!(!all.contains_key(OsStr::new("HOME")));
    let is_expected = |name: &OsString| {
        name == "X"
            || INHERITED.iter().any(|known| name == known)
            || name.to_str().is_some_and(is_network_variable)
    };
    assert!(all.keys().all(is_expected), "{all:?}");
    let without = ChildSpec { inherits_network: false, ..spec };
    assert!(
        without.environment().keys().all(|name| name == "X" || INHERITED.iter().any(|known| name == known))
    );
}

#[test]
fn passwords_of_registries_stay_here() {
    let given = |name: &str, value: &str| {
        let (_, value) = network_variable((name.into(), value.into())).unwrap();
        value.into_string().unwrap()
    };
    assert_eq!(
        given("UV_INDEX_URL", "https://ann:s3cret@pypi.example/simple"),
        "https://pypi.example/simple"
    );
    let two = "a=https://ann:p@ss@one.example/x@y https://two.example";
    assert_eq!(given("UV_INDEX", two), "a=https://one.example/x@y https://two.example");
    assert_eq!(given("npm_config_registry", "http://token@r.example"), "http://r.example");
    for proxy in ["HTTPS_PROXY", "npm_config_https_proxy", "PIP_PROXY"] {
        assert_eq!(given(proxy, "http://ann:s3cret@proxy:3128"), "http://ann:s3cret@proxy:3128");
    }
}

#[test]
fn credentials_are_no_network_variables() {
    for name in [
        "HTTPS_PROXY",
        "no_proxy",
        "SSL_CERT_DIR",
        "UV_INDEX_URL",
        "PIP_CERT",
        "npm_config_registry",
        "NPM_CONFIG_CAFILE",
        "UV_KEYRING_PROVIDER",
    ] {
        assert!(is_network_variable(name), "{name}");
    }
    for name in [
        "UV_PUBLISH_TOKEN",
        "UV_INDEX_X_PASSWORD",
        "npm_config__authToken",
        "npm_config_//r/:_authToken",
        "npm_config__auth",
        "npm_config_key",
        "NPM_CONFIG_OTP",
        "TOOLGATE_API_KEY",
        "PATH",
        "AWS_CA_BUNDLE",
    ] {
        assert!(!is_network_variable(name), "{name}");
    }
}
