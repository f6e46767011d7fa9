//! Queries with an index find the same calls as queries without one, for any log.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::chain::ChainHead;
use crate::index::LogIndexer;
use crate::part_buffer::PartBuffer;

/// Writes a log of random calls that overlap, over three days with a clock that jumps. Some calls have no end, and some
/// no begin.
struct TestLog {
    random: fastrand::Rng,
    folder: tempfile::TempDir,
    head: ChainHead,
    now: Timestamp,
    running: Vec<String>,
    calls: u64,
}

fn brief(call: &LoggedCall) -> String {
    let (begin, end) = (call.begin.as_ref().map(|begin| begin.seq), call.end.as_ref().map(|end| end.seq));
    format!("{} {begin:?} {end:?}", call.id())
}

const TOOLS: [&str; 4] = ["files.read", "files.write", "mail.send", "rare"];

impl TestLog {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            folder: tempfile::tempdir().unwrap(),
            head: ChainHead::EMPTY,
            now: "2026-11-14T22:00:00Z".parse().unwrap(),
            running: Vec::new(),
            calls: 0,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn line(&mut self, body: String) {
        let mut buffer = PartBuffer::default();
        self.head.append(self.now, &body.into(), &mut buffer);
        let path = folder::day_path(self.path(), crate::chain::utc_day(self.now));
        let mut text = fs_err::read(&path).unwrap_or_default();
        text.extend(buffer.to_text().as_bytes());
        fs_err::write(&path, text).unwrap();
    }

    /// Members that both records of a call have.
    fn prefix(&mut self, id: &str) -> String {
        let number = id.bytes().map(u64::from).sum::<u64>();
        let tool = TOOLS[if number % 37 == 0 { 3 } else { (number % 3) as usize }];
        let (caller, session) = (["ann", "bob"][(number % 2) as usize], number % 5);
        format!(r#""call":"{id}","caller":"{caller}","tool":"{tool}","session":"s{session}""#)
    }

    fn begin(&mut self, id: &str) {
        let prefix = self.prefix(id);
        let (server, rule) = (self.random.usize(..3), self.random.usize(..20));
        let decision = if rule == 0 { "deny" } else { "allow" };
        let kind = format!(
            r#""kind":"begin",{prefix},"correlation":"co-{id}","correlation_from_client":false,"trace":"tr{id}","server":"s{server}","decision":"{decision}","rules":["r{rule}"],"arguments":{{"n":"{}"}}"#,
            self.random.usize(..50)
        );
        self.line(kind);
    }

    fn end(&mut self, id: &str) {
        let prefix = self.prefix(id);
        let micros = if self.random.usize(..50) == 0 { 9_000_000 } else { self.random.u64(..5_000) };
        let status = match self.random.usize(..30) {
            0 => {
                r#""status":"error","error":{"code":"timeout","stage":"invoke","outcome":"unknown","message":"no"}"#
            }
            1..4 => {
                r#""status":"abandoned","error":{"code":"cancelled","stage":"invoke","outcome":"unknown","message":"no"}"#
            }
            _ => r#""status":"success""#,
        };
        let output = self.random.usize(..50);
        self.line(format!(
            r#""kind":"end",{prefix},{status},"attempts":1,"cached":false,"micros":{micros},"stages":[["resolve",1]],"output":"o{output}""#,
        ));
    }

    fn write(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now =
                self.now.checked_add(SignedDuration::from_micros(self.random.i64(0..900_000_000))).unwrap();
            match self.random.usize(..20) {
                0 => self.now = self.now.checked_sub(SignedDuration::from_secs(3600)).unwrap(),
                1 => self.line(r#""kind":"start","version":"1""#.to_owned()),
                2 => {
                    let id = format!("lost{}", self.calls);
                    self.end(&id);
                }
                3 => drop(self.running.pop()),
                4..12 => {
                    self.calls += 1;
                    let id = format!("c{}", self.calls);
                    self.begin(&id);
                    self.running.push(id);
                }
                _ if !self.running.is_empty() => {
                    let index = self.random.usize(..self.running.len());
                    let id = self.running.swap_remove(index);
                    self.end(&id);
                }
                _ => {}
            }
        }
    }

    fn filters(&mut self) -> Vec<CallFilter> {
        let text = |text: &str| Some(text.to_owned());
        let all = || CallFilter { newest_first: true, ..CallFilter::default() };
        let now = self.now;
        let mut ago = || now.checked_sub(SignedDuration::from_secs(self.random.i64(0..300_000))).ok();
        vec![
            all(),
            CallFilter { limit: Some(7), ..all() },
            CallFilter { tool: text("rare"), ..all() },
            CallFilter { tool: text("files.*"), caller: text("ann"), ..all() },
            CallFilter { status: text("timeout"), ..all() },
            CallFilter { status: text("open"), ..all() },
            CallFilter { status: text("open"), server: text("s1"), ..all() },
            CallFilter { code: text("cancelled"), decision: text("deny"), ..all() },
            CallFilter { decision: text("deny"), ..all() },
            CallFilter { rule: text("r7"), session: text("s2"), ..all() },
            CallFilter { correlation: text("co-c3"), ..all() },
            CallFilter { trace: text("trc11"), ..all() },
            CallFilter { server: text("s2"), status: text("success"), ..all() },
            CallFilter { slower_micros: Some(1_000_000), ..all() },
            CallFilter { slower_micros: Some(1_000_000), tool: text("mail.send"), ..all() },
            CallFilter { grep: text("\"n\":\"7\""), ..all() },
            CallFilter { grep: text("o13"), server: text("s0"), ..all() },
            CallFilter { since: ago(), ..all() },
            CallFilter { until: ago(), ..all() },
            CallFilter { since: ago(), until: ago(), status: text("success"), ..all() },
            CallFilter { until: ago(), status: text("open"), ..all() },
            CallFilter { until: ago(), grep: text("n\":\"3"), ..all() },
        ]
    }

    fn found(&self, filter: &CallFilter) -> Vec<String> {
        let calls = LogReader::new(self.path()).query(filter.clone()).unwrap();
        calls.map(|call| brief(&call.unwrap())).collect()
    }

    fn remove_indexes(&self) {
        for day in folder::list_days(self.path()).unwrap() {
            crate::index::remove(self.path(), day).unwrap();
        }
    }

    /// Compares all queries with their results without an index. Returns the bytes that were indexed.
    fn check(&mut self, indexer: &LogIndexer) -> u64 {
        let days = folder::list_days(self.path()).unwrap();
        let path = self.path().to_owned();
        let name = |day: &Date| path.join(format!("{day}.index"));
        let indexes: Vec<_> = days.iter().map(|day| fs_err::read(name(day)).ok()).collect();
        let filters = self.filters();
        let with: Vec<_> = filters.iter().map(|filter| self.found(filter)).collect();
        let ids: Vec<_> = (0..self.calls).step_by(3).map(|call| format!("c{call}")).collect();
        let shown = || ids.iter().map(|id| LogReader::new(self.path()).show(id).unwrap().as_ref().map(brief));
        let shown_with: Vec<_> = shown().collect();
        self.remove_indexes();
        for (filter, with) in filters.iter().zip(with) {
            assert_eq!(with, self.found(filter), "{filter:?}");
        }
        assert_eq!(shown_with, shown().collect::<Vec<_>>());
        for (day, index) in days.iter().zip(indexes) {
            index.into_iter().for_each(|index| fs_err::write(name(day), index).unwrap());
        }
        indexer.indexed_bytes()
    }
}

#[test]
fn index_changes_no_result() {
    for seed in 0..8 {
        let mut log = TestLog::new(seed);
        let block = [200, 1_500, 6_000][(seed % 3) as usize];
        let mut indexer = LogIndexer::eager(log.path(), block);
        // Grows between updates; sometimes a new process goes on with the index.
        for round in 0..5 {
            log.write(120);
            indexer.update(&|| true).unwrap();
            assert!(log.check(&indexer) > 0, "round {round}");
            if round % 2 == 1 {
                indexer = LogIndexer::eager(log.path(), block);
            }
        }
    }
}

#[test]
fn damaged_or_foreign_index_is_not_used_and_rebuilt() {
    let mut log = TestLog::new(3);
    log.write(400);
    let mut indexer = LogIndexer::eager(log.path(), 1_000);
    indexer.update(&|| true).unwrap();
    let covered = indexer.indexed_bytes();
    let day = folder::list_days(log.path()).unwrap()[0];
    let (index, file) = (log.path().join(format!("{day}.index")), folder::day_path(log.path(), day));
    let whole = fs_err::read(&index).unwrap();
    for at in (0..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs_err::write(&index, damaged).unwrap();
        log.check(&indexer);
        let mut next = LogIndexer::eager(log.path(), 1_000);
        next.update(&|| true).unwrap();
        assert_eq!(next.indexed_bytes(), covered);
        assert_eq!(fs_err::read(&index).unwrap().len(), whole.len(), "byte {at}");
    }
    for length in [0, 3, 16, 40, whole.len() / 2, whole.len() - 1] {
        fs_err::write(&index, &whole[..length]).unwrap();
        log.check(&indexer);
    }
    // The file was replaced by another one.
    fs_err::write(&index, &whole).unwrap();
    let mut other = TestLog::new(4);
    other.write(800);
    let text = fs_err::read(folder::day_path(other.path(), day)).unwrap();
    fs_err::write(&file, &text[..memrchr(b'\n', &text).unwrap() + 1]).unwrap();
    log.check(&indexer);
    let before = fs_err::metadata(&file).unwrap().len();
    assert_ne!(before, 0);
}

#[test]
fn stops_between_two_steps() {
    let mut log = TestLog::new(1);
    log.write(200);
    let mut query = LogReader::new(log.path())
        .query(CallFilter { newest_first: true, tool: Some("none".to_owned()), ..CallFilter::default() })
        .unwrap();
    assert!(matches!(query.step().unwrap(), QueryStep::Progress));
}
