//! Durations as people write them: `30s`, `1m30s`, `500ms`, `PT30S`, `30`.
//!
//! Parsed here and not by `jiff`, which rejects some of the accepted spellings; the tests compare both, and
//! `docs/dev/decisions/durations-and-sizes.md` has the reasons.
//! Invariant: more than zero and at most [`MAX_DURATION`]. Every duration in a configuration is a limit; a limit of
//! zero, or one that overflows a timer, is a mistake worth reporting.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Longest duration a configuration may contain: ten years.
pub const MAX_DURATION: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

const NANOS: u128 = 1_000_000_000;

/// Reason why a string is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not in any supported format.
    #[error(
        "`30s`, `500ms`, `1m30s`, an ISO 8601 duration such as `PT30S`, or a number of seconds is expected"
    )]
    Malformed,
    /// Has a minus sign.
    #[error("a duration cannot be negative")]
    Negative,
    #[error("a duration must be more than zero")]
    Zero,
    /// Longer than [`MAX_DURATION`].
    #[error("a duration can be ten years at most")]
    TooLong,
    /// Uses years or months.
    #[error("years and months have no fixed length; write days")]
    Calendar,
}

/// Duration that is more than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(Duration);

impl HumanDuration {
    /// Creates a duration of whole seconds, for defaults in code.
    ///
    /// # Panics
    /// If `seconds` is zero.
    pub const fn from_secs(seconds: u64) -> Self {
        assert!(seconds > 0, "a duration is more than zero");
        Self(Duration::from_secs(seconds))
    }

    /// Returns the duration, for timers.
    pub const fn get(self) -> Duration {
        self.0
    }

    fn from_nanos(nanos: u128) -> Result<Self, DurationError> {
        if nanos == 0 {
            return Err(DurationError::Zero);
        }
        if nanos > MAX_DURATION.as_nanos() {
            return Err(DurationError::TooLong);
        }
        let seconds = u64::try_from(nanos / NANOS).map_err(|_| DurationError::TooLong)?;
        let rest = u32::try_from(nanos % NANOS).map_err(|_| DurationError::TooLong)?;
        Ok(Self(Duration::new(seconds, rest)))
    }
}

impl FromStr for HumanDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let text = text.trim();
        if text.starts_with('-') {
            return Err(DurationError::Negative);
        }
        let nanos = match text.strip_prefix(['P', 'p']) {
            Some(rest) => parse_iso_8601(rest)?,
            None => parse_units(text)?,
        };
        Self::from_nanos(nanos)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
        for (count, unit) in [(days, "d"), (hours, "h"), (minutes, "m"), (seconds % 60, "s")] {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        let nanos = self.0.subsec_nanos();
        for (count, unit) in [(nanos / 1_000_000, "ms"), (nanos / 1_000 % 1_000, "us"), (nanos % 1_000, "ns")]
        {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Parses `30`, `30s`, `1m30s`, `1m 30s`, `0.5s`.
fn parse_units(text: &str) -> Result<u128, DurationError> {
    if let Ok(nanos) = parse_amount(text, NANOS) {
        return Ok(nanos);
    }
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_number(rest);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match &after[..end] {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" | "sec" | "secs" | "second" | "seconds" => NANOS,
            "m" | "min" | "mins" | "minute" | "minutes" => 60 * NANOS,
            "h" | "hour" | "hours" => 3_600 * NANOS,
            "d" | "day" | "days" => 86_400 * NANOS,
            _ => return Err(DurationError::Malformed),
        };
        total = total.checked_add(parse_amount(number, unit)?).ok_or(DurationError::TooLong)?;
        rest = after[end..].trim_start();
    }
    if text.is_empty() { Err(DurationError::Malformed) } else { Ok(total) }
}

/// Parses the part after the `P` of an ISO 8601 duration: `T30S`, `0DT0H0M30S`, `1W`.
fn parse_iso_8601(text: &str) -> Result<u128, DurationError> {
    let (date, time) = match text.split_once(['T', 't']) {
        Some((_, "")) => return Err(DurationError::Malformed),
        Some((date, time)) => (date, time),
        None if text.is_empty() => return Err(DurationError::Malformed),
        None => (text, ""),
    };
    let days = parse_designators(date, &[('W', 604_800), ('D', 86_400)])?;
    let clock = parse_designators(time, &[('H', 3_600), ('M', 60), ('S', 1)])?;
    days.checked_add(clock).ok_or(DurationError::TooLong)
}

/// Parses numbers with their designators, in the order of the table, each at most once.
fn parse_designators(mut text: &str, mut table: &[(char, u128)]) -> Result<u128, DurationError> {
    let mut total: u128 = 0;
    while !text.is_empty() {
        let (number, rest) = split_number(text);
        let letter = rest.chars().next().ok_or(DurationError::Malformed)?.to_ascii_uppercase();
        let Some(place) = table.iter().position(|(known, _)| *known == letter) else {
            let calendar = letter == 'Y' || letter == 'M';
            return Err(if calendar { DurationError::Calendar } else { DurationError::Malformed });
        };
        total =
            total.checked_add(parse_amount(number, table[place].1 * NANOS)?).ok_or(DurationError::TooLong)?;
        table = &table[place + 1..];
        text = &rest[1..];
    }
    Ok(total)
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// Parses a decimal number of units, each `unit` nanoseconds long. Exact: no floating point.
fn parse_amount(number: &str, unit: u128) -> Result<u128, DurationError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') {
        return Err(DurationError::Malformed);
    }
    if whole.len() > 18 {
        return Err(DurationError::TooLong);
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let whole: u128 = whole.parse().map_err(|_| DurationError::Malformed)?;
    let mut nanos = whole.checked_mul(unit).ok_or(DurationError::TooLong)?;
    if !fraction.is_empty() {
        let part: u128 = fraction.parse().map_err(|_| DurationError::Malformed)?;
        nanos +=
            part * unit / 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| DurationError::Malformed)?);
    }
    Ok(nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<&str, DurationError>) {
        let parsed = text.parse::<HumanDuration>().map(|duration| duration.to_string());
        assert_eq!(parsed.as_deref(), expected.as_ref().map(|text| *text), "{text:?}");
    }

    #[test]
    fn parses_every_spelling() {
        check("P0DT0H0M30S", Ok("30s"));
        check("PT30S", Ok("30s"));
        check("pt1m30s", Ok("1m30s"));
        check("P1W", Ok("7d"));
        check("PT0.5S", Ok("500ms"));
        check("30s", Ok("30s"));
        check("500ms", Ok("500ms"));
        check("1m 30s", Ok("1m30s"));
        check("90", Ok("1m30s"));
        check("0.25", Ok("250ms"));
        check("2 hours", Err(DurationError::Malformed));
        check("2hours", Ok("2h"));
    }

    #[test]
    fn rejects_invalid_durations() {
        check("", Err(DurationError::Malformed));
        check("P", Err(DurationError::Malformed));
        check("PT", Err(DurationError::Malformed));
        check("P1Y", Err(DurationError::Calendar));
        check("P1M", Err(DurationError::Calendar));
        check("PT5M3H", Err(DurationError::Malformed));
        check("-5s", Err(DurationError::Negative));
        check("0", Err(DurationError::Zero));
        check("PT0S", Err(DurationError::Zero));
        check("soon", Err(DurationError::Malformed));
        check("5 parsecs", Err(DurationError::Malformed));
        check("1.", Err(DurationError::Malformed));
        check("999999999999999999", Err(DurationError::TooLong));
        check("9999999999999999999999s", Err(DurationError::TooLong));
        check("3661d", Err(DurationError::TooLong));
    }

    /// Parses with `jiff`, a day having 24 hours.
    fn parse_with_jiff(text: &str) -> Option<Duration> {
        let span: jiff::Span = text.parse().ok()?;
        let duration = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
        duration.try_into().ok()
    }

    /// The reason for a parser of our own. If this fails after an update of `jiff`, the parser may be obsolete.
    #[test]
    fn jiff_rejects_accepted_spellings() {
        for text in ["30", "0.25", "1.5d", "P0.5D", "1.5m30s", "PT1.5H30M", "30s1m", "1m1m", "0.1234567891s"]
        {
            assert!(text.parse::<HumanDuration>().is_ok(), "{text}");
            assert_eq!(parse_with_jiff(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn equals_jiff_where_both_accept(text in "(P([0-9]{1,3}D)?(T[0-9]{1,4}(\\.[0-9]{1,9})?[HMS])?|([0-9]{1,3} ?(d|days))?([0-9]{1,3}(h|hours))? ?([0-9]{1,3}(m|mins))?([0-9]{1,3}(\\.[0-9]{1,9})?(s|secs|ms|us))?)") {
            if let (Ok(ours), Some(theirs)) = (text.parse::<HumanDuration>(), parse_with_jiff(&text)) {
                prop_assert_eq!(ours.get(), theirs, "{}", text);
            }
        }

        #[test]
        fn display_round_trips(nanos in 1_u64..u64::MAX / 64) {
            let duration = HumanDuration(Duration::from_nanos(nanos));
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<HumanDuration>();
        }
    }
}
