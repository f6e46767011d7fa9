//! Days and times of day, as people say them in English.
//!
//! Invariant: no clock. What depends on the day of today stays what was said, until somebody who knows it asks.

use super::Word;

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

/// A day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Day {
    /// With its year, or in this one.
    Of {
        /// The year, where it was said.
        year: Option<i16>,
        /// The month, from 1.
        month: u8,
        /// The day, from 1.
        day: u8,
    },
    /// So many days from today.
    FromToday(i8),
    /// The next of such days: Monday is 0.
    Weekday(u8),
    /// A day or a time that is meant by more or less than this.
    Vague,
}

impl Day {
    /// Whether it is the same day whenever it is said.
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Of { year: Some(_), .. })
    }
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// The hour, from 0 to 23.
    pub hour: u8,
    /// The minute.
    pub minute: u8,
}

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// The year.
    pub year: i16,
    /// The month, from 1.
    pub month: u8,
    /// The day, from 1.
    pub day: u8,
}

impl Date {
    /// The day that was meant by who said it on this one; `None` for one that is not plain, or not in the calendar.
    pub fn meant(self, said: Day) -> Option<Self> {
        match said {
            Day::Of { year, month, day } => {
                let date = Self { year: year.unwrap_or(self.year), month, day };
                (Self::of_number(date.number()) == date).then_some(date)
            }
            Day::FromToday(days) => Some(Self::of_number(self.number() + i64::from(days))),
            Day::Weekday(at) => {
                // The first day of 1970 was a Thursday.
                let ahead = (i64::from(at) - (self.number() + 3)).rem_euclid(7);
                Some(Self::of_number(self.number() + if ahead == 0 { 7 } else { ahead }))
            }
            Day::Vague => None,
        }
    }

    /// Days since the first of 1970: Howard Hinnant's algorithm, in years that begin in March.
    fn number(self) -> i64 {
        let year = i64::from(self.year) - i64::from(self.month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((i64::from(self.month) + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }

    /// The day that is so many days after the first of 1970.
    pub fn of_number(number: i64) -> Self {
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

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day } = self;
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// The time that words begin with, and how many of them it takes.
pub(super) fn clock(words: &[Word<'_>]) -> Option<(usize, Clock)> {
    let first = words[0].lower();
    match first.as_str() {
        "noon" | "midday" => return Some((1, Clock { hour: 12, minute: 0 })),
        "midnight" => return Some((1, Clock { hour: 0, minute: 0 })),
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
    let (count, half) = if half.is_empty() { (2, half_of(&next)) } else { (1, half_of(half)) };
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
    (hour < 24 && minute < 60).then_some((count, Clock { hour, minute }))
}

/// Whether it is the second half of the day.
fn half_of(word: &str) -> Option<bool> {
    match word {
        "am" | "a.m" | "a.m." => Some(false),
        "pm" | "p.m" | "p.m." => Some(true),
        _ => None,
    }
}

/// `10 in the morning`.
fn part_of_day(words: &[Word<'_>]) -> Option<bool> {
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

/// The day that words begin with, and how many of them it takes.
pub(super) fn day(words: &[Word<'_>]) -> Option<(usize, Day)> {
    let first = words[0].lower();
    let second = words.get(1).map(|word| word.lower()).unwrap_or_default();
    let from_today = match first.as_str() {
        "today" | "tonight" => Some(0),
        "tomorrow" => Some(1),
        "yesterday" => Some(-1),
        _ => None,
    };
    if let Some(days) = from_today {
        return Some((1, Day::FromToday(days)));
    }
    if let Some(at) = weekday(&first) {
        // A weekday before a date says nothing more.
        return Some(match words.get(1..).filter(|rest| !rest.is_empty()).and_then(day) {
            Some((count, day @ Day::Of { .. })) => (count + 1, day),
            _ => (1, Day::Weekday(at)),
        });
    }
    if ["next", "this", "last", "coming"].contains(&first.as_str()) {
        if let Some(at) = weekday(&second) {
            return Some((2, Day::Weekday(at)));
        }
        if ["week", "weekend", "month", "year", "morning", "afternoon", "evening"].contains(&second.as_str())
        {
            return Some((2, Day::Vague));
        }
    }
    if let Some(day) = figures(&first) {
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
            Some((2 + skip + more, Day::Of { year, month, day: number }))
        }
        None if ordinal(&first).is_some() && first.len() > 2 => Some((1, Day::Vague)),
        None => None,
    }
}

/// Whether a word names a month or a day of the week.
pub(super) fn is_month_or_day(lower: &str) -> bool {
    weekday(lower).is_some() || MONTHS.contains(&lower)
}

fn weekday(lower: &str) -> Option<u8> {
    WEEKDAYS.iter().zip(0..).find_map(|(name, at)| (*name == lower).then_some(at))
}

/// A month by its name or the first three letters of it. `may` and `march` are words too, and no month without a
/// capital.
fn month(bare: &str, lower: &str) -> Option<u8> {
    let is_named = bare.starts_with(char::is_uppercase) || !["may", "march", "mar"].contains(&lower);
    let matches = |name: &str| lower == name || (lower.len() == 3 && name.starts_with(lower));
    MONTHS.iter().zip(1..).find_map(|(name, at)| (is_named && matches(name)).then_some(at))
}

/// `April 5th, 2023`, `April 2023`, `April`.
fn after_month(words: &[Word<'_>], month: u8) -> Option<(usize, Day)> {
    let number = words.get(1).map(|word| word.lower()).unwrap_or_default();
    let number = ordinal(&number).or_else(|| number.parse().ok().filter(|number| (1..=31).contains(number)));
    let Some(day) = number else {
        let (more, year) = year_after(words);
        return year.map(|_| (1 + more, Day::Vague));
    };
    let (more, year) = year_after(&words[1..]);
    Some((2 + more, Day::Of { year, month, day }))
}

/// The year that follows the first of words.
fn year_after(words: &[Word<'_>]) -> (usize, Option<i16>) {
    let year =
        words.get(1).and_then(|word| word.bare().parse().ok()).filter(|year| (1000..3000).contains(year));
    (usize::from(year.is_some()), year)
}

/// `5th`.
fn ordinal(lower: &str) -> Option<u8> {
    let number = ["st", "nd", "rd", "th"].iter().find_map(|ending| lower.strip_suffix(ending))?;
    number.parse().ok().filter(|day| (1..=31).contains(day))
}

/// `2023-04-05`, and days that others write with the month first or last, which are told apart only by chance.
fn figures(lower: &str) -> Option<Day> {
    let parts: Vec<&str> = lower.split(['-', '/', '.']).collect();
    let [first, second, third] = parts[..] else { return None };
    let number = |text: &str| text.parse::<u8>().ok();
    let of = |year: &str, month, day| {
        let year = year.parse::<i16>().ok().filter(|year| (1000..3000).contains(year))?;
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(Day::Of {
            year: Some(year),
            month,
            day,
        })
    };
    match (first.len(), third.len()) {
        (4, _) => of(first, number(second)?, number(third)?),
        // The first number is the day where dots part them, or where it can be nothing else.
        (_, 4) if lower.contains('.') => of(third, number(second)?, number(first)?),
        (_, 4) => {
            of(third, number(first)?, number(second)?).or_else(|| of(third, number(second)?, number(first)?))
        }
        _ => None,
    }
}
