//! Parses dates and times of day in English.
//!
//! Invariant: no clock. Relative days stay relative until the caller resolves them against today.

use super::TextWord;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A day as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateExpression {
    /// A date, with or without its year.
    Absolute {
        year: Option<i16>,
        /// Month, starting at 1.
        month: u8,
        /// Day, starting at 1.
        day: u8,
    },
    /// Days from today.
    Relative(i8),
    /// The next such weekday; Monday is 0.
    Weekday(u8),
    /// A period or an incomplete date.
    Vague,
}

impl DateExpression {
    /// Returns true if the day does not depend on today.
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Absolute { year: Some(_), .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOfDay {
    /// Hour, from 0 to 23.
    pub hour: u8,
    pub minute: u8,
}

/// A calendar date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalendarDate {
    pub year: i16,
    /// Month, starting at 1.
    pub month: u8,
    /// Day, starting at 1.
    pub day: u8,
}

impl CalendarDate {
    /// Resolves a day as written, with `self` as today. Returns `None` if it is vague or does not exist.
    pub fn resolve(self, said: DateExpression) -> Option<Self> {
        match said {
            DateExpression::Absolute { year, month, day } => {
                let date = Self { year: year.unwrap_or(self.year), month, day };
                (Self::from_day_number(date.day_number()) == date).then_some(date)
            }
            DateExpression::Relative(days) => {
                Some(Self::from_day_number(self.day_number() + i64::from(days)))
            }
            DateExpression::Weekday(at) => {
                // 1 January 1970 was a Thursday.
                let ahead = (i64::from(at) - (self.day_number() + 3)).rem_euclid(7);
                Some(Self::from_day_number(self.day_number() + if ahead == 0 { 7 } else { ahead }))
            }
            DateExpression::Vague => None,
        }
    }

    /// Returns the days since 1 January 1970: Howard Hinnant's algorithm, in which years start in March.
    fn day_number(self) -> i64 {
        let year = i64::from(self.year) - i64::from(self.month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((i64::from(self.month) + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }

    /// Returns the date a number of days after 1 January 1970.
    pub fn from_day_number(number: i64) -> Self {
        let number = number + 719_468;
        let (era, of_era) = (number.div_euclid(146_097), number.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let shifted = (5 * of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let year = era * 400 + year + i64::from(month <= 2);
        Self { year: year as i16, month: month as u8, day: day as u8 }
    }
}

impl std::fmt::Display for CalendarDate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day } = self;
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// Parses the time at the start of `words`, and returns the number of words it takes.
pub(super) fn parse_time(words: &[TextWord<'_>]) -> Option<(usize, TimeOfDay)> {
    let first = words[0].lower();
    match first.as_str() {
        "noon" | "midday" => return Some((1, TimeOfDay { hour: 12, minute: 0 })),
        "midnight" => return Some((1, TimeOfDay { hour: 0, minute: 0 })),
        _ => {}
    }
    let digits =
        first.len() - first.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ':').len();
    let (figures, half) = first.split_at(digits);
    let (hour, minute) = match figures.split_once(':') {
        Some((hour, minute)) => (hour.parse().ok()?, Some(minute.get(..2)?.parse().ok()?)),
        None => (figures.parse::<u8>().ok()?, None),
    };
    let next = words.get(1).map(|word| word.lower()).unwrap_or_default();
    let (count, half) = if half.is_empty() { (2, parse_am_pm(&next)) } else { (1, parse_am_pm(half)) };
    let (count, half) = match half {
        Some(half) => (count, Some(half)),
        None if next == "o'clock" => (2, None),
        None => match part_of_day(words) {
            Some(half) => (4, Some(half)),
            None if minute.is_some() => (1, None),
            None => return None,
        },
    };
    let hour = match half {
        Some(true) if hour < 12 => hour + 12,
        Some(false) if hour == 12 => 0,
        _ => hour,
    };
    let minute = minute.unwrap_or(0);
    (hour < 24 && minute < 60).then_some((count, TimeOfDay { hour, minute }))
}

/// Returns true for p.m., false for a.m.
fn parse_am_pm(word: &str) -> Option<bool> {
    match word {
        "am" | "a.m" | "a.m." => Some(false),
        "pm" | "p.m" | "p.m." => Some(true),
        _ => None,
    }
}

/// Parses `10 in the morning`. Returns true for the second half of the day.
fn part_of_day(words: &[TextWord<'_>]) -> Option<bool> {
    let [_, within, the, part, ..] = words else { return None };
    if (within.lower().as_str(), the.lower().as_str()) != ("in", "the") {
        return None;
    }
    match part.lower().as_str() {
        "morning" => Some(false),
        "afternoon" | "evening" => Some(true),
        _ => None,
    }
}

/// Parses the day at the start of `words`, and returns the number of words it takes.
pub(super) fn parse_day(words: &[TextWord<'_>]) -> Option<(usize, DateExpression)> {
    let first = words[0].lower();
    let second = words.get(1).map(|word| word.lower()).unwrap_or_default();
    let from_today = match first.as_str() {
        "today" | "tonight" => Some(0),
        "tomorrow" => Some(1),
        "yesterday" => Some(-1),
        _ => None,
    };
    if let Some(days) = from_today {
        return Some((1, DateExpression::Relative(days)));
    }
    if let Some(at) = weekday(&first) {
        // A weekday before a date adds nothing.
        return Some(match words.get(1..).filter(|rest| !rest.is_empty()).and_then(parse_day) {
            Some((count, day @ DateExpression::Absolute { .. })) => (count + 1, day),
            _ => (1, DateExpression::Weekday(at)),
        });
    }
    if ["next", "this", "last", "coming"].contains(&first.as_str()) {
        if let Some(at) = weekday(&second) {
            return Some((2, DateExpression::Weekday(at)));
        }
        if ["week", "weekend", "month", "year", "morning", "afternoon", "evening"].contains(&second.as_str())
        {
            return Some((2, DateExpression::Vague));
        }
    }
    if let Some(day) = parse_numeric_date(&first) {
        return Some((1, day));
    }
    if let Some(month) = month(words[0].bare(), &first) {
        return after_month(words, month);
    }
    let number = ordinal(&first).or_else(|| first.parse().ok().filter(|number| (1..=31).contains(number)))?;
    let skip = usize::from(second == "of");
    let named = words.get(1 + skip).and_then(|word| month(word.bare(), &word.lower()));
    match named {
        Some(month) => {
            let (more, year) = year_after(&words[1 + skip..]);
            Some((2 + skip + more, DateExpression::Absolute { year, month, day: number }))
        }
        None if ordinal(&first).is_some() && first.len() > 2 => Some((1, DateExpression::Vague)),
        None => None,
    }
}

/// Returns true if a word is the name of a month or a weekday.
pub(super) fn is_month_or_day(lower: &str) -> bool {
    weekday(lower).is_some() || MONTHS.contains(&lower)
}

fn weekday(lower: &str) -> Option<u8> {
    WEEKDAYS.iter().zip(0..).find_map(|(name, at)| (*name == lower).then_some(at))
}

/// Parses the name of a month or its first three letters. `may` and `march` are ordinary words too, and count as months
/// only if capitalised.
fn month(bare: &str, lower: &str) -> Option<u8> {
    let is_named = bare.starts_with(char::is_uppercase) || !["may", "march", "mar"].contains(&lower);
    let matches = |name: &str| lower == name || (lower.len() == 3 && name.starts_with(lower));
    MONTHS.iter().zip(1..).find_map(|(name, at)| (is_named && matches(name)).then_some(at))
}

/// Parses `April 5th, 2023`, `April 2023`, `April`.
fn after_month(words: &[TextWord<'_>], month: u8) -> Option<(usize, DateExpression)> {
    let number = words.get(1).map(|word| word.lower()).unwrap_or_default();
    let number = ordinal(&number).or_else(|| number.parse().ok().filter(|number| (1..=31).contains(number)));
    let Some(day) = number else {
        let (more, year) = year_after(words);
        return year.map(|_| (1 + more, DateExpression::Vague));
    };
    let (more, year) = year_after(&words[1..]);
    Some((2 + more, DateExpression::Absolute { year, month, day }))
}

/// Parses the year after the first word, and returns the number of words it takes.
fn year_after(words: &[TextWord<'_>]) -> (usize, Option<i16>) {
    let year =
        words.get(1).and_then(|word| word.bare().parse().ok()).filter(|year| (1000..3000).contains(year));
    (usize::from(year.is_some()), year)
}

/// Parses `5th`.
fn ordinal(lower: &str) -> Option<u8> {
    let number = ["st", "nd", "rd", "th"].iter().find_map(|ending| lower.strip_suffix(ending))?;
    number.parse().ok().filter(|day| (1..=31).contains(day))
}

/// Parses `2023-04-05`, and dates with the month or the day first, which are ambiguous.
fn parse_numeric_date(lower: &str) -> Option<DateExpression> {
    let parts: Vec<&str> = lower.split(['-', '/', '.']).collect();
    let [first, second, third] = parts[..] else { return None };
    let number = |text: &str| text.parse::<u8>().ok();
    let of = |year: &str, month, day| {
        let year = year.parse::<i16>().ok().filter(|year| (1000..3000).contains(year))?;
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(DateExpression::Absolute {
            year: Some(year),
            month,
            day,
        })
    };
    match (first.len(), third.len()) {
        (4, _) => of(first, number(second)?, number(third)?),
        // The day comes first if the separator is a dot, or if the first number cannot be a month.
        (_, 4) if lower.contains('.') => of(third, number(second)?, number(first)?),
        (_, 4) => {
            of(third, number(first)?, number(second)?).or_else(|| of(third, number(second)?, number(first)?))
        }
        _ => None,
    }
}
