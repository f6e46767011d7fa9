//! Four tools for decks of flash cards: the worked example of `toolgate-sdk`. README.md is its tutorial.
//!
//! Invariant: nothing here knows how the tools are served.

pub mod store;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_sdk::hints::{Severity, SourceQuality, ValidityPeriod, WarningKind};
use toolgate_sdk::{
    Answer, Context, DateRange, Hints, Id, Metadata, Page, Pagination, Sorting, Timestamp, ToolError, Tools,
    tool,
};

use store::{Card, Deck, Grade, Review, Store};

/// Parameters of `create-card`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateCard {
    /// Deck to add the card to; `search-decks` finds it.
    pub deck_id: Id<Deck>,
    /// Question side.
    #[schemars(length(min = 1, max = 500))]
    pub front: String,
    /// Answer side.
    #[schemars(length(min = 1, max = 500))]
    pub back: String,
}

/// Creates a card with a question and its answer in a deck. Use it when a person wants to remember something, such as a
/// word of a language they learn. Returns the card with its ID.
#[tool(
    version = "1.0.0",
    category = mutation,
    response_time = fast,
    idempotent = false,
    cacheable = false,
    permissions = ["cards:create"],
    tags = ["cards", "learning"],
    rate_limit(max_calls = 60, window = "1m"),
    follow_up(action = "review-card", priority = medium, description = "Review it once, while it is new."),
    example(description = "A word of Spanish", params = { "deckId": "spanish", "front": "el gato", "back": "the cat" })
)]
pub fn create_card(store: Store, params: CreateCard, context: Context) -> Result<Answer<Card>, ToolError> {
    let mut metadata = Metadata::new(Timestamp::now());
    metadata.created_by = Some(context.agent_id);
    let card = store.create(&params.deck_id, &params.front, &params.back, metadata)?;
    let mut hints = Hints::new()
        .related("deck", &card.deck_id, "Deck of the card", 1.0)
        .source(SourceQuality::High)
        .valid(ValidityPeriod::Indefinite);
    for same in store.same_question(&card) {
        hints = hints
            .warn(WarningKind::Duplicate, Severity::Low, "another card in the deck has the same question")
            .related("card", &same.id, &same.back, 0.8);
    }
    Ok(Answer::new(card, hints))
}

/// Parameters of `get-card`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetCard {
    /// ID of the card, such as `card-1`.
    pub card_id: Id<Card>,
}

/// Returns a card by its ID, with its question, its answer and its level. Use it to show a card or to check its
/// progress. Fails with `not_found` if there is no such card.
#[tool(
    version = "1.0.0",
    category = query,
    response_time = fast,
    idempotent = true,
    cacheable = false,
    permissions = ["cards:read"],
    tags = ["cards"],
    follow_up(action = "review-card", priority = high, description = "Say how well it was known."),
    example(
        description = "The first card",
        params = { "cardId": "card-1" },
        result = {
            "id": "card-1", "deckId": "spanish", "front": "la casa", "back": "the house", "level": 1,
            "metadata": { "createdAt": "2026-01-15T09:00:00Z" },
        }
    )
)]
pub fn get_card(store: Store, params: GetCard) -> Result<Card, ToolError> {
    store.card(&params.card_id)
}

/// Sort key of decks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeckKey {
    /// Title.
    Title,
    /// Number of cards.
    Cards,
    /// Time of creation.
    Created,
}

/// Parameters of `search-decks`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchDecks {
    /// Part of the title, in any case. Matches all decks if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Time of creation.
    #[serde(default)]
    pub created: DateRange,
    /// Page of the result.
    #[serde(flatten)]
    pub page: Pagination,
    /// Order of the result.
    #[serde(flatten)]
    pub sorting: Sorting<DeckKey>,
}

/// Finds decks of cards by title and time of creation. Use it to find the deck for a new card, or to show what there is
/// to learn. Returns a page of decks, and a cursor if there are more.
#[tool(
    version = "1.0.0",
    category = query,
    response_time = fast,
    idempotent = true,
    cacheable = true,
    cache_ttl = "30s",
    permissions = ["decks:read"],
    tags = ["decks", "search"],
    follow_up(action = "create-card", priority = medium, description = "Add a card to one of the decks."),
    example(
        description = "The newest deck",
        params = { "sortBy": "created", "sortOrder": "desc", "limit": 1 },
        result = {
            "items": [{
                "id": "capitals", "title": "Capitals of Europe", "cards": 2,
                "metadata": { "createdAt": "2026-03-01T09:00:00Z" },
            }],
            "total": 2,
            "nextCursor": "1",
        }
    ),
    example(
        description = "No match",
        params = { "text": "cooking" },
        result = { "items": [], "total": 0 }
    )
)]
pub fn search_decks(store: Store, params: SearchDecks) -> Result<Page<Deck>, ToolError> {
    let text = params.text.unwrap_or_default().to_lowercase();
    let mut decks = store.decks();
    decks.retain(|deck| {
        deck.title.to_lowercase().contains(&text) && params.created.contains(deck.metadata.created_at)
    });
    let Sorting { sort_by, sort_order } = params.sorting;
    decks.sort_by(|a, b| {
        sort_order.apply(match sort_by.unwrap_or(DeckKey::Title) {
            DeckKey::Title => a.title.cmp(&b.title),
            DeckKey::Cards => a.cards.cmp(&b.cards),
            DeckKey::Created => a.metadata.created_at.cmp(&b.metadata.created_at),
        })
    });
    params.page.paginate(decks.into_iter()).map_err(|error| ToolError::invalid(error.to_string()))
}

/// Parameters of `review-card`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewCard {
    /// ID of the reviewed card.
    pub card_id: Id<Card>,
    /// How well the person knew it.
    pub grade: Grade,
}

/// Records how well a person knew a card, and schedules its next review. Use it after a person has answered a card.
/// Returns its new level, from 1 to 5, and the days until it is due.
#[tool(
    version = "1.0.0",
    category = mutation,
    response_time = fast,
    idempotent = false,
    cacheable = false,
    permissions = ["cards:review"],
    tags = ["cards", "learning"],
    example(
        description = "A card that was known",
        params = { "cardId": "card-2", "grade": "good" },
        result = { "cardId": "card-2", "level": 2, "dueInDays": 2, "reviews": 1 }
    )
)]
pub fn review_card(store: Store, params: ReviewCard) -> Result<Answer<Review>, ToolError> {
    let review = store.review(&params.card_id, params.grade, Timestamp::now())?;
    let card = store.card(&params.card_id)?;
    // A few reviews say little about how well a card is really known.
    let reviews = f64::from(review.reviews);
    let hints = Hints::new()
        .factor(reviews / (reviews + 1.0), "number of reviews of the card")
        .source(SourceQuality::High)
        .valid(ValidityPeriod::Long)
        .related("deck", &card.deck_id, "Deck of the card", 1.0)
        .assumes("the grade comes from the person, not from a model")
        .impact(0.85, 0.2);
    let hints = match params.grade {
        Grade::Again => hints.next("get-card", Severity::High, "Show the card again, with its answer."),
        _ => hints.next("search-decks", Severity::Low, "Continue with another deck."),
    };
    Ok(Answer::new(review, hints))
}

/// Returns all four tools, on one store.
///
/// # Errors
/// If the definition of a tool breaks a rule of the contract. The tests check that none does.
pub fn tools(store: &Store) -> Result<Tools, Box<dyn std::error::Error + Send + Sync>> {
    let tools = Tools::new("cards", env!("CARGO_PKG_VERSION"))
        .instructions("Decks of flash cards. Find a deck before you create a card in it.")
        .with(create_card_tool(store.clone())?)?
        .with(get_card_tool(store.clone())?)?
        .with(search_decks_tool(store.clone())?)?
        .with(review_card_tool(store.clone())?)?;
    Ok(tools)
}
