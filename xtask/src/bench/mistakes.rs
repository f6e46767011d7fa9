//! An invalid configuration of 500 lines with many mistakes, for the `check` benchmark.
//!
//! Invariant: the same text on every machine and in every run, so that two measurements compare.

use std::fmt::Write;

/// Lines of the file. A large configuration, not an absurd one.
const LINES: usize = 500;

/// The line where the tools end and the servers begin.
const TOOL_LINES: usize = 200;

/// The file, and the number of mistakes in it.
pub(super) struct InvalidConfig {
    pub(super) text: String,
    pub(super) mistakes: usize,
    random: Random,
}

/// Writes the file.
pub(super) fn config() -> InvalidConfig {
    let text = "# A file with many mistakes.\ntoolbox:\n  max_concurrent: -4\n  default_timeout: 10 parsecs\n  tools:\n";
    let mut broken =
        InvalidConfig { text: text.to_owned(), mistakes: 2, random: Random(0x9e37_79b9_7f4a_7c15) };
    for number in 0.. {
        if broken.text.lines().count() + 4 > TOOL_LINES {
            break;
        }
        broken.tool(number);
    }
    broken.text.push_str("  mcps:\n");
    for number in 0.. {
        if broken.text.lines().count() + 9 > LINES {
            break;
        }
        broken.server(number);
    }
    for number in broken.text.lines().count()..LINES {
        let _ = writeln!(broken.text, "# Line {}.", number + 1);
    }
    broken
}

impl InvalidConfig {
    fn tool(&mut self, number: u32) {
        let instances = self.pick(&["1", "4", "16"], &["-2", "0.5", "many"]);
        let timeout = self.pick(&["30s", "2m", "500ms"], &["soon", "10 parsecs", "-5s"]);
        let extra = self.pick(&["", ""], &["      time_out: 3s\n", "      max_instance: 2\n"]);
        let _ = write!(
            self.text,
            "    - name: tool_{number}\n      max_instances: {instances}\n      timeout: {timeout}\n{extra}"
        );
    }

    fn server(&mut self, number: u32) {
        let transport = self.pick(&["streamable_http", "stdio", "sse", "websocket"], &["carrier_pigeon"]);
        let mode = self.pick(&["strict", "dynamic"], &["lenient", "\"\""]);
        let instances = self.pick(&["2", "8"], &["-1", "lots"]);
        let timeout = self.pick(&["10s", "1m"], &["eventually"]);
        let extra = self.pick(&["", ""], &["      modes: strict\n", "      header: none\n"]);
        let _ = writeln!(self.text, "    - name: server_{number}");
        if transport == "stdio" {
            self.mistakes += 1;
            let _ = writeln!(
                self.text,
                "      command: server-{number}\n      args: [--token, \"${{BENCH_UNSET_{number}}}\"]"
            );
        } else {
            let good = if transport == "websocket" { "wss" } else { "https" };
            let url = match self.random.pick(&["good", "good", "host", "scheme", "words", "unset"]) {
                "good" => format!("{good}://example.com/mcp"),
                wrong => {
                    self.mistakes += 1;
                    match wrong {
                        "host" => format!("{good}://[::1/mcp"),
                        "scheme" => "gopher://example.com/mcp".to_owned(),
                        "words" => "ht tp://example.com/mcp".to_owned(),
                        _ => format!("{good}://${{BENCH_UNSET_HOST}}/mcp"),
                    }
                }
            };
            let _ = writeln!(self.text, "      url: \"{url}\"");
        }
        let _ = write!(
            self.text,
            "      transport: {transport}\n      mode: {mode}\n{extra}      default_tool_config:\n        \
             max_instances: {instances}\n        timeout: {timeout}\n"
        );
    }

    /// Picks one of both lists. A wrong one counts as a mistake.
    fn pick<'a>(&mut self, good: &[&'a str], wrong: &[&'a str]) -> &'a str {
        let picked = self.random.pick(&[good, wrong].concat());
        self.mistakes += usize::from(wrong.contains(&picked));
        picked
    }
}

/// Xorshift: random enough for a file, without a dependency.
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
fn the_file_has_500_lines_and_is_always_the_same() {
    let InvalidConfig { text, mistakes, .. } = config();
    assert_eq!(text.lines().count(), LINES);
    assert_eq!((config().text, config().mistakes), (text.clone(), mistakes));
    for part in ["transport: stdio", "url: \"https://", "timeout: soon", "${BENCH_UNSET_"] {
        assert!(text.contains(part), "{part}");
    }
}
