//! New pins on their way to the file, which is written as a whole.
//!
//! Where many servers come at once, the first writes its own, and the next all that came meanwhile. Invariant: who
//! returns from here has his pins written.

use std::sync::{Mutex, PoisonError};

use super::NewPin;

/// Pins that wait for who writes.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Vec<NewPin>>,
    /// Held by who does.
    turn: tokio::sync::Mutex<()>,
}

impl Queue {
    /// Has these written, by whoever's turn it is.
    pub(crate) async fn write(&self, new: Vec<NewPin>, write: impl AsyncFnOnce(Vec<NewPin>)) {
        let waiting = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting().extend(new);
        let _turn = self.turn.lock().await;
        let all = std::mem::take(&mut *waiting());
        if !all.is_empty() {
            write(all).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_are_written_together() {
    use std::cell::RefCell;
    use std::time::Duration;
    let (queue, written) = (Queue::default(), RefCell::new(Vec::new()));
    let one = async |number: usize| {
        let pin = super::Pin { hash: "".into(), definition: serde_json::Value::Null };
        let tool = number.to_string();
        let new = NewPin { server: "s".parse().unwrap(), tool: tool.clone(), pin, replaces: None };
        let write = async |all: Vec<NewPin>| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            written.borrow_mut().push(all.into_iter().map(|pin| pin.tool).collect::<Vec<_>>());
        };
        queue.write(vec![new], write).await;
        assert!(written.borrow().iter().flatten().any(|written| *written == tool), "{tool}");
    };
    futures_util::future::join_all((0..100).map(one)).await;
    let sizes: Vec<_> = written.borrow().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 99]);
}
