//! The files in `deploy/` and the pages about them, read by the programs that they are for.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value as Json, json};

use super::docs::{read, root};
use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::program::Program;
use crate::support::third_party::{node, own, peers};
use crate::support::typed_page::{block, free_port};

/// Runs a program that has to succeed; returns its stdout.
fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    // systemd only warns of keys that it does not know.
    assert!(status.success() && stderr.is_empty(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// The unit of the package and the drop-in of the page.
#[test]
#[ignore = "needs systemd"]
#[expect(clippy::disallowed_methods, reason = "systemd is the judge of its files")]
fn systemd_knows_every_key() {
    let program = Program::new(&[]);
    let unit = read("deploy/toolgate.service");
    let binary = "/usr/local/bin/toolgate";
    assert!(unit.contains(binary));
    program.write("toolgate.service", unit.replace(binary, env!("CARGO_BIN_EXE_toolgate")));
    program.write("toolgate.service.d/page.conf", block(&read("docs/deploy.md"), "ini"));
    let verify = |expected: bool| {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no"]).arg(program.path("toolgate.service"));
        let output = command.output().expect("`systemd-analyze` is installed");
        let is_silent = output.status.success() && output.stderr.is_empty();
        assert_eq!(is_silent, expected, "{}", String::from_utf8_lossy(&output.stderr));
    };
    verify(true);
    program.write("toolgate.service.d/wrong.conf", "[Service]\nReadWritePath=/srv\n");
    verify(false);
}

#[test]
fn the_image_and_its_users_agree() {
    let (image, manifest) = (read("deploy/Containerfile"), read("Cargo.toml"));
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
    let version = version.trim_matches('"');
    assert!(image.contains(&format!("library/rust:{version}-")), "{version}");
    assert!(image.contains(&format!("RUSTUP_TOOLCHAIN={version}.0")), "{version}");
    assert!(image.contains("COPY . .") && read(".dockerignore").lines().any(|line| line == "target"));
    let (compose, kubernetes) = (read("deploy/compose.yaml"), read("deploy/kubernetes.yaml"));
    for text in ["EXPOSE 7332", "0.0.0.0:7332", "USER 65532:65532", "--owner 65532", "WORKDIR /project"] {
        assert!(image.contains(text), "{text}");
    }
    for text in ["127.0.0.1:7332:7332", "./project:/project", "dockerfile: deploy/Containerfile", "-o 65532"]
    {
        assert!(compose.contains(text), "{text}");
    }
    for text in [
        "containerPort: 7332",
        "mountPath: /project }",
        "runAsUser: 65532",
        "path: /healthz",
        "path: /readyz",
    ] {
        assert!(kubernetes.contains(text), "{text}");
    }
}

/// The types that Grafana publishes for boards know every key, and every value of an enumeration.
#[test]
#[ignore = "needs the packages that `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "Grafana's types are the judge of the board")]
fn grafana_knows_every_key_of_the_board() {
    let program = Program::new(&[]);
    let modules = peers().join("npm/node_modules");
    let check = |board: &Path| {
        let source = program.path("board.ts");
        let types = modules.join("@grafana/schema/dist/types/raw");
        let mut write = Command::new(node(&peers()));
        succeed(write.arg(own("grafana_board.mjs")).args([board, types.as_path(), source.as_path()]));
        let mut compile = Command::new(node(&peers()));
        compile.arg(modules.join("typescript/bin/tsc")).args(["--noEmit", "--strict", "--skipLibCheck"]);
        compile.args(["--module", "preserve", "--moduleResolution", "bundler", "--target", "es2022"]);
        let output = compile.arg(&source).output().expect("TypeScript is installed");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (is_valid, problems) = check(&root().join("deploy/grafana.json"));
    assert!(is_valid, "{problems}");
    program.write("wrong.json", read("deploy/grafana.json").replace("\"colorMode\"", "\"colourMode\""));
    assert!(!check(&program.path("wrong.json")).0, "the types let an unknown key pass");
}

/// Expressions of the board, with values for its variables.
fn expressions(board: &Json) -> BTreeSet<String> {
    let panels = board["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let text = |target: &Json| target["expr"].as_str().expect("an expression").to_owned();
    let fill =
        |text: String| text.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$server", ".*");
    targets.map(text).map(fill).collect()
}

/// Prometheus scrapes a gateway with the job, loads the alerts, and evaluates every expression of the board.
#[test]
#[ignore = "needs the programs that `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "Prometheus is the other side of the test")]
fn prometheus_scrapes_a_gateway_for_the_board() {
    let callers = json!([
        { "id": "owner", "permissions": ["*:*"] },
        { "id": "prometheus", "permissions": ["metrics:read"], "api_key": "the-key-of-prometheus-is-long" },
    ]);
    let gateway = Gateway::start(&json!({ "callers": callers }));
    assert_eq!(gateway.call(OWNER, "echo", &json!({})).status, 200);

    let program = Program::new(&[
        ("key", "the-key-of-prometheus-is-long\n"),
        ("alerts.yml", &read("deploy/alerts.yml")),
    ]);
    let job = read("deploy/prometheus.yml");
    let job = job.replace("127.0.0.1:7332", &format!("127.0.0.1:{}", gateway.port));
    let job = job.replace("/etc/prometheus/toolgate.key", program.path("key").to_str().expect("UTF-8"));
    program.write(
        "prometheus.yml",
        format!("global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n{job}"),
    );
    let bin = peers().join("debian/usr/bin");
    succeed(Command::new(bin.join("promtool")).args(["check", "config"]).arg(program.path("prometheus.yml")));

    let port = free_port();
    let mut command = Command::new(bin.join("prometheus"));
    command.current_dir(&program.project).arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    let _prometheus = program.start_command(command);
    let query = |expression: &str| -> Json {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--max-time",
            "60",
            "--get",
            "--data-urlencode",
            &format!("query={expression}"),
        ]);
        let output =
            curl.arg(format!("http://127.0.0.1:{port}/api/v1/query")).output().expect("`curl` is installed");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    let has_value = |expression: &str| query(expression)["data"]["result"].get(0).is_some();
    wait_until("the first scrape", || has_value(r#"up{job="toolgate"} == 1"#));
    wait_until("rates of calls", || {
        assert_eq!(gateway.call(OWNER, "echo", &json!({})).status, 200);
        has_value("sum(rate(toolgate_tool_executions_total[1m])) > 0")
    });
    let board: Json = serde_json::from_str(&read("deploy/grafana.json")).expect("JSON");
    let expressions = expressions(&board);
    assert!(expressions.len() > 10, "{expressions:?}");
    for expression in &expressions {
        let answer = query(expression);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        // No call failed or was answered from memory, and the disk works.
        let is_quiet = ["error", "cache_hits", "log_errors"].iter().any(|name| expression.contains(name));
        assert!(is_quiet || has_value(expression), "`{expression}` has no value");
    }
    let rules = Command::new("curl").args(["-s", &format!("http://127.0.0.1:{port}/api/v1/rules")]).output();
    let rules: Json = serde_json::from_slice(&rules.expect("`curl` is installed").stdout).expect("JSON");
    let rules = rules["data"]["groups"][0]["rules"].as_array().expect("the alerts");
    assert!(rules.len() > 4 && rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
}
