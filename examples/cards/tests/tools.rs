//! Calls the tools in the same process: results, hints and errors.

use cards::store::{Card, Deck, Grade, MAX_DECK_SIZE, Review, Store};
use cards::{CreateCard, GetCard, ReviewCard, tools};
use toolgate_sdk::hints::WarningKind;
use toolgate_sdk::testing::{Harness, check_examples};
use toolgate_sdk::{Page, Tools, json};

fn sample() -> Tools {
    tools(&Store::sample().expect("the sample data is valid")).expect("the tools fulfil the contract")
}

#[tokio::test]
async fn examples_pass() {
    check_examples(sample).await;
}

#[tokio::test]
async fn reviews_change_the_level_of_a_card() {
    let harness = Harness::new(sample());
    let deck_id = "spanish".parse().expect("an id");
    let params = CreateCard { deck_id, front: "el gato".to_owned(), back: "the cat".to_owned() };
    let created = harness.call("create-card", params).await;
    let card: Card = created.data();
    assert_eq!((card.level, card.metadata.created_by.as_deref()), (1, Some("test")));
    assert!(created.suggests("review-card"));

    let mut confidence = Vec::new();
    for (grade, level, days) in [(Grade::Good, 2, 2), (Grade::Hard, 2, 2), (Grade::Again, 1, 1)] {
        let called = harness.call("review-card", ReviewCard { card_id: card.id.clone(), grade }).await;
        let review: Review = called.data();
        assert_eq!((review.level, review.due_in_days), (level, days), "{grade:?}");
        assert_eq!(called.suggests("get-card"), grade == Grade::Again);
        confidence.push(called.hints().confidence);
    }
    assert!(confidence.is_sorted(), "confidence grows with the number of reviews: {confidence:?}");
    let now: Card = harness.call("get-card", GetCard { card_id: card.id }).await.data();
    assert!(now.level == 1 && now.metadata.updated_at.is_some());
}

#[tokio::test]
async fn searches_sorts_and_paginates_decks() {
    let harness = Harness::new(sample());
    let titles = async |arguments| {
        let page: Page<Deck> = harness.call("search-decks", arguments).await.data();
        page.items.into_iter().map(|deck| deck.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(titles(json!({})).await, ["capitals", "spanish"]);
    assert_eq!(titles(json!({ "sortOrder": "desc" })).await, ["spanish", "capitals"]);
    assert_eq!(titles(json!({ "text": "BEGINNERS" })).await, ["spanish"]);
    assert_eq!(titles(json!({ "limit": 1, "cursor": "1" })).await, ["spanish"]);
    assert_eq!(titles(json!({ "created": { "from": "2026-02-01T00:00:00Z" } })).await, ["capitals"]);
}

#[tokio::test]
async fn errors_suggest_a_next_action() {
    let harness = Harness::new(sample());
    let backwards = json!({ "created": { "from": "2026-02-01T00:00:00Z", "to": "2026-01-01T00:00:00Z" } });
    for (tool, arguments, code) in [
        ("get-card", json!({ "cardId": "card-99" }), "not_found"),
        ("get-card", json!({ "cardId": "" }), "invalid_arguments"),
        ("get-card", json!({ "card": "card-1" }), "invalid_arguments"),
        ("create-card", json!({ "deckId": "cooking", "front": "a", "back": "b" }), "not_found"),
        ("create-card", json!({ "deckId": "spanish", "front": "", "back": "b" }), "invalid_arguments"),
        ("review-card", json!({ "cardId": "card-1", "grade": "perfect" }), "invalid_arguments"),
        ("search-decks", json!({ "limit": 101 }), "invalid_arguments"),
        ("search-decks", json!({ "cursor": "somewhere" }), "invalid_arguments"),
        ("search-decks", backwards, "invalid_arguments"),
    ] {
        let called = harness.call(tool, &arguments).await;
        assert_eq!(called.error().code, code, "{tool} {arguments}");
        assert!(!called.hints().suggested_next_actions.is_empty(), "{tool} {arguments}");
    }
}

#[tokio::test]
async fn limits_deck_size_and_warns_of_duplicates() {
    let harness = Harness::new(sample());
    let params = json!({ "deckId": "spanish", "front": "la casa", "back": "the home" });
    let duplicate = harness.call("create-card", &params).await;
    assert!(duplicate.hints().warnings.iter().any(|warning| warning.kind == WarningKind::Duplicate));
    for _ in 3..MAX_DECK_SIZE {
        harness.call("create-card", &params).await.data::<Card>();
    }
    assert_eq!(harness.call("create-card", &params).await.error().code, "deck_full");
}
