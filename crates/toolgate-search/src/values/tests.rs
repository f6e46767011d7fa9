//! Tests of the values found in sentences.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let found: Vec<String> = find_values(text)
        .iter()
        .map(|span| {
            let kind = match &span.kind {
                SpanKind::Number(number) => format!("number {number}"),
                SpanKind::Date(DateExpression::Absolute { year, month, day }) => {
                    format!("date {}-{month}-{day}", year.map_or("?".to_owned(), |year| year.to_string()))
                }
                SpanKind::Date(other) => format!("date {other:?}"),
                SpanKind::Time(TimeOfDay { hour, minute }) => format!("time {hour}:{minute:02}"),
                other => format!("{other:?}").to_lowercase(),
            };
            format!("{kind}|{}", span.text)
        })
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn finds_days() {
    check("on 2023-03-02", &["date 2023-3-2|2023-03-02"]);
    check("on April 5th, 2023?", &["date 2023-4-5|April 5th, 2023"]);
    check("the 10th of March 2023", &["date 2023-3-10|10th of March 2023"]);
    check("on 4 May", &["date ?-5-4|4 May"]);
    check(
        "31.12.2024 or 12/31/2024 or 31/12/2024",
        &["date 2024-12-31|31.12.2024", "date 2024-12-31|12/31/2024", "date 2024-12-31|31/12/2024"],
    );
    check("tomorrow", &["date Relative(1)|tomorrow"]);
    check("next Friday", &["date Weekday(4)|next Friday"]);
    check("on Friday 2024-12-01", &["date 2024-12-1|Friday 2024-12-01"]);
    check("until the 12th", &["date Vague|12th"]);
    check("you may march", &[]);
}

#[test]
fn finds_times() {
    check("at 10:30", &["time 10:30|10:30"]);
    check("from 7 PM to 9pm", &["time 19:00|7 PM", "time 21:00|9pm"]);
    check("at 12 a.m.", &["time 0:00|12 a.m"]);
    check("at 10 in the morning", &["time 10:00|10 in the morning"]);
    check("at noon", &["time 12:00|noon"]);
    check("at 25:00 or 10:99", &["code|25:00", "code|10:99"]);
}

#[test]
fn finds_numbers() {
    check("$1,250.50 and -3 and 20%", &["number 1250.5|$1,250.50", "number -3|-3", "number 20|20%"]);
    check("a table for four", &["number 4|four"]);
    check("order #123", &["number 123|#123"]);
    check("a 20-sided die", &["number 20|20-sided"]);
    check("a 74-year-old at 440Hz", &["number 74|74-year-old", "number 440|440Hz"]);
    check("10 m^3 at 300K, model X300K", &["number 10|10", "code|m^3", "number 300|300K", "code|X300K"]);
}

#[test]
fn finds_urls_and_names() {
    check("from Anaheim, CA to Berkeley, CA.", &["name|Anaheim, CA", "name|Berkeley, CA"]);
    check("Show New York", &["name|New York"]);
    check("Show the weather", &[]);
    check("USD to SEK", &["name|USD", "name|SEK"]);
    check(
        "write to ann@example.org about https://example.org",
        &["email|ann@example.org", "url|https://example.org"],
    );
    check("read /etc/hosts and notes.md", &["path|/etc/hosts", "path|notes.md"]);
    check("click #buy-now, then .login-btn", &["code|#buy-now", "code|.login-btn"]);
    check("session_1 of rust-lang/rust", &["code|session_1", "code|rust-lang/rust"]);
    check("Tell Ann, Bob and I", &["name|Ann", "name|Bob"]);
    check("the product ID SK123", &["name|ID", "code|SK123"]);
}

#[test]
fn finds_quotations_in_text() {
    check("say 'it is May 4' to \"Ann Lee\"", &["quoted|it is May 4", "quoted|Ann Lee"]);
    check("what's Ann's name?", &["name|Ann's"]);
    check("replace “a” with `b`", &["quoted|a", "quoted|b"]);
    check("an open ' quote", &[]);
}

#[test]
fn resolves_days_against_today() {
    let today = CalendarDate { year: 2024, month: 2, day: 28 }; // A Wednesday.
    for (text, expected) in [
        ("today", Some("2024-02-28")),
        ("tomorrow", Some("2024-02-29")),
        ("yesterday", Some("2024-02-27")),
        ("on Thursday", Some("2024-02-29")),
        ("on Wednesday", Some("2024-03-06")),
        ("next Monday", Some("2024-03-04")),
        ("April 5th", Some("2024-04-05")),
        ("2023-02-29", None),
        ("next week", None),
    ] {
        let said = find_values(text).remove(0).kind;
        let SpanKind::Date(day) = said else { panic!("{text}: {said:?}") };
        assert_eq!(today.resolve(day).map(|date| date.to_string()).as_deref(), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn consecutive_day_numbers_are_consecutive_days(year in 1600_i16..2400, month in 1_u8..=12, day in 1_u8..=28) {
        let date = CalendarDate { year, month, day };
        let next = date.resolve(DateExpression::Relative(1)).unwrap();
        prop_assert_eq!(next.resolve(DateExpression::Relative(-1)), Some(date));
        prop_assert_eq!(date.resolve(DateExpression::Absolute { year: Some(year), month, day }), Some(date));
    }

    #[test]
    fn spans_of_any_text_are_in_order(text in "[ -~äß“”‘’\n]{0,120}") {
        let mut before = 0;
        for span in find_values(&text) {
            prop_assert!(span.range.start >= before, "{:?}", span);
            prop_assert!(span.range.end <= text.len());
            prop_assert!(text.is_char_boundary(span.range.start) && text.is_char_boundary(span.range.end));
            before = span.range.end;
        }
    }
}

#[test]
fn removes_quotations_of_several_words() {
    for (text, left) in [
        ("count the words of 'to be or not'", "count the words of "),
        ("say \"good night\" and “sleep well”!", "say  and !"),
        ("press 'Save'", "press 'Save'"),
        ("what's on John's list", "what's on John's list"),
    ] {
        assert_eq!(remove_quotations(text), left, "{text}");
    }
}

/// The parser meets any text: unclosed quotes, characters of every script, invalid dates. Mutations of valid sentences
/// reach more code than random text.
#[test]
fn parses_mutated_sentences() {
    let seeds = [
        "book a table for 4 at 'Da Enzo' on March 3rd at 7:30 pm for ann@example.org",
        "how many words are in \"the quick brown fox\"? see https://example.org/a?b=c and ./notes/a_b.txt",
        "send 1,200.50€ to 12 Long Street, Berkeley, CA by 2026-02-30, or the day after tomorrow",
        "set `max_size` to -5 and the colour to “dark green”; use #id .class $VAR v1.2.3 next friday 24:61",
        "verschiebe das Treffen vom 31.12. auf 9 Uhr – 読むfile ‘x’ İstanbul ß \u{1f600} e\u{301}",
    ];
    let entry = |schema: serde_json::Value| crate::entry::ToolEntry {
        name: "do_it".to_owned(),
        description: "Does something with a text, a day and a number.".to_owned(),
        parameters: crate::entry::ToolParameter::from_schema(&schema),
        ..crate::entry::ToolEntry::default()
    };
    let all = entry(serde_json::json!({ "required": ["text", "count", "day"], "properties": {
        "text": { "type": "string" }, "count": { "type": "integer" }, "day": { "type": "string", "format": "date" },
        "email": { "type": "string", "format": "email" }, "colour": { "enum": ["dark green", "red"] },
        "paths": { "type": "array", "items": { "type": "string" } } } }));
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below.max(1) as u64).unwrap()
    };
    let odd = [
        '\'',
        '"',
        '`',
        '“',
        '”',
        '’',
        ' ',
        '\n',
        '.',
        ',',
        ':',
        '/',
        '-',
        '0',
        'İ',
        '\u{301}',
        '\u{1f600}',
        '\0',
    ];
    for number in 0..400 {
        let mut letters: Vec<char> = seeds[number % seeds.len()].chars().collect();
        for _ in 0..=next(6) {
            let at = next(letters.len());
            match next(4) {
                0 => letters.insert(at, odd[next(odd.len())]),
                1 => drop(letters.remove(at)),
                2 => letters[at] = odd[next(odd.len())],
                _ => letters.extend_from_within(at..),
            }
        }
        let text: String = letters.into_iter().collect();
        let spans = find_values(&text);
        let mut end = 0;
        for span in &spans {
            assert!(span.range.start >= end && span.range.end <= text.len(), "{text:?}: {spans:?}");
            assert!(
                text.is_char_boundary(span.range.start) && text.is_char_boundary(span.range.end),
                "{text:?}"
            );
            end = span.range.end;
        }
        assert!(remove_quotations(&text).len() <= text.len());
        let given = crate::arguments::ExtractedArguments::extract(
            &text,
            &all,
            Some(CalendarDate::from_day_number(20_000)),
        );
        for name in &given.missing {
            assert!(!given.values.contains_key(name), "{text:?}: {given:?}");
        }
    }
    // As many quotes as fit must not take long either.
    let quotes = "'a ".repeat(1_300);
    assert!(find_values(&quotes).len() <= quotes.len());
}
