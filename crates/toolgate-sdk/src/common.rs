//! What most tools take or give: a page of a list, its order, a range of time, and what is known of a thing.
//!
//! The JSON names are those of the tool interface specification. They may stand in a parameters struct under
//! a name, or among its own fields with `#[serde(flatten)]`. Invariant: what could be read is in its bounds.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Things on a page that says nothing of it.
pub const USUAL_LIMIT: u32 = 20;
/// The most things on a page: what a model can read at once.
pub const LARGEST_LIMIT: u32 = 100;

/// Which part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Pagination {
    /// How many to give, at most.
    #[schemars(range(min = 1, max = 100))]
    pub limit: u32,
    /// How many to leave out before the first.
    pub offset: u32,
    /// Where the page before has ended: its `nextCursor`. Counts more than the offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub cursor: Option<String>,
}

impl Default for Pagination {
    fn default() -> Self {
        Self { limit: USUAL_LIMIT, offset: 0, cursor: None }
    }
}

impl Pagination {
    /// The page of a list that is there as a whole. The cursor is the number of things before the page.
    ///
    /// # Errors
    /// When the cursor is not one that this gave.
    pub fn of<T>(&self, all: impl ExactSizeIterator<Item = T>) -> Result<Page<T>, UnknownCursor> {
        let total = all.len();
        let start = match &self.cursor {
            Some(cursor) => cursor.parse().map_err(|_| UnknownCursor)?,
            None => usize::try_from(self.offset).unwrap_or(usize::MAX),
        };
        let limit = usize::try_from(self.limit.clamp(1, LARGEST_LIMIT)).unwrap_or(usize::MAX);
        let items: Vec<T> = all.skip(start).take(limit).collect();
        let end = start.saturating_add(items.len());
        let next_cursor = (end < total && !items.is_empty()).then(|| end.to_string());
        Ok(Page { items, total: Some(total as u64), next_cursor })
    }
}

/// A cursor does not come from the page before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that a page before gave")]
pub struct UnknownCursor;

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// How many there are in all, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What to ask for the next page with; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The order of a list. `K` is an enum of what it can be sorted by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sorting<K> {
    /// What to sort by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_by: Option<K>,
    /// Whether the smallest or the largest comes first.
    #[serde(default)]
    pub sort_order: SortOrder,
}

impl<K> Default for Sorting<K> {
    fn default() -> Self {
        Self { sort_by: None, sort_order: SortOrder::default() }
    }
}

/// Which end of an order comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    /// The smallest, the earliest.
    #[default]
    Asc,
    /// The largest, the latest.
    Desc,
}

impl SortOrder {
    /// Turns a comparison round where the largest comes first.
    pub fn apply(self, order: std::cmp::Ordering) -> std::cmp::Ordering {
        match self {
            Self::Asc => order,
            Self::Desc => order.reverse(),
        }
    }
}

/// A range of time; an end that is left out is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Ends")]
pub struct DateRange {
    /// Not before this moment, such as `2026-01-31T00:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Timestamp>,
    /// Before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Timestamp>,
}

/// A range ends before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the range ends before it begins")]
pub struct EmptyRange;

/// A range of time; an end that is left out is open.
#[derive(Deserialize, JsonSchema)]
struct Ends {
    /// Not before this moment, such as `2026-01-31T00:00:00Z`.
    #[serde(default)]
    from: Option<Timestamp>,
    /// Before this moment.
    #[serde(default)]
    to: Option<Timestamp>,
}

impl TryFrom<Ends> for DateRange {
    type Error = EmptyRange;

    fn try_from(ends: Ends) -> Result<Self, EmptyRange> {
        Self::new(ends.from, ends.to)
    }
}

impl DateRange {
    /// A range.
    ///
    /// # Errors
    /// When it ends before it begins.
    pub fn new(from: Option<Timestamp>, to: Option<Timestamp>) -> Result<Self, EmptyRange> {
        let is_empty = matches!((from, to), (Some(from), Some(to)) if to < from);
        if is_empty { Err(EmptyRange) } else { Ok(Self { from, to }) }
    }

    /// Where it begins, where it does.
    pub fn from(&self) -> Option<Timestamp> {
        self.from
    }

    /// Where it ends, where it does.
    pub fn to(&self) -> Option<Timestamp> {
        self.to
    }

    /// Whether a moment is in it.
    pub fn contains(&self, moment: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= moment) && self.to.is_none_or(|to| moment < to)
    }
}

/// What is known of a thing beside what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whatever else.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub custom: Map<String, Value>,
}

impl Metadata {
    /// Of a thing that was made at a moment.
    pub fn new(created_at: Timestamp) -> Self {
        Self { created_at, updated_at: None, created_by: None, tags: Vec::new(), custom: Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let all: Vec<u32> = (0..45).collect();
        let (mut pagination, mut seen) = (Pagination::default(), Vec::new());
        loop {
            let page = pagination.of(all.iter().copied()).unwrap();
            assert_eq!(page.total, Some(45));
            seen.extend(page.items);
            match page.next_cursor {
                Some(cursor) => pagination.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!(seen, all);
        pagination.cursor = Some("somewhere".to_owned());
        assert_eq!(pagination.of(all.iter()), Err(UnknownCursor));
        let far = Pagination { offset: 100, ..Pagination::default() };
        assert_eq!(far.of(all.iter()).unwrap().next_cursor, None);
    }

    #[test]
    fn ranges_have_an_order() {
        let range = |value: Value| serde_json::from_value::<DateRange>(value);
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        assert!(range(json!({ "from": late, "to": early })).is_err());
        let january = range(json!({ "from": early, "to": late })).unwrap();
        assert!(january.contains(early.parse().unwrap()) && !january.contains(late.parse().unwrap()));
        assert!(range(json!({})).unwrap().contains(late.parse().unwrap()));
        assert_eq!(serde_json::to_value(january).unwrap(), json!({ "from": early, "to": late }));
    }

    #[test]
    fn an_order_by_any_key() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Key {
            Title,
        }
        let sorting: Sorting<Key> =
            serde_json::from_value(json!({ "sortBy": "title", "sortOrder": "desc" })).unwrap();
        assert_eq!(sorting, Sorting { sort_by: Some(Key::Title), sort_order: SortOrder::Desc });
        assert_eq!(serde_json::from_value::<Sorting<Key>>(json!({})).unwrap(), Sorting::default());
        assert_eq!(SortOrder::Desc.apply(1.cmp(&2)), std::cmp::Ordering::Greater);
    }
}
