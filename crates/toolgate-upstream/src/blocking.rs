//! Work that may keep a CPU busy for longer than async code should block.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs a function. If it is expensive, other tasks of this thread move to another one first.
pub fn run_blocking<T>(is_expensive: bool, run: impl FnOnce() -> T) -> T {
    // A runtime with one thread has no other thread to move them to.
    let can_move =
        || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_expensive && can_move() { tokio::task::block_in_place(run) } else { run() }
}

#[tokio::test]
async fn works_on_a_single_thread() {
    assert_eq!(run_blocking(true, || 1), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn other_tasks_go_on() {
    let (send, receive) = std::sync::mpsc::channel();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { send.send(()).unwrap() });
    // The only worker blocks here, until the other task has run.
    let waiting = tokio::task::JoinSet::from_iter([async move { run_blocking(true, || receive.recv()) }]);
    assert_eq!(waiting.join_all().await, [Ok(())]);
}
