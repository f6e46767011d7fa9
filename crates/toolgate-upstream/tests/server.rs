//! One server over many calls: real `testkit` children, under the real shim.
//!
//! The test executable is also its own shim, so it has a `main` function.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "tests that report times")]
#![expect(clippy::disallowed_methods, reason = "real processes run in real time")]

#[path = "../../testkit/built.rs"]
mod built;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use built::testkit;
use futures_util::future::join_all;
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use toolgate_types::server::{
    ConnectionPolicy, OutputEncoding, StartupMode, StdioTransport, ToolFilter, ToolMode, Transport,
};
use toolgate_types::{ConfigString, HumanDuration, ServerSpec};
use toolgate_upstream::connect::ConnectionLimits;
use toolgate_upstream::process::shim;
use toolgate_upstream::{
    ClientFeatures, LoginOptions, NoResponder, Params, RequestError, Server, ServerState,
};

/// An answer that takes this long hangs.
const BOUND: Duration = Duration::from_secs(20);

type TestFunction = (&'static str, fn(&Runtime));

const TESTS: &[TestFunction] = &[
    ("large_answers_to_many_calls_at_once", large_answers_to_many_calls_at_once),
    ("a_dead_server_is_restarted", a_dead_server_is_restarted),
    ("late_answers_are_dropped", late_answers_are_dropped),
    ("noise_is_counted_and_skipped", noise_is_counted_and_skipped),
    ("an_open_circuit_breaker_fails_fast", an_open_circuit_breaker_fails_fast),
];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == "shim") {
        return shim::main(args);
    }
    let mut arguments = Arguments::from_args();
    // The tests measure times, so they do not share the processors unless `--test-threads` says so.
    arguments.test_threads.get_or_insert(1);
    let tests = TESTS.iter().map(|&(name, test)| {
        Trial::test(name, move || {
            test(&tokio::runtime::Builder::new_multi_thread().enable_all().build()?);
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, tests.collect()).exit_code()
}

fn server(mode: &str) -> Server {
    let spec = ServerSpec {
        name: "s".parse().unwrap(),
        description: None,
        transport: Transport::Stdio(StdioTransport {
            command: ConfigString::plain(testkit().to_str().unwrap()),
            args: vec![ConfigString::plain(mode)],
            env: BTreeMap::new(),
            cwd: std::env::temp_dir(),
            encoding: OutputEncoding::Utf8,
            fallback: None,
        }),
        startup: StartupMode::Lazy,
        mode: ToolMode::Strict,
        tools: ToolFilter::default(),
        trusted: false,
        approved: true,
        strict_output: false,
        load_tools: true,
        load_prompts: true,
        prompts: None,
        timeout: HumanDuration::from_secs(2),
        request_timeout: HumanDuration::from_secs(60),
        connections: ConnectionPolicy::default(),
        config: None,
        auth: toolgate_types::server::AuthPolicy::default(),
    };
    Server::new(
        spec,
        ConnectionLimits::default(),
        &LoginOptions::default(),
        ClientFeatures::Responder(Arc::new(NoResponder)),
    )
}

/// The text of the answer.
async fn call(server: &Server, arguments: Value, within: Duration) -> Result<String, RequestError> {
    let connection = server.connection().await.unwrap();
    let params = Params::none().with("name", &"echo").with("arguments", &arguments);
    let answer = connection.session.request("tools/call", params, within).await?;
    let answer: Value = answer.parse().unwrap();
    Ok(answer["content"][0]["text"].as_str().unwrap_or_default().to_owned())
}

/// The server reads the next request only after writing its answer, which is larger than a pipe buffer.
fn large_answers_to_many_calls_at_once(runtime: &Runtime) {
    runtime.block_on(async {
        let server = server("faulty");
        let start = Instant::now();
        let calls = (0..200).map(|_| call(&server, json!({ "fault": "large" }), BOUND));
        for answer in join_all(calls).await {
            assert_eq!(answer.unwrap().len(), 200_000);
        }
        let took = start.elapsed();
        println!("200 answers of 200 kB in {took:?}");
        assert!(took < BOUND, "{took:?}");
        server.stop().await;
    });
}

fn a_dead_server_is_restarted(runtime: &Runtime) {
    runtime.block_on(async {
        let server = server("faulty");
        for (fault, how) in
            [("exit", "exited with code 3; it wrote: boom"), ("crash", "was killed by signal 11")]
        {
            assert_eq!(call(&server, json!({ "message": "before" }), BOUND).await.unwrap(), "before");
            let start = Instant::now();
            let error = call(&server, json!({ "message": "boom", "fault": fault }), BOUND).await.unwrap_err();
            let elapsed = start.elapsed();
            assert!(matches!(error, RequestError::Link(_)), "{error}");
            let mut states = server.watch_state();
            let down = |state: &ServerState| matches!(state, ServerState::Down { reason, .. } if reason.contains(how));
            tokio::time::timeout(BOUND, states.wait_for(down)).await.unwrap().unwrap();
            let start = Instant::now();
            assert_eq!(call(&server, json!({ "message": "after" }), BOUND).await.unwrap(), "after");
            println!("{fault}: error after {elapsed:?}, answered again after {:?}", start.elapsed());
            assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        }
        server.stop().await;
    });
}

fn late_answers_are_dropped(runtime: &Runtime) {
    runtime.block_on(async {
        let server = server("faulty");
        let soon = Duration::from_millis(300);
        assert_eq!(call(&server, json!({ "message": "first" }), BOUND).await.unwrap(), "first");
        for fault in ["late", "next-id", "text-id"] {
            let start = Instant::now();
            let error =
                call(&server, json!({ "fault": fault, "after": 600, "message": "wrong" }), soon).await;
            assert!(matches!(error, Err(RequestError::TimedOut(_))), "{fault}: {error:?}");
            println!("{fault}: given up {:?} late", start.elapsed().saturating_sub(soon));
            // The next request: some faulty answers used its id.
            assert_eq!(call(&server, json!({ "message": fault }), BOUND).await.unwrap(), fault);
        }
        let connection = server.connection().await.unwrap();
        let start = Instant::now();
        while connection.session.violations() < 3 {
            assert!(start.elapsed() < BOUND, "{} answers were counted", connection.session.violations());
            tokio::task::yield_now().await;
        }
        assert_eq!(
            call(&server, json!({ "fault": "twice", "message": "mine" }), BOUND).await.unwrap(),
            "mine"
        );
        drop(connection);
        server.stop().await;
    });
}

fn noise_is_counted_and_skipped(runtime: &Runtime) {
    runtime.block_on(async {
        let server = server("noisy");
        for n in 0..10 {
            assert_eq!(call(&server, json!({ "n": n }), BOUND).await.unwrap(), json!({ "n": n }).to_string());
        }
        assert!(server.connection().await.unwrap().session.violations() >= 40);
        server.stop().await;
    });
}

fn an_open_circuit_breaker_fails_fast(runtime: &Runtime) {
    runtime.block_on(async {
        let server = server("silent");
        let start = Instant::now();
        server.connection().await.err().expect("it never answers");
        let first = start.elapsed();
        let start = Instant::now();
        server.connection().await.err().expect("it is known to be down");
        println!("given up after {first:?}, then fail-fast after {:?}", start.elapsed());
        assert!(first >= Duration::from_secs(2) && first < Duration::from_secs(10), "{first:?}");
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
        server.stop().await;
    });
}
