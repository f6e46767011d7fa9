//! `cargo xtask bench console`: the web console with 10,000 tools and a long log, in a real browser, and beside a load.
//!
//! The benchmark `index` of `toolgate-audit` writes the log and measures its queries. Consoles beside the load are clients
//! that behave like the script of a page: a browser for each would take the processor from the load.
//! Invariant: rounds with and without consoles take turns, so that a busy machine affects both alike.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use self::browser::Browser;
use self::client::Client;
use super::contender::{self, BenchSetup, Contender, GatewayProject, KEY};
use super::{COUNTS_PROFILE, GatewayBinaries, GatewayOptions, LoadCase, detect_cpus, run_load_with_tool};
use crate::bench::catalog::resident_mib;
use crate::bench::{TICK, fields_after_name, load_average, verdict};
use crate::metadata::Metadata;
use crate::program;
use crate::scratch::ScratchDir;

mod browser;
mod client;

const TOOLS: usize = 10_000;
/// Records of the log that the pages show, and of the one for single calls.
const RECORDS: u64 = 1_000_000;
const MANY_RECORDS: u64 = 10_000_000;
const REQUESTS: usize = 40;
const CONSOLES: usize = 20;
const ROUNDS: usize = 6;
/// Calls whose line is awaited on the screen.
const LINES: usize = 60;
/// Time between two loads of a page that a busy gateway makes stale, as in `console.js`.
const BUSY: Duration = Duration::from_secs(2);
/// Time from an event to the page, as in `console.js`.
const SOON: Duration = Duration::from_millis(50);
/// Calls that end between two events and are more than a list shows, as in `console.js`.
const MANY_CALLS: u64 = 50;

/// The bars.
const PAGE_MS: f64 = 50.0;
const QUERY_MS: f64 = 200.0;
const WHOLE_BYTES: u64 = 150_000;
const SENT_BYTES: u64 = 50_000;
const READABLE_MS: f64 = 1_000.0;
const LINE_MS: f64 = 500.0;
const SHARE: f64 = 0.97;
const MEMORY_MIB: f64 = 10.0;
const IDLE_PERCENT: f64 = 1.0;

/// Runs `bench console`. With `--quick`, without the log of ten million records.
pub(in crate::bench) fn run(options: &GatewayOptions) -> anyhow::Result<()> {
    let built = build(options)?;
    let scratch = ScratchDir::new("bench-console")?;
    println!("bench `console`: {}; load average {}", built.profile, loads());
    if !options.quick {
        queries(options)?;
    }
    let cpus = detect_cpus();
    let setup = BenchSetup { built: &built, folder: scratch.path(), cpus, instrument: None };
    let upstream = contender::upstream(&setup)?;
    let project = project(&setup, upstream.port)?;
    let ids = write_log(options, &project)?;
    let start = Instant::now();
    let gateway = project.start(&setup)?;
    let cookie = wait_for_tools(&gateway)?;
    println!("  {TOOLS} tools and {RECORDS} records are ready after {:.1} s", start.elapsed().as_secs_f64());
    pages(&gateway, &cookie, &ids)?;
    in_browser(&gateway)?;
    if let Some(cpus) = cpus {
        // The consoles are part of the load.
        let mut taskset = program::named("taskset");
        taskset.args(["--all-tasks", "--cpu-list", "--pid", &cpus.load().to_string()]);
        taskset.arg(std::process::id().to_string());
        program::stdout(taskset)?;
    }
    beside_a_load(&setup, &gateway)?;
    println!("  load average at the end: {}", loads());
    Ok(())
}

/// Builds the programs, or takes those of `--binary`.
fn build(options: &GatewayOptions) -> anyhow::Result<GatewayBinaries> {
    let profile = if options.is_thin() { COUNTS_PROFILE } else { "release" };
    if let Some(binary) = &options.binary {
        // The servers of the project start in its folder.
        let toolgate = fs::canonicalize(binary).with_context(|| format!("no {}", binary.display()))?;
        let built = super::build(options, profile)?;
        let testkit = fs::canonicalize(&built.testkit).context("there is no `testkit` beside it")?;
        return Ok(GatewayBinaries { toolgate, testkit, ..built });
    }
    super::cargo_build(profile, &["toolgate"])?;
    super::cargo_build(profile, &["testkit"])?;
    let built = Metadata::read(&program::root().join("Cargo.toml"))?.target_directory.join(profile);
    let described = format!("this tree, profile `{profile}`");
    let (toolgate, testkit, results) = (built.join("toolgate"), built.join("testkit"), built.clone());
    Ok(GatewayBinaries { toolgate, testkit, chain: None, profile: described, results })
}

impl GatewayOptions {
    fn is_thin(&self) -> bool {
        self.no_lto || self.binary.is_some()
    }
}

fn loads() -> String {
    load_average().unwrap_or_else(|| "unknown".to_owned())
}

/// A command that runs the benchmark of the log's index.
fn index_bench(options: &GatewayOptions, records: u64) -> std::process::Command {
    let arguments = ["bench", "--quiet", "--package", "toolgate-audit", "--bench", "index"];
    let mut bench = program::cargo(arguments);
    if options.is_thin() {
        bench.args(["--profile", COUNTS_PROFILE]);
    }
    bench.env("LOG_RECORDS", records.to_string());
    bench
}

/// Measures queries of a log with many records.
fn queries(options: &GatewayOptions) -> anyhow::Result<()> {
    println!("  one call, or the rarest filter, in {MANY_RECORDS} records …");
    let mut bench = index_bench(options, MANY_RECORDS);
    bench.env("LOG_INDEX_ONLY", "1");
    let mut worst = 0.0_f64;
    for line in program::stdout(bench)?.lines() {
        println!("  {line}");
        let is_rare = ["the only ", "one call by id", "an id that", "a tool that was never"]
            .iter()
            .any(|name| line.trim().starts_with(name));
        let times = line.split(" ms").filter_map(|part| part.split_whitespace().last()?.parse::<f64>().ok());
        worst = times.filter(|_| is_rare).fold(worst, f64::max);
    }
    println!(
        "    target at most {QUERY_MS} ms, from the disk, too: {worst:.1} ms, {}",
        verdict(worst <= QUERY_MS)
    );
    Ok(())
}

/// Writes a project with many tools of one server, and one server for the load.
fn project(setup: &BenchSetup<'_>, upstream: u16) -> anyhow::Result<GatewayProject> {
    let tool = |n: usize| {
        json!({
            "name": format!("tool_{n}"), "description": format!("Looks up record {n} of the archive and returns it."),
            "inputSchema": { "type": "object", "required": ["id"],
                "properties": { "id": { "type": "string", "description": "The id of the record." } } } })
    };
    let file = setup.folder.join("tools");
    let tools = json!({ "tools": (0..TOOLS).map(tool).collect::<Vec<_>>() });
    fs::write(&file, tools.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    let many = json!({
        "name": "many", "command": setup.built.testkit, "args": ["scripted", file], "mode": "dynamic",
        "default_tool_config": { "max_instances": 4, "timeout": "30s" } });
    let mut config = contender::config(upstream, contender::LogLimit::Whole);
    if let Some(servers) = config["toolbox"]["mcps"].as_array_mut() {
        servers.push(many);
    }
    if let Some(permissions) = config["callers"][0]["permissions"].as_array_mut() {
        permissions.push(json!("*:*"));
    }
    let callers = (0..20).map(|n| json!({ "id": format!("caller{n}"), "permissions": ["many:*"] }));
    if let Some(known) = config["callers"].as_array_mut() {
        known.extend(callers);
    }
    GatewayProject::with_config(setup, "console", &config)
}

/// Writes the log of the project. Returns the ids of some calls.
fn write_log(options: &GatewayOptions, project: &GatewayProject) -> anyhow::Result<Vec<String>> {
    // The folder of the first writer.
    let mut bench = index_bench(options, RECORDS);
    bench.env("LOG_FOLDER", project.folder().join(".toolgate/log/1"));
    Ok(program::stdout(bench)?.split_whitespace().map(str::to_owned).collect())
}

fn wait_for_tools(gateway: &Contender) -> anyhow::Result<String> {
    let mut client = Client::connect(gateway.port())?;
    let cookie = client.log_in(KEY)?;
    let key = format!("X-API-Key: {KEY}");
    let start = Instant::now();
    loop {
        let answer = client.send("GET /v1/servers/many", &[&key], "")?;
        let server: Value = serde_json::from_slice(&answer.body)?;
        if server["tools"] == TOOLS {
            return Ok(cookie);
        }
        anyhow::ensure!(start.elapsed() < Duration::from_secs(120), "the tools do not come: {server}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Measures the time of every page on the server.
fn pages(gateway: &Contender, cookie: &str, ids: &[String]) -> anyhow::Result<()> {
    let (old, new) = (ids.first().context("an id")?, ids.last().context("an id")?);
    let pages = [
        "/".to_owned(),
        "/?since=7d".to_owned(),
        "/servers".to_owned(),
        "/servers/many".to_owned(),
        "/tools".to_owned(),
        "/tools?server=many&cursor=5000".to_owned(),
        "/tools?q=look+up+record+7654".to_owned(),
        "/tools/tool_7654".to_owned(),
        "/executions".to_owned(),
        "/executions?tool=files.tool7&caller=caller3".to_owned(),
        "/executions?tool=rare.tool".to_owned(),
        "/executions?status=error".to_owned(),
        "/executions?slower=60s".to_owned(),
        format!("/executions/{old}"),
        format!("/executions/{new}"),
        "/inbox".to_owned(),
        "/runs".to_owned(),
        "/policy".to_owned(),
        "/policy?caller=caller3&tool=tool_7654".to_owned(),
        "/callers".to_owned(),
        "/callers/caller3".to_owned(),
        "/connect".to_owned(),
        "/search?q=record".to_owned(),
        format!("/search?q={old}"),
    ];
    let mut client = Client::connect(gateway.port())?;
    let mut worst = 0.0_f64;
    println!("  pages on the server, {REQUESTS} requests each:        p50        p95      bytes");
    for page in pages {
        let (mut times, mut bytes) = (Vec::new(), 0);
        // The first request fills caches of the process, and does not count.
        for request in 0..=REQUESTS {
            let answer = client.page(&page, cookie)?;
            bytes = answer.body.len();
            times.extend((request > 0).then(|| millis(answer.took)));
        }
        let (p50, p95) = (quantile(&mut times, 0.5), quantile(&mut times, 0.95));
        worst = worst.max(p95);
        println!("    {page:<48} {p50:>7.1} ms {p95:>7.1} ms {bytes:>8}");
    }
    println!("    target at most {PAGE_MS} ms: {worst:.1} ms, {}", verdict(worst <= PAGE_MS));
    Ok(())
}

/// Measures the first page, and the time from the end of a call to its line.
fn in_browser(gateway: &Contender) -> anyhow::Result<()> {
    let origin = format!("http://127.0.0.1:{}", gateway.port());
    let mut browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => {
            println!("  not measured in a browser: {why:#}");
            return Ok(());
        }
    };
    browser.open(&format!("{origin}/login"))?;
    browser.evaluate(&format!(
        "document.querySelector('#key').value = {}; document.querySelector('#key').form.submit()",
        json!(KEY)
    ))?;
    browser.wait("location.pathname === '/' && document.readyState === 'complete'")?;
    browser.call("Network.setCacheDisabled", json!({ "cacheDisabled": true }))?;
    browser.call("Emulation.setCPUThrottlingRate", json!({ "rate": 4 }))?;
    let mut readable = Vec::new();
    for _ in 0..7 {
        browser.open("about:blank")?;
        browser.open(&format!("{origin}/"))?;
        browser.wait("performance.getEntriesByName('first-contentful-paint').length")?;
        let painted = browser.evaluate(
            "new Promise((done) => new PerformanceObserver((list) => done(Math.max(list.getEntries().at(-1).startTime, \
             performance.getEntriesByName('first-contentful-paint')[0].startTime)))\
             .observe({ type: 'largest-contentful-paint', buffered: true }))",
        )?;
        readable.push(painted.as_f64().context("a time")?);
    }
    browser.call("Emulation.setCPUThrottlingRate", json!({ "rate": 1 }))?;
    let sizes = browser.evaluate(
        "(() => { const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]; \
         const sum = (key) => all.reduce((sum, one) => sum + one[key], 0); \
         return { sent: sum('encodedBodySize'), whole: sum('decodedBodySize'), files: all.length }; })()",
    )?;
    let size = |name: &str| sizes[name].as_u64().unwrap_or(u64::MAX);
    let (whole, sent) = (size("whole"), size("sent"));
    println!(
        "  the first page and its {} files: {whole} bytes, target at most {WHOLE_BYTES}: {}; {sent} sent, target at most \
         {SENT_BYTES}: {}",
        size("files") - 1,
        verdict(whole <= WHOLE_BYTES),
        verdict(sent <= SENT_BYTES)
    );
    let (median, worst) = (quantile(&mut readable, 0.5), quantile(&mut readable, 1.0));
    println!(
        "  readable with the processor slowed four times: median {median:.0} ms, worst of 7 {worst:.0} ms, target at most \
         {READABLE_MS} ms: {}",
        verdict(worst <= READABLE_MS)
    );
    lines(gateway, &mut browser, &origin)
}

/// Measures the time from the end of a call to its line on the screen.
fn lines(gateway: &Contender, browser: &mut Browser, origin: &str) -> anyhow::Result<()> {
    browser.open(&format!("{origin}/executions"))?;
    browser.evaluate(
        "globalThis.seen = {}; new MutationObserver(() => requestAnimationFrame(() => { \
         const row = document.querySelector('#executions .calls tbody tr')?.textContent ?? ''; \
         const found = /line-\\d+/.exec(row); if (found) globalThis.seen[found[0]] ??= Date.now(); })) \
         .observe(document.body, { subtree: true, childList: true }); null",
    )?;
    // The tab has the stream of events.
    browser.wait("navigator.locks.query().then((locks) => locks.held.length === 1)")?;
    thread::sleep(Duration::from_secs(1));
    let mut client = Client::connect(gateway.port())?;
    let (key, kind) = (format!("X-API-Key: {KEY}"), "Content-Type: application/json");
    let mut times = Vec::new();
    for line in 0..LINES {
        let body = json!({ "arguments": { "query": format!("line-{line}") } }).to_string();
        let answer = client.send("POST /v1/tools/small/call", &[&key, kind], &body)?;
        let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64() * 1e3;
        anyhow::ensure!(answer.status == 200, "a call failed: {}", String::from_utf8_lossy(&answer.body));
        browser.wait(&format!("globalThis.seen['line-{line}']"))?;
        let seen = browser.evaluate(&format!("globalThis.seen['line-{line}']"))?;
        times.push(seen.as_f64().context("a time")? - ended);
        // Calls fall on all moments between two looks of the gateway.
        thread::sleep(Duration::from_millis((line as u64 * 137) % 500));
    }
    let (p50, p95) = (quantile(&mut times, 0.5), quantile(&mut times, 0.95));
    println!(
        "  end of a call to its line on the screen, {LINES} calls: p50 {p50:.0} ms, p95 {p95:.0} ms, target at most {LINE_MS} \
         ms: {}",
        verdict(p95 <= LINE_MS)
    );
    Ok(())
}

/// Measures the cost of open consoles: calls per second, memory, and CPU time without calls.
fn beside_a_load(setup: &BenchSetup<'_>, gateway: &Contender) -> anyhow::Result<()> {
    let pid = gateway.pids().into_iter().next().context("the gateway runs")?;
    let process: u32 = pid.parse()?;
    let memory = || resident_mib(process).context("no /proc on this system");
    load(setup, gateway)?;
    let idle_without = idle_percent(process)?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(load(setup, gateway)?);
        let consoles = Consoles::open(gateway.port())?;
        with.push(load(setup, gateway)?);
        consoles.close()?;
    }
    let (one, other) = (quantile(&mut without, 0.5), quantile(&mut with, 0.5));
    println!(
        "  {CONSOLES} consoles beside a load of 16 connections, {ROUNDS} rounds: {other:.0} calls/s, without {one:.0}: \
         {:.3} ×, target at least {SHARE} ×: {}",
        other / one,
        verdict(other / one >= SHARE)
    );
    // The new records are indexed, and freed memory is given back.
    thread::sleep(Duration::from_secs(5));
    let before = memory()?;
    let consoles = Consoles::open(gateway.port())?;
    thread::sleep(Duration::from_secs(5));
    let (idle, after) = (idle_percent(process)?, memory()?);
    let pages = consoles.pages.load(Ordering::Relaxed);
    consoles.close()?;
    println!(
        "  memory with {CONSOLES} consoles: {after:.1} MiB, without {before:.1}: + {:.1} MiB, target at most + {MEMORY_MIB}: {}",
        after - before,
        verdict(after - before <= MEMORY_MIB)
    );
    println!(
        "  CPU without calls: {idle:.2} % of a core ({idle_without:.2} % without consoles; {pages} pages), target at most \
         {IDLE_PERCENT} %: {}",
        verdict(idle <= IDLE_PERCENT)
    );
    Ok(())
}

/// Runs the load. Returns calls per second.
fn load(setup: &BenchSetup<'_>, gateway: &Contender) -> anyhow::Result<f64> {
    let result = run_load_with_tool(setup, LoadCase::new("small", "small", 16, 2_000), "small", gateway)?;
    anyhow::ensure!(result.errors == 0, "calls failed: {}", result.error.unwrap_or_default());
    Ok(result.calls as f64 / result.seconds)
}

/// CPU time of a process in ten seconds, in per cent of a core.
fn idle_percent(process: u32) -> anyhow::Result<f64> {
    let used = || -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields = fields_after_name(&stat).context("the format of /proc is unknown")?;
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks * TICK.as_secs_f64())
    };
    let (start, before) = (Instant::now(), used()?);
    thread::sleep(Duration::from_secs(10));
    Ok((used()? - before) / start.elapsed().as_secs_f64() * 100.0)
}

/// Open consoles with the list of executions: each loads its page again when an event makes it stale.
struct Consoles {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<anyhow::Result<()>>>,
    /// Pages that were loaded again.
    pages: Arc<AtomicU64>,
}

impl Consoles {
    fn open(port: u16) -> anyhow::Result<Self> {
        let (stop, pages) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut consoles = Self { stop, threads: Vec::new(), pages };
        for _ in 0..CONSOLES {
            let mut client = Client::connect(port)?;
            let cookie = client.log_in(KEY)?;
            client.page("/executions", &cookie)?;
            let mut events = Client::connect(port)?;
            events.begin("GET /live", &[&cookie, "Accept: text/event-stream"], "")?;
            let (status, _) = events.head()?;
            anyhow::ensure!(status == 200, "the stream of events has status {status}");
            let (stop, pages) = (Arc::clone(&consoles.stop), Arc::clone(&consoles.pages));
            consoles.threads.push(thread::spawn(move || follow(&mut client, events, &cookie, &stop, &pages)));
        }
        Ok(consoles)
    }

    fn close(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => bail!("a console has panicked"),
            }
        }
        Ok(())
    }
}

/// Behaves like the script of a page until `stop` is set.
fn follow(
    client: &mut Client,
    events: Client,
    cookie: &str,
    stop: &AtomicBool,
    pages: &AtomicU64,
) -> anyhow::Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut events = events;
        // Ends with the gateway, or with its receiver.
        while let Ok(Some(piece)) = events.chunk() {
            if sender.send(piece).is_err() {
                return;
            }
        }
    });
    let (mut last_page, mut last_ended, mut due) = (Instant::now(), None, None);
    while !stop.load(Ordering::Relaxed) {
        if let Ok(piece) = receiver.recv_timeout(Duration::from_millis(20)) {
            for ended in ended_calls(&piece) {
                let is_busy = last_ended.is_some_and(|last: u64| ended.saturating_sub(last) > MANY_CALLS);
                last_ended = Some(ended);
                let wait = if is_busy { BUSY } else { SOON };
                due = due.or(Some((last_page + wait).max(Instant::now() + SOON)));
            }
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            client.page("/executions", cookie)?;
            pages.fetch_add(1, Ordering::Relaxed);
            (last_page, due) = (Instant::now(), None);
        }
    }
    Ok(())
}

/// Numbers of ended calls in the events `executions` of a piece of the stream.
fn ended_calls(piece: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(piece);
    let events = text.split("\n\n").filter(|event| event.contains("event: executions"));
    let data = events.filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")));
    data.filter_map(|data| serde_json::from_str::<Value>(data).ok()?["ended"].as_u64()).collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the smallest value that is not below this share of all.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share).ceil() as usize;
    values.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[test]
fn takes_quantiles() {
    let mut values: Vec<f64> = (1..=40).rev().map(f64::from).collect();
    assert_eq!([0.5, 0.95, 1.0].map(|share| quantile(&mut values, share)), [20.0, 38.0, 40.0]);
}

#[test]
fn reads_the_events_of_calls() {
    let piece =
        b"id: 1-2\nevent: executions\ndata: {\"ended\":7}\n\nid: 1-3\nevent: tool\ndata: {\"ended\":9}\n\n";
    assert_eq!(ended_calls(piece), [7]);
}
