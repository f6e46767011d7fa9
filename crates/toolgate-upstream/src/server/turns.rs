//! Turns: attempts that nobody waits for are made one after the other, however many servers went at the same moment.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time from one such attempt to the next, of all servers together.
const APART: Duration = Duration::from_millis(15);

/// When the one who asks may make its attempt. Every turn is given away once.
pub(super) fn turn() -> Instant {
    static NEXT: Mutex<Option<Instant>> = Mutex::new(None);
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let turn = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
    *next = Some(turn + APART);
    turn
}

#[tokio::test]
async fn turns_are_apart() {
    let turns: Vec<_> = (0..20).map(|_| turn()).collect();
    assert!(turns.windows(2).all(|two| two[1] - two[0] >= APART), "{turns:?}");
    assert!(turns[19] <= Instant::now() + APART * 20, "nobody waits longer than the others take");
}
