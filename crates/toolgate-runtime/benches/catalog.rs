//! CPU time to build a catalog and to answer `tools/list`, for the tools of a real server over stdio.
//!
//! `cargo xtask bench catalog` runs it, with the path of `testkit` in `TESTKIT`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use toolgate_runtime::Runtime;
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_types::server::{
    ConnectionPolicy, OutputEncoding, StartupMode, StdioTransport, ToolFilter, ToolMode, Transport,
};
use toolgate_types::{ByteSize, CallLimits, ConfigString, HumanDuration, ServerSpec, ToolLimits};
use toolgate_upstream::process::shim;

/// Answers per measurement.
const ANSWERS: u32 = 1_000;

#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    // The server runs under the shim, and this executable is the shim as well.
    if words.next().is_some_and(|word| word == "shim") {
        return shim::main(words);
    }
    let testkit = std::env::var("TESTKIT").expect("`cargo xtask bench catalog` says where testkit is");
    let folder = tempfile::tempdir().expect("the temporary folder can be written to");
    for tools in [1_000, 10_000] {
        let file = folder.path().join(format!("{tools}.json"));
        fs_err::write(&file, offer(tools).to_string()).expect("the file is new");
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
        tokio.block_on(async {
            let before = cpu();
            let runtime = Runtime::new(setup(&testkit, &file));
            runtime.discover(|_| {}).await.expect("the server is there");
            let discovered = cpu() - before;
            let catalog = runtime.catalog();
            assert_eq!(catalog.tools().count(), tools);
            let before = cpu();
            let bytes = catalog.listing().len();
            let written = cpu() - before;
            let before = cpu();
            for _ in 0..ANSWERS {
                // Front ends send the same shared bytes every time.
                black_box(black_box(&catalog).listing().clone());
            }
            let answer = (cpu() - before) / ANSWERS;
            println!(
                "{tools} tools: discovered and built {discovered:.1?}, list of {bytes} bytes written {written:.1?}, answered {answer:.1?}"
            );
            runtime.stop().await;
        });
    }
    ExitCode::SUCCESS
}

/// Tools of the size that common servers offer.
fn offer(tools: usize) -> Value {
    let tool = |n: usize| {
        let argument = |about: &str| json!({ "type": "string", "description": about });
        json!({
            "name": format!("tool_{n}"),
            "description": format!("Looks up record {n} of the register and returns it with its history, newest first."),
            "inputSchema": { "type": "object", "required": ["id"], "additionalProperties": false, "properties": {
                "id": argument("The id of the record, as the search returns it."),
                "since": argument("Only what happened after this day, as YYYY-MM-DD."),
                "limit": { "type": "integer", "minimum": 1, "maximum": 100, "default": 20 },
            }},
            "annotations": { "readOnlyHint": true },
        })
    };
    json!({ "tools": (0..tools).map(tool).collect::<Vec<_>>() })
}

/// Processor time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn setup(testkit: &str, file: &Path) -> RuntimeSetup {
    let stdio = StdioTransport {
        command: ConfigString::plain(testkit),
        args: vec![ConfigString::plain("scripted"), ConfigString::plain(file.to_str().expect("UTF-8"))],
        env: BTreeMap::new(),
        cwd: std::env::temp_dir(),
        encoding: OutputEncoding::Utf8,
        fallback: None,
    };
    let spec = ServerSpec {
        name: "many".parse().expect("a valid name"),
        description: None,
        transport: Transport::Stdio(stdio),
        startup: StartupMode::Required,
        mode: ToolMode::Dynamic { default_tool_config: ToolLimits::default() },
        tools: ToolFilter::default(),
        trusted: false,
        approved: true,
        strict_output: false,
        load_tools: true,
        load_prompts: true,
        prompts: None,
        timeout: HumanDuration::from_secs(30),
        request_timeout: HumanDuration::from_secs(30),
        connections: ConnectionPolicy::default(),
        config: None,
        auth: toolgate_types::server::AuthPolicy::default(),
    };
    RuntimeSetup {
        servers: vec![spec],
        limits: CallLimits {
            max_concurrent: NonZeroU32::MIN,
            max_output: ByteSize::from_mib(64),
            ..CallLimits::default()
        },
        ..RuntimeSetup::default()
    }
}
