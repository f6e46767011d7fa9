//! Adding, removing and keeping servers at run time, with real child processes of `testkit` under the real shim.
//!
//! The test executable is also its own shim, so it has a `main` function.
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "real processes run in real time")]

#[path = "../../testkit/built.rs"]
mod built;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use built::testkit;
use libtest_mimic::{Arguments, Trial};
use serde_json::json;
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_runtime::{Operation, Runtime};
use toolgate_types::server::{
    ConnectionPolicy, OutputEncoding, StartupMode, StdioTransport, ToolFilter, ToolMode, Transport,
};
use toolgate_types::{Caller, ConfigString, HumanDuration, ServerSpec, ToolLimits, ToolSettings};
use toolgate_upstream::RawJson;
use toolgate_upstream::process::shim;

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough that the call is running when its server is removed.
const LATE_MS: u64 = 1_500;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == "shim") {
        return shim::main(args);
    }
    let test = Trial::test("servers_come_and_go", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(servers_come_and_go());
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code()
}

async fn servers_come_and_go() {
    let (stays, goes, comes) = (server("stays"), server("goes"), server("comes"));
    let runtime = Arc::new(Runtime::new(setup(vec![stays.clone(), goes.clone()])));
    runtime.discover(|_| {}).await.unwrap();
    let stayed = processes("stays");
    assert!(!stayed.is_empty() && !processes("goes").is_empty());
    let keep = {
        let runtime = Arc::clone(&runtime);
        async move { runtime.watch_servers().await }
    };
    let work = async {
        let caller = Caller::new("ann".parse().unwrap(), vec!["*:*".parse().unwrap()]);
        let arguments = json!({ "message": "x", "fault": "late", "after": LATE_MS });
        let call = runtime.execute(&caller, request("goes__echo", &arguments));
        let replace = async {
            // The call is running when its server is removed from the configuration.
            tokio::time::sleep(Duration::from_millis(LATE_MS / 3)).await;
            let limits = ToolLimits { max_instances: NonZeroU32::new(2), ..ToolLimits::default() };
            let settings = ToolSettings { limits, ..ToolSettings::new("echo".parse().unwrap()) };
            runtime.replace(Vec::new(), vec![settings], vec![comes.clone(), stays.clone()], Vec::new()).await;
            assert!(runtime.catalog().resolve("goes__echo").is_none(), "it is gone at once");
            let settled = runtime.catalog().resolve("stays__echo").unwrap().limits.max_instances;
            assert_eq!(settled, NonZeroU32::new(2), "new settings count");
        };
        let (called, ()) = tokio::join!(call, replace);
        assert!(called.result.error.is_none(), "a call ends as it began: {:?}", called.result.error);
        assert!(called.reply.unwrap().as_str().contains("too late"));

        until("the new server's tools are there", || runtime.catalog().resolve("comes__echo").is_some())
            .await;
        until("the old server is stopped", || processes("goes").is_empty()).await;
        assert_eq!(processes("stays"), stayed, "the one that stays is the same process");
        let names: Vec<_> = runtime.servers().into_iter().map(|status| status.name).collect();
        assert_eq!(names, ["comes", "stays"]);

        let called = runtime.execute(&caller, request("comes__echo", &json!({ "message": "hello" }))).await;
        assert!(called.reply.unwrap().as_str().contains("hello"));
        let gone = runtime.execute(&caller, request("goes__echo", &json!({ "message": "hello" }))).await;
        assert!(gone.result.error.is_some());

        // A changed configuration restarts the server.
        let changed = ServerSpec { request_timeout: HumanDuration::from_secs(7), ..stays };
        runtime.replace(Vec::new(), Vec::new(), vec![comes, changed], Vec::new()).await;
        let is_new = || !processes("stays").is_empty() && processes("stays").is_disjoint(&stayed);
        until("it was started anew", is_new).await;
        until("its tools are back", || runtime.catalog().resolve("stays__echo").is_some()).await;
    };
    tokio::select! {
        never = keep => match never {},
        () = work => {}
    }
    runtime.stop().await;
    for name in ["stays", "goes", "comes"] {
        assert!(processes(name).is_empty(), "{name} is left behind");
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn request(tool: &str, arguments: &serde_json::Value) -> Operation {
    Operation::tool(tool.to_owned(), RawJson::from_value(arguments))
}

/// Environment variable that marks the processes of this run.
fn marker(name: &str) -> String {
    format!("TOOLGATE_MARK_{}={name}", std::process::id())
}

/// The processes of a server.
fn processes(name: &str) -> BTreeSet<PathBuf> {
    let marker = marker(name);
    let is_ours = |path: &PathBuf| {
        let environment = fs_err::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
    };
    let entries = fs_err::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    entries.filter(is_ours).collect()
}

fn server(name: &str) -> ServerSpec {
    let mark = marker(name);
    let (variable, value) = mark.split_once('=').unwrap();
    ServerSpec {
        name: name.parse().unwrap(),
        description: None,
        transport: Transport::Stdio(StdioTransport {
            command: ConfigString::plain(testkit().to_str().unwrap()),
            args: vec![ConfigString::plain("faulty")],
            env: BTreeMap::from([(variable.to_owned(), Some(ConfigString::plain(value)))]),
            cwd: std::env::temp_dir(),
            encoding: OutputEncoding::Utf8,
            fallback: None,
        }),
        startup: StartupMode::Lazy,
        mode: ToolMode::Dynamic { default_tool_config: ToolLimits::default() },
        tools: ToolFilter::default(),
        trusted: false,
        approved: true,
        strict_output: false,
        load_tools: true,
        load_prompts: false,
        prompts: None,
        timeout: HumanDuration::from_secs(60),
        request_timeout: HumanDuration::from_secs(60),
        connections: ConnectionPolicy::default(),
        config: None,
        auth: toolgate_types::server::AuthPolicy::default(),
    }
}

fn setup(servers: Vec<ServerSpec>) -> RuntimeSetup {
    RuntimeSetup { servers, ..RuntimeSetup::default() }
}
