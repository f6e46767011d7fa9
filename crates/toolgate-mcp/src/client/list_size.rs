//! The size of lists: the response to a list request may be larger than other messages.
//!
//! Invariants: only the response to a pending list request may exceed the limit of a connection, and at most
//! [`MAX_LARGE_LISTS`] of them are read at once in the whole process.

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Bytes of one list, in one response or over all pages: ten thousand tools with large schemas.
pub(crate) const MAX_LIST_BYTES: usize = 64 << 20;

/// Lists over the limit of their connection that are read at once; together 128 MiB. Others wait.
const MAX_LARGE_LISTS: usize = 2;

static LARGE_LISTS: Semaphore = Semaphore::const_new(MAX_LARGE_LISTS);

/// Permission to read a large list.
pub(crate) type LargeList = SemaphorePermit<'static>;

/// Waits for permission to read a large list.
pub(crate) async fn reserve_large_list() -> LargeList {
    LARGE_LISTS.acquire().await.expect("the semaphore is never closed")
}

/// Returns true if the response to a request is a list.
pub(crate) fn is_list(method: &str) -> bool {
    matches!(method, "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list")
}

/// Number of list requests that wait for a response on a connection.
pub(crate) type PendingLists = watch::Sender<usize>;

/// Counts a list request until it is dropped.
pub(crate) struct PendingList<'a>(&'a PendingLists);

impl<'a> PendingList<'a> {
    pub(crate) fn new(lists: &'a PendingLists) -> Self {
        lists.send_modify(|count| *count += 1);
        Self(lists)
    }
}

impl Drop for PendingList<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
