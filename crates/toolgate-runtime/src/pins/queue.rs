//! Batches new pins: the lock file is always written as a whole.
//!
//! If many servers connect at once, the first writes its own pins and the next writes those of all the others.
//! Invariant: the pins of a caller are written when its call returns.

use super::NewPin;
use parking_lot::Mutex;

/// Pins waiting to be written.
#[derive(Default)]
pub(crate) struct PinQueue {
    waiting: Mutex<Vec<NewPin>>,
    /// Held by the current writer.
    turn: tokio::sync::Mutex<()>,
}

impl PinQueue {
    /// Writes these pins, alone or in a batch with others.
    pub(crate) async fn write(&self, new: Vec<NewPin>, write: impl AsyncFnOnce(Vec<NewPin>)) {
        let waiting = || self.waiting.lock();
        waiting().extend(new);
        let _turn = self.turn.lock().await;
        let all = std::mem::take(&mut *waiting());
        if !all.is_empty() {
            write(all).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn batches_concurrent_writes() {
    use std::cell::RefCell;
    use std::time::Duration;
    let (queue, written) = (PinQueue::default(), RefCell::new(Vec::new()));
    let write_one = async |number: usize| {
        let pin = super::Pin {
            hash: "".into(),
            definition: super::PinnedDefinition::new(&serde_json::Value::Null),
        };
        let tool = number.to_string();
        let new = NewPin { server: "s".parse().unwrap(), tool: tool.clone(), pin, replaces: None };
        let write = async |all: Vec<NewPin>| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            written.borrow_mut().push(all.into_iter().map(|pin| pin.tool).collect::<Vec<_>>());
        };
        queue.write(vec![new], write).await;
        assert!(written.borrow().iter().flatten().any(|written| *written == tool), "{tool}");
    };
    futures_util::future::join_all((0..100).map(write_one)).await;
    let sizes: Vec<_> = written.borrow().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 99]);
}
