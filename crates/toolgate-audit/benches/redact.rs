//! Cost of redaction per kind of body, in nanoseconds per body and gigabytes per second.
//!
//! `cargo bench -p toolgate-audit --bench redact`. Prints the best of many rounds: other load only adds time.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "this is a benchmark")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use toolgate_audit::redact::Redactor;
use toolgate_types::Secret;

const ROUNDS: usize = 40;
const ROUND: Duration = Duration::from_millis(10);

/// Returns the time of one call, as the best of many rounds.
fn best_time(mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    call();
    let first = started.elapsed().max(Duration::from_nanos(50));
    let calls = (ROUND.as_nanos() / first.as_nanos()).clamp(1, 1 << 20);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(started.elapsed().as_nanos() as f64 / calls as f64);
    }
    best
}

fn bodies() -> Vec<(&'static str, String)> {
    let prose = "Some words of a longer text, as people write them. It has a name: a value, and a link to \
                 https://example.test/a?b=c&d=e. The well-known rest is in snake_case; I think Jane read it.\n";
    let code = "    pub fn admit(&self, caller: &CallerId, now: Instant) -> Result<(), RateLimited> {\n        \
                let Config { calls, window } = self.config; // see rate_limit.rs\n        \
                let cost = window.get() / calls.get();\n";
    let line = "2026-11-17T05:26:55.123Z INFO http_server::worker: request done method=GET path=/v1/items/4711 \
                status=200 took_ms=12 id=0197c2f0-7f3e-7abc-9def-0123456789ab\n";
    let row = serde_json::json!({ "id": 12345, "title": "a short title", "tags": ["a", "b"], "key": "x-1",
        "created_at": "2026-11-16T05:26:55Z", "url": "https://example.test/items/12345", "done": false });
    let image: String = (0..300_000_u32)
        .map(|at| {
            char::from(
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
                    [(at.wrapping_mul(2_654_435_761) >> 26) as usize],
            )
        })
        .collect();
    let text =
        |text: String| serde_json::json!({ "content": [{ "type": "text", "text": text }] }).to_string();
    vec![
        (
            "arguments of 75 bytes",
            r#"{"path":"/srv/docs/readme.md","limit":20,"query":"a few words to look for"}"#.to_owned(),
        ),
        ("answer of 70 bytes", text("a short answer of some words".to_owned())),
        ("prose of 2 KB", text(prose.repeat(11))),
        ("prose of 1 MB", text(prose.repeat(5500))),
        ("code of 1 MB", text(code.repeat(4500))),
        ("log lines of 1 MB", text(line.repeat(6000))),
        ("rows of 1 MB", serde_json::Value::from(vec![row; 7000]).to_string()),
        ("base64 of 300 KB", text(image)),
    ]
}

fn main() {
    let secret = |number: usize| Secret::new(format!("hunter{number}-correct horse/{}", number * 7_919_317));
    for count in [0, 3, 20] {
        let redactor = Redactor::new((0..count).map(secret).collect(), Vec::new());
        for (name, json) in bodies() {
            let time = best_time(|| drop(black_box(redactor.json(black_box(&json)))));
            let rate = json.len() as f64 / time;
            println!("{count:>2} known secrets, {name:<24} {time:>12.0} ns {rate:>8.2} GB/s");
        }
    }
}
