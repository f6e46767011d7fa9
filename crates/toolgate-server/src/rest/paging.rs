//! Pages of lists that are in memory.
//!
//! Invariant: a cursor is a position, so it says nothing about the items before it.

use crate::auth::HttpError;

/// The part of a list that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paging {
    pub(crate) start: usize,
    pub(crate) limit: usize,
}

impl Paging {
    /// Reads `limit` and `cursor` of a query. A limit is at least 1 and at most `max`; without one it is `default`.
    pub(crate) fn new(
        limit: Option<usize>,
        cursor: Option<&str>,
        (default, max): (usize, usize),
    ) -> Result<Self, HttpError> {
        let start = cursor.map_or(Ok(0), str::parse);
        let start = start.map_err(|_| {
            HttpError::invalid("invalid `cursor`").hint("use the `next` of the previous page")
        })?;
        Ok(Self { start, limit: limit.unwrap_or(default).clamp(1, max) })
    }

    /// Returns the items of the page, and the cursor of the next one.
    pub(crate) fn take<T>(self, items: impl Iterator<Item = T>) -> (Vec<T>, Option<String>) {
        let mut rest = items.skip(self.start);
        let page: Vec<T> = rest.by_ref().take(self.limit).collect();
        let next = rest.next().map(|_| self.start.saturating_add(page.len()).to_string());
        (page, next)
    }
}

#[test]
fn pages_cover_a_list_once() {
    let page = |limit, cursor: Option<&str>| {
        Paging::new(limit, cursor, (2, 3)).unwrap().take(["a", "b", "c", "d", "e"].into_iter())
    };
    assert_eq!(page(None, None), (vec!["a", "b"], Some("2".to_owned())));
    assert_eq!(page(Some(100), Some("2")), (vec!["c", "d", "e"], None));
    assert_eq!(page(Some(0), Some("4")), (vec!["e"], None));
    assert_eq!(page(None, Some("9")), (vec![], None));
    for wrong in ["x", "-1", "", "99999999999999999999999"] {
        assert_eq!(Paging::new(None, Some(wrong), (2, 3)).unwrap_err().status.as_u16(), 400, "{wrong}");
    }
}
