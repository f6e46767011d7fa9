//! The order of requests when all connections are in use.

use super::*;

fn caller(id: &str) -> CallerId {
    id.parse().unwrap()
}

/// A table with connections in use, one for each name, and requests in the queue, numbered from 1.
fn table(connections: &[&str], queue: &[&str]) -> PoolTable {
    let entry = |(id, name): (usize, &&str)| PoolEntry {
        id: id as u64,
        owner: None,
        caller: caller(name),
        declared: Value::Null,
        has_handshake: true,
        client: None,
        requests: 1,
        last_used: Instant::now(),
        subscriptions: Arc::default(),
        state: watch::channel(EntryState::Opening).1,
        _open: oneshot::channel().0,
    };
    let queued = |(at, name): (usize, &&str)| QueuedRequest { id: at as u64 + 1, caller: caller(name) };
    PoolTable {
        entries: connections.iter().enumerate().map(entry).collect(),
        alive: connections.len(),
        queue: queue.iter().enumerate().map(queued).collect(),
        ..PoolTable::default()
    }
}

/// Compares the requests of the queue that may open one of three connections now, and those that came just now.
fn check(connections: &[&str], queue: &[&str], served: &[usize], new: &[(&str, bool)]) {
    let mut table = table(connections, queue);
    let may_open = |at: &usize| table.has_room(&caller(queue[*at - 1]), Some(*at as u64), 3);
    assert_eq!((1..=queue.len()).filter(may_open).collect::<Vec<_>>(), served, "{connections:?} {queue:?}");
    for (name, expected) in new {
        assert_eq!(table.has_room(&caller(name), None, 3), *expected, "{name} in {connections:?} {queue:?}");
    }
}

#[tokio::test]
async fn the_caller_with_the_fewest_connections_is_served_first() {
    check(&[], &[], &[], &[("ann", true)]);
    check(&["ann", "ann", "ann"], &["ann", "bob"], &[], &[("carl", false)]);
    check(&["ann", "ann"], &["ann", "bob"], &[2], &[("carl", false)]);
    check(&["ann", "bob"], &["ann", "bob"], &[1], &[("carl", true)]);
    check(&["ann"], &["ann", "ann", "bob"], &[1, 3], &[("ann", false)]);
}
