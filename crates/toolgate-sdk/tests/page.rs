//! The code of docs/sdk.md. A test of the executable compares the page with this file, word for word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_sdk::hints::{Severity, SourceQuality, ValidityPeriod};
use toolgate_sdk::testing::{Harness, check_examples};
use toolgate_sdk::{Answer, Hints, Id, ToolError, Tools, json, tool};

#[derive(Deserialize, JsonSchema)]
struct Params {
    /// The text to be counted.
    text: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Count {
    words: usize,
}

/// Counts the words of a text. Use it before a text is sent where there is a limit. Returns the number.
#[tool(
    version = "1.0.0", category = analysis, response_time = fast, idempotent = true,
    cacheable = false, permissions = [], tags = ["text"],
    example(description = "Two words", params = { "text": "good morning" }, result = { "words": 2 })
)]
fn count_words(params: Params) -> Result<Count, ToolError> {
    Ok(Count { words: params.text.split_whitespace().count() })
}

fn tools() -> Tools {
    Tools::new("words", "1.0.0").with(count_words_tool().expect("a contract")).expect("one tool")
}

#[tokio::test]
async fn every_example_holds() {
    check_examples(tools).await; // each on tools of its own
}

#[tokio::test]
async fn a_call() {
    let called = Harness::new(tools()).call("count-words", json!({ "text": "a b" })).await;
    assert_eq!(called.data::<Count>().words, 2); // or called.error().code, called.hints(), called.suggests("…")
}

enum Deck {}

#[derive(Serialize, JsonSchema)]
struct Card {
    deck_id: Id<Deck>,
}

fn reviewed(card: Card) -> Result<Answer<Card>, ToolError> {
    let hints = Hints::new()
        .factor(0.9, "the schedule is an estimate") // confidence is the product of such factors
        .next("review-card", Severity::High, "Say how well it was known.")
        .related("deck", &card.deck_id, "Deck of the card", 1.0)
        .source(SourceQuality::High)
        .valid(ValidityPeriod::Long);
    Ok(Answer::new(card, hints))
}

#[test]
fn an_answer_with_hints() {
    assert!(reviewed(Card { deck_id: Id::new("spanish").unwrap() }).is_ok());
}

mod program {
    use super::{Tools, count_words_tool};

    #[tokio::main]
    async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let tools = Tools::new("words", env!("CARGO_PKG_VERSION")).with(count_words_tool()?)?;
        toolgate_sdk::serve(tools).await?;
        Ok(())
    }

    // Its type; it would wait for a client.
    const _: fn() -> Result<(), Box<dyn std::error::Error + Send + Sync>> = main;
}

#[derive(Deserialize, JsonSchema)]
struct Undocumented {
    text: String,
}

/// Counts the words of a text. Use it before a text is sent where there is a limit. Returns the number.
#[tool(
    name = "count-words", version = "1.0.0", category = analysis, response_time = fast, idempotent = true,
    cacheable = false, permissions = [], tags = ["text"],
    example(description = "Two words", params = {}, result = { "words": 2 })
)]
fn count_undocumented(params: Undocumented) -> Result<Count, ToolError> {
    Ok(Count { words: params.text.split_whitespace().count() })
}

#[test]
fn a_broken_contract_names_every_rule() {
    let error = count_undocumented_tool().map(drop).unwrap_err().to_string();
    let page = include_str!("../../../docs/sdk.md");
    assert!(page.contains(&format!("```text\n{}\n```", error.trim_end())), "{error}");
}
