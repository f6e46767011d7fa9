//! In-memory store of decks and cards. A real service would use a database; its tools would look the same.
//!
//! Invariant: every card is in a deck that exists, and a deck has at most [`MAX_DECK_SIZE`] cards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_sdk::{Id, Metadata, Timestamp, ToolError};

/// Maximum number of cards in a deck.
pub const MAX_DECK_SIZE: usize = 100;
/// Days until a card is due again, by level.
const DAYS: [u32; 5] = [1, 2, 4, 8, 16];

/// Card with a question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// ID of the card.
    pub id: Id<Card>,
    /// Deck of the card.
    pub deck_id: Id<Deck>,
    /// Question side.
    pub front: String,
    /// Answer side.
    pub back: String,
    /// Level from 1 (new) to 5 (well known): the box of the Leitner system.
    #[schemars(range(min = 1, max = 5))]
    pub level: u8,
    /// Creation and changes.
    pub metadata: Metadata,
}

/// Deck of cards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deck {
    /// ID of the deck.
    pub id: Id<Deck>,
    /// Title of the deck.
    pub title: String,
    /// Number of cards in the deck.
    pub cards: usize,
    /// Creation and changes.
    pub metadata: Metadata,
}

/// Grade of a review: how well the person knew the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Not at all: back to level 1.
    Again,
    /// With difficulty: stays on its level.
    Hard,
    /// Well: up one level.
    Good,
}

/// Result of a review.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// ID of the card.
    pub card_id: Id<Card>,
    /// New level, from 1 to 5.
    pub level: u8,
    /// Days until the next review.
    pub due_in_days: u32,
    /// Number of reviews so far.
    pub reviews: u32,
}

#[derive(Debug, Default)]
struct StoreInner {
    decks: BTreeMap<Id<Deck>, Deck>,
    cards: BTreeMap<Id<Card>, Card>,
    reviews: BTreeMap<Id<Card>, u32>,
}

/// Store of decks and cards. Clones share the same data.
#[derive(Debug, Clone, Default)]
pub struct Store(Arc<Mutex<StoreInner>>);

impl Store {
    /// Creates a store with two decks.
    ///
    /// # Errors
    /// If an ID or date below is invalid.
    pub fn sample() -> Result<Self, ToolError> {
        let store = Self::default();
        for (deck, title, day, cards) in [
            (
                "spanish",
                "Spanish for beginners",
                "2026-01-15T09:00:00Z",
                [("la casa", "the house"), ("el perro", "the dog")],
            ),
            (
                "capitals",
                "Capitals of Europe",
                "2026-03-01T09:00:00Z",
                [("Portugal", "Lisbon"), ("Norway", "Oslo")],
            ),
        ] {
            let created: Timestamp = day.parse().map_err(ToolError::system)?;
            let id: Id<Deck> = deck.parse().map_err(ToolError::system)?;
            let new =
                Deck { id: id.clone(), title: title.to_owned(), cards: 0, metadata: Metadata::new(created) };
            store.inner().decks.insert(id.clone(), new);
            for (front, back) in cards {
                store.create(&id, front, back, Metadata::new(created))?;
            }
        }
        Ok(store)
    }

    fn inner(&self) -> MutexGuard<'_, StoreInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a card to a deck.
    ///
    /// # Errors
    /// If there is no such deck, or it is full.
    pub fn create(
        &self,
        deck: &Id<Deck>,
        front: &str,
        back: &str,
        metadata: Metadata,
    ) -> Result<Card, ToolError> {
        let mut inner = self.inner();
        let number = inner.cards.len() + 1;
        let Some(known) = inner.decks.get_mut(deck) else {
            return Err(ToolError::not_found("deck", deck).hint("`search-decks` lists the decks"));
        };
        if known.cards >= MAX_DECK_SIZE {
            let message = format!("the deck `{deck}` has {MAX_DECK_SIZE} cards already");
            return Err(ToolError::rule("deck_full", message).not_started().hint("choose another deck"));
        }
        known.cards += 1;
        let id: Id<Card> = format!("card-{number}").parse().map_err(ToolError::system)?;
        let (front, back) = (front.to_owned(), back.to_owned());
        let card = Card { id: id.clone(), deck_id: deck.clone(), front, back, level: 1, metadata };
        inner.cards.insert(id, card.clone());
        Ok(card)
    }

    /// Returns a card.
    ///
    /// # Errors
    /// If there is no such card.
    pub fn card(&self, id: &Id<Card>) -> Result<Card, ToolError> {
        self.inner().cards.get(id).cloned().ok_or_else(|| ToolError::not_found("card", id))
    }

    /// Returns the other cards of the deck with the same question.
    pub fn same_question(&self, card: &Card) -> Vec<Card> {
        let is_same =
            |other: &&Card| other.deck_id == card.deck_id && other.front == card.front && other.id != card.id;
        self.inner().cards.values().filter(is_same).cloned().collect()
    }

    /// Returns all decks.
    pub fn decks(&self) -> Vec<Deck> {
        self.inner().decks.values().cloned().collect()
    }

    /// Records a review and updates the level of the card.
    ///
    /// # Errors
    /// If there is no such card.
    pub fn review(&self, id: &Id<Card>, grade: Grade, now: Timestamp) -> Result<Review, ToolError> {
        let mut inner = self.inner();
        let card = inner.cards.get_mut(id).ok_or_else(|| ToolError::not_found("card", id))?;
        card.level = match grade {
            Grade::Again => 1,
            Grade::Hard => card.level,
            Grade::Good => (card.level + 1).min(5),
        };
        card.metadata.updated_at = Some(now);
        let level = card.level;
        let reviews = inner.reviews.entry(id.clone()).or_default();
        *reviews += 1;
        let due_in_days = DAYS[usize::from(level) - 1];
        Ok(Review { card_id: id.clone(), level, due_in_days, reviews: *reviews })
    }
}
