//! A configuration of 500 lines with many mistakes, for the `check` benchmark.
//!
//! Invariant: the same text on every machine and in every run, so that two measurements compare.

use std::fmt::Write;

/// Lines of the file. A large configuration, not an absurd one.
const LINES: usize = 500;

/// Where the tools end and the servers begin.
const TOOL_LINES: usize = 200;

/// Writes the file.
pub(super) fn config() -> String {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut text = String::from("# A file with many mistakes.\ntoolbox:\n");
    let _ = writeln!(text, "  max_concurrent: -4\n  default_timeout: 10 parsecs\n  tools:");
    for number in 0.. {
        if text.lines().count() + 4 > TOOL_LINES {
            break;
        }
        tool(&mut text, &mut random, number);
    }
    let _ = writeln!(text, "  mcps:");
    for number in 0.. {
        if text.lines().count() + 9 > LINES {
            break;
        }
        server(&mut text, &mut random, number);
    }
    for number in text.lines().count()..LINES {
        let _ = writeln!(text, "# Line {}.", number + 1);
    }
    text
}

fn tool(text: &mut String, random: &mut Random, number: u32) {
    let instances = random.pick(&["1", "4", "16", "-2", "0.5", "many"]);
    let timeout = random.pick(&["30s", "2m", "500ms", "soon", "10 parsecs", "-5s"]);
    let extra = random.pick(&["", "", "      time_out: 3s\n", "      max_instance: 2\n"]);
    let _ = write!(
        text,
        "    - name: tool_{number}\n      max_instances: {instances}\n      timeout: {timeout}\n{extra}"
    );
}

fn server(text: &mut String, random: &mut Random, number: u32) {
    let transport = random.pick(&["streamable_http", "stdio", "sse", "websocket", "carrier_pigeon"]);
    let mode = random.pick(&["strict", "dynamic", "lenient", "\"\""]);
    let instances = random.pick(&["2", "8", "-1", "lots"]);
    let timeout = random.pick(&["10s", "1m", "eventually"]);
    let extra = random.pick(&["", "", "      modes: strict\n", "      header: none\n"]);
    let _ = writeln!(text, "    - name: server_{number}");
    if transport == "stdio" {
        let _ = writeln!(
            text,
            "      command: server-{number}\n      args: [--token, \"${{BENCH_UNSET_{number}}}\"]"
        );
    } else {
        let host = random.pick(&["example.com", "[::1", "", "${BENCH_UNSET_HOST}"]);
        let scheme = random.pick(&["https", "http", "gopher", "ht tp"]);
        let _ = writeln!(text, "      url: \"{scheme}://{host}/mcp\"");
    }
    let _ = write!(
        text,
        "      transport: {transport}\n      mode: {mode}\n{extra}      default_tool_config:\n        \
         max_instances: {instances}\n        timeout: {timeout}\n"
    );
}

/// Xorshift: enough to vary a file, and no dependency.
struct Random(u64);

impl Random {
    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        choices[usize::try_from(self.0 % choices.len() as u64).expect("less than the length")]
    }
}

#[test]
fn the_file_has_its_lines_and_is_the_same_every_time() {
    assert_eq!(config().lines().count(), LINES);
    assert_eq!(config(), config());
    for part in ["transport: stdio", "url: \"https://", "timeout: soon", "${BENCH_UNSET_"] {
        assert!(config().contains(part), "{part}");
    }
}
