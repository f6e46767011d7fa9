//! Days and times as results show them: ISO 8601, in UTC.

use jiff::Timestamp;

/// Now, to the millisecond.
pub(crate) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Today, as `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

#[test]
fn the_form() {
    let now = now();
    assert_eq!((now.len(), &now[10..11], &now[19..20], &now[23..]), (24, "T", ".", "Z"), "{now}");
    assert!(now.starts_with(&today()));
}
