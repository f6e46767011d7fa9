//! CPU time of a query at 100, 1,000 and 10,000 tools, and of building and updating an index.
//!
//! The tools are random mixtures of those in `eval/tools.json`, with a fixed seed; the queries are those of
//! `eval/gold.jsonl`. `cargo xtask bench search` runs it.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use toolgate_search::eval::{GoldLine, parse_catalogs};
use toolgate_search::{ToolEntry, ToolIndex};

/// Queries per measurement.
const QUERIES: usize = 496;
/// Updates per measurement.
const CHANGES: usize = 200;

#[expect(clippy::print_stdout, reason = "the output of the benchmark")]
fn main() {
    let first = time(|| drop(ToolIndex::default().choose("read a file")));
    println!("first query of a process (the model is read): {first:.1?}");
    let (tools, queries) = read();
    for count in [100, 1_000, 10_000] {
        let entries = mix_tools(&tools, count);
        let mut index = ToolIndex::default();
        let built = time(|| index = ToolIndex::new(entries.iter().cloned()));
        let mut search: Vec<Duration> =
            queries.iter().map(|query| time(|| drop(black_box(index.search(query, 5))))).collect();
        let mut choose: Vec<Duration> =
            queries.iter().map(|query| time(|| drop(black_box(index.choose(query))))).collect();
        let changed = entries.iter().cycle().step_by(7).take(CHANGES);
        let mut change: Vec<Duration> = changed
            .map(|entry| {
                let entry =
                    ToolEntry { description: format!("{} Changed.", entry.description), ..entry.clone() };
                let mut entry = Some(entry);
                time(|| index.put(entry.take().expect("it is put once")))
            })
            .collect();
        println!(
            "{count} tools: search {}, choose {}, built in {built:.1?}, one changed {}",
            format_times(&mut search),
            format_times(&mut choose),
            format_times(&mut change),
        );
    }
}

/// Formats the median and the 99th percentile.
fn format_times(times: &mut [Duration]) -> String {
    times.sort_unstable();
    format!("{:.1?} (p99 {:.1?})", times[times.len() / 2], times[times.len() * 99 / 100])
}

fn read() -> (Vec<ToolEntry>, Vec<String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../eval");
    let text = |name: &str| fs_err::read_to_string(folder.join(name)).expect("it is in the repository");
    let tools: Value = serde_json::from_str(&text("tools.json")).expect("it is JSON");
    let tools = parse_catalogs(&tools).expect("it holds catalogs").into_values().flatten().collect();
    let gold = text("gold.jsonl");
    let lines =
        gold.lines().map(|line| serde_json::from_str::<GoldLine>(line).expect("it is a line of gold"));
    (tools, lines.take(QUERIES).map(|line| line.query).collect())
}

/// Returns `count` mixtures of the real tools: each with the name of one, the description of another and the parameters
/// of a third.
fn mix_tools(tools: &[ToolEntry], count: usize) -> Vec<ToolEntry> {
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        &tools[(state >> 33) as usize % tools.len()]
    };
    let mixed = |at: usize| {
        let (name, other, third) = (draw(), draw(), draw());
        ToolEntry {
            name: format!("{}_{at}", name.name),
            parameters: third.parameters.clone(),
            ..other.clone()
        }
    };
    (0..count).map(mixed).collect()
}

fn time(mut work: impl FnMut()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
    };
    let before = now();
    work();
    now() - before
}
