//! Parameters and results that many tools share: pagination, sorting, date ranges, metadata.
//!
//! The JSON names are those of the tool interface specification. Use the types as a field of a parameters struct, or
//! merge their fields into it with `#[serde(flatten)]`. Invariant: every deserialized value is within its bounds.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Default page size.
pub const DEFAULT_LIMIT: u32 = 20;
/// Maximum page size: about as much as a model can read at once.
pub const MAX_LIMIT: u32 = 100;

/// Position and size of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Pagination {
    /// Maximum number of items to return.
    #[schemars(range(min = 1, max = 100))]
    pub limit: u32,
    /// Number of items to skip.
    pub offset: u32,
    /// `nextCursor` of the previous page. Takes precedence over the offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub cursor: Option<String>,
}

impl Default for Pagination {
    fn default() -> Self {
        Self { limit: DEFAULT_LIMIT, offset: 0, cursor: None }
    }
}

impl Pagination {
    /// Cuts a page out of a complete list. The cursor is the number of items before the page.
    ///
    /// # Errors
    /// If the cursor did not come from an earlier page.
    pub fn paginate<T>(&self, all: impl ExactSizeIterator<Item = T>) -> Result<Page<T>, UnknownCursor> {
        let total = all.len();
        let start = match &self.cursor {
            Some(cursor) => cursor.parse().map_err(|_| UnknownCursor)?,
            None => usize::try_from(self.offset).unwrap_or(usize::MAX),
        };
        let limit = usize::try_from(self.limit.clamp(1, MAX_LIMIT)).unwrap_or(usize::MAX);
        let items: Vec<T> = all.skip(start).take(limit).collect();
        let end = start.saturating_add(items.len());
        let next_cursor = (end < total && !items.is_empty()).then(|| end.to_string());
        Ok(Page { items, total: Some(total as u64), next_cursor })
    }
}

/// The cursor did not come from an earlier page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown cursor: use `nextCursor` of the previous page")]
pub struct UnknownCursor;

/// Page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// Items on the page.
    pub items: Vec<T>,
    /// Total number of items, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Sort order of a list. `K` is an enum of the sortable fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sorting<K> {
    /// Field to sort by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_by: Option<K>,
    /// Sort direction.
    #[serde(default)]
    pub sort_order: SortOrder,
}

impl<K> Default for Sorting<K> {
    fn default() -> Self {
        Self { sort_by: None, sort_order: SortOrder::default() }
    }
}

/// Sort direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    /// Smallest or earliest first.
    #[default]
    Asc,
    /// Largest or latest first.
    Desc,
}

impl SortOrder {
    /// Reverses a comparison if the direction is descending.
    pub fn apply(self, order: std::cmp::Ordering) -> std::cmp::Ordering {
        match self {
            Self::Asc => order,
            Self::Desc => order.reverse(),
        }
    }
}

/// Time range. An omitted bound is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawDateRange")]
pub struct DateRange {
    /// Start, inclusive, such as `2026-01-31T00:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Timestamp>,
    /// End, exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Timestamp>,
}

/// The range ends before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the range ends before it begins")]
pub struct EmptyRange;

/// Time range. An omitted bound is open.
#[derive(Deserialize, JsonSchema)]
struct RawDateRange {
    /// Start, inclusive, such as `2026-01-31T00:00:00Z`.
    #[serde(default)]
    from: Option<Timestamp>,
    /// End, exclusive.
    #[serde(default)]
    to: Option<Timestamp>,
}

impl TryFrom<RawDateRange> for DateRange {
    type Error = EmptyRange;

    fn try_from(range: RawDateRange) -> Result<Self, EmptyRange> {
        Self::new(range.from, range.to)
    }
}

impl DateRange {
    /// Creates a range.
    ///
    /// # Errors
    /// If it ends before it begins.
    pub fn new(from: Option<Timestamp>, to: Option<Timestamp>) -> Result<Self, EmptyRange> {
        let is_empty = matches!((from, to), (Some(from), Some(to)) if to < from);
        if is_empty { Err(EmptyRange) } else { Ok(Self { from, to }) }
    }

    /// Returns the start, inclusive; `None` if open.
    pub fn from(&self) -> Option<Timestamp> {
        self.from
    }

    /// Returns the end, exclusive; `None` if open.
    pub fn to(&self) -> Option<Timestamp> {
        self.to
    }

    /// Returns true if a moment is in the range.
    pub fn contains(&self, moment: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= moment) && self.to.is_none_or(|to| moment < to)
    }
}

/// Metadata of a stored thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// User or program that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Search keywords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Further data.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub custom: Map<String, Value>,
}

impl Metadata {
    /// Creates metadata of a new thing.
    pub fn new(created_at: Timestamp) -> Self {
        Self { created_at, updated_at: None, created_by: None, tags: Vec::new(), custom: Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_cover_the_whole_list() {
        let all: Vec<u32> = (0..45).collect();
        let (mut pagination, mut seen) = (Pagination::default(), Vec::new());
        loop {
            let page = pagination.paginate(all.iter().copied()).unwrap();
            assert_eq!(page.total, Some(45));
            seen.extend(page.items);
            match page.next_cursor {
                Some(cursor) => pagination.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!(seen, all);
        pagination.cursor = Some("somewhere".to_owned());
        assert_eq!(pagination.paginate(all.iter()), Err(UnknownCursor));
        let far = Pagination { offset: 100, ..Pagination::default() };
        assert_eq!(far.paginate(all.iter()).unwrap().next_cursor, None);
    }

    #[test]
    fn rejects_reversed_ranges() {
        let range = |value: Value| serde_json::from_value::<DateRange>(value);
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        assert!(range(json!({ "from": late, "to": early })).is_err());
        let january = range(json!({ "from": early, "to": late })).unwrap();
        assert!(january.contains(early.parse().unwrap()) && !january.contains(late.parse().unwrap()));
        assert!(range(json!({})).unwrap().contains(late.parse().unwrap()));
        assert_eq!(serde_json::to_value(january).unwrap(), json!({ "from": early, "to": late }));
    }

    #[test]
    fn sorts_by_any_key() {
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
