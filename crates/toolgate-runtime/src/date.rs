//! Timestamps and dates in results: ISO 8601, UTC.

use jiff::Timestamp;

/// The current time in milliseconds precision.
pub(crate) fn timestamp() -> String {
    format_timestamp(Timestamp::now())
}

/// A time in milliseconds precision.
pub(crate) fn format_timestamp(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// The current date as `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

#[test]
fn formats_as_iso_8601() {
    let now = timestamp();
    assert_eq!((now.len(), &now[10..11], &now[19..20], &now[23..]), (24, "T", ".", "Z"), "{now}");
    assert!(now.starts_with(&today()));
}
