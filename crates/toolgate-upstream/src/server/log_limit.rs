//! Rate limit for the log lines that one server causes.
//!
//! Invariant: a server that logs without end causes a bounded number of lines, and one more that counts the rest.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Lines of one server in each window.
const MAX_LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(5);

/// Counts the log lines of one server.
#[derive(Debug, Default)]
pub struct LogLimit {
    window: Mutex<LogWindow>,
    suppressing: Notify,
}

#[derive(Debug, Default)]
struct LogWindow {
    start: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Returns true if a line may be logged now. Otherwise the line counts as suppressed.
    pub fn admit(&self) -> bool {
        let now = Instant::now();
        let mut window = self.window.lock();
        if window.start.is_none_or(|start| now - start >= WINDOW) {
            (window.start, window.lines) = (Some(now), 0);
        }
        if window.lines < MAX_LINES {
            window.lines += 1;
            return true;
        }
        window.suppressed += 1;
        if window.suppressed == 1 {
            self.suppressing.notify_one();
        }
        false
    }

    /// Waits until lines were suppressed, for one window. Returns their number.
    pub async fn wait_for_suppressed(&self) -> u64 {
        self.suppressing.notified().await;
        sleep(WINDOW).await;
        std::mem::take(&mut self.window.lock().suppressed)
    }
}

#[tokio::test(start_paused = true)]
async fn lines_beyond_the_limit_are_counted() {
    let limit = LogLimit::default();
    let burst = || (0..100).filter(|_| limit.admit()).count();
    assert_eq!(burst(), 20);
    assert_eq!(burst(), 0);
    assert_eq!(limit.wait_for_suppressed().await, 180);
    assert_eq!(burst(), 20, "the next window has its own lines");
    assert_eq!(limit.wait_for_suppressed().await, 80);
    assert_eq!(tokio::time::timeout(WINDOW * 5, limit.wait_for_suppressed()).await.ok(), None);
}
