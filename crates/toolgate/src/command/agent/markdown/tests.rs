//! Tests of the Markdown renderer.

use super::*;

fn shown_in(columns: usize, text: &str, piece: usize) -> String {
    let mut markdown = Markdown::new(columns);
    let all: Vec<char> = text.chars().collect();
    let mut out: String =
        all.chunks(piece).map(|piece| markdown.push(&piece.iter().collect::<String>(), columns)).collect();
    out.push_str(&markdown.end());
    out.replace('\u{1b}', "^")
}

/// Renders a text in pieces of several sizes.
fn check(columns: usize, text: &str, expected: &str) {
    for piece in [1, 3, 1_000] {
        assert_eq!(shown_in(columns, text, piece), expected, "{text:?} in pieces of {piece}");
    }
}

#[test]
fn renders_marks_as_styles() {
    for (text, expected) in [
        ("plain", "plain\n"),
        ("**bold** and *soft*", "^[1mbold^[0m and ^[3msoft^[0m\n"),
        ("`a * b`", "^[36ma * b^[0m\n"),
        ("# Title\nx", "^[1m^[34mTitle^[0m\nx\n"),
        ("#hash", "#hash\n"),
        ("* item\n- other", "• item\n- other\n"),
        ("2 * 3 ** 4", "2 * 3 ** 4\n"),
        ("**open\nnext", "^[1mopen^[0m\nnext\n"),
        ("```rust\n*x\n```\n*y*", "^[36m```rust\n*x\n```^[0m\n^[3my^[0m\n"),
        ("***both***", "***both***\n"),
        ("a\n\nb\n", "a\n\nb\n"),
    ] {
        check(80, text, expected);
    }
}

#[test]
fn links_show_their_url() {
    for (text, expected) in [
        ("see [the docs](https://a.b/c).", "see ^[34mthe docs^[0m ^[34m(https://a.b/c)^[0m.\n"),
        ("[https://a.b](https://a.b)", "^[34mhttps://a.b^[0m\n"),
        ("**[bank](http://evil.test)** x", "^[1m^[34mbank^[0m^[1m ^[34m(http://evil.test)^[0m^[1m^[0m x\n"),
        ("a[0] and [1], [ ] done", "a[0] and [1], [ ] done\n"),
        ("[never closed\nnext", "[never closed\nnext\n"),
        ("[x]() y", "[x]() y\n"),
        ("`[a](b)`", "^[36m[a](b)^[0m\n"),
        ("[[a](b)", "[^[34ma^[0m ^[34m(b)^[0m\n"),
    ] {
        check(80, text, expected);
    }
}

#[test]
fn words_are_wrapped() {
    check(20, "one two three four five six seven", "one two three four\nfive six seven\n");
    check(20, "- one two three four five", "- one two three four\n  five\n");
    check(20, "  12. one two three four", "  12. one two three\n      four\n");
    check(20, "**one two three four five**", "^[1mone two three four\nfive^[0m\n");
    // Wide characters take two columns.
    check(20, "漢字漢字 漢字漢字 漢字漢字", "漢字漢字 漢字漢字\n漢字漢字\n");
    // Code and long words are not broken.
    check(20, "```\none two three four five six\n```", "^[36m```\none two three four five six\n```^[0m\n");
    check(20, "at https://example.com/a/long/path now", "at\nhttps://example.com/a/long/path now\n");
}

#[test]
fn tables_are_aligned() {
    let table = "| Name | Count |\n|:-----|------:|\n| `ann` | 1 |\n| **bob** | 12 |\nafter";
    check(80, table, "^[1mName^[0m │ ^[1mCount^[0m\n─────┼──────\nann  │     1\nbob  │    12\nafter\n");
    check(
        24,
        "| Tool | About |\n|---|---|\n| get | returns one order of a customer |\n",
        "^[1mTool^[0m │ ^[1mAbout^[0m\n─────┼──────────────────\nget  │ returns one order\n     │ of a customer\n",
    );
    // Not a table.
    check(80, "| a | b\n| c | d\n", "| a | b\n| c | d\n");
    check(80, "```\n| a |\n|---|\n```", "^[36m```\n| a |\n|---|\n```^[0m\n");
    // Missing and extra cells.
    check(80, "|a|b|\n|-|-|\n|1|\n|1|2|3|\n", "^[1ma^[0m │ ^[1mb^[0m\n──┼──\n1 │\n1 │ 2\n");
}

#[test]
fn held_text_is_bounded() {
    for text in ["[".repeat(100_000), "|".repeat(100_000), "`".repeat(100_000), "x".repeat(100_000)] {
        let mut markdown = Markdown::new(80);
        let shown = markdown.push(&text, 80).len();
        assert!(shown > 80_000, "{shown}");
    }
}
