//! The decks and cards, in memory. A real service would have a database here; its tools would look the same.
//!
//! Invariant: a card is in a deck that exists, and a deck has at most [`LARGEST_DECK`] cards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_sdk::{Id, Metadata, Timestamp, ToolError};

/// More cards than this nobody learns from one deck.
pub const LARGEST_DECK: usize = 100;
/// Days until a card is due again, by its box.
const DAYS: [u32; 5] = [1, 2, 4, 8, 16];

/// A card: a question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// Its id.
    pub id: Id<Card>,
    /// The deck it is in.
    pub deck_id: Id<Deck>,
    /// The question.
    pub front: String,
    /// The answer.
    pub back: String,
    /// How well it is known, from 1 to 5: the box of Leitner's system.
    #[schemars(range(min = 1, max = 5))]
    pub level: u8,
    /// What else is known of it.
    pub metadata: Metadata,
}

/// A deck of cards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deck {
    /// Its id.
    pub id: Id<Deck>,
    /// Its title.
    pub title: String,
    /// How many cards are in it.
    pub cards: usize,
    /// What else is known of it.
    pub metadata: Metadata,
}

/// How well a card was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Not at all: back to the first box.
    Again,
    /// With trouble: it stays.
    Hard,
    /// Well: on to the next box.
    Good,
}

/// A card after a review.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// The card.
    pub card_id: Id<Card>,
    /// How well it is known now, from 1 to 5.
    pub level: u8,
    /// When to review it again.
    pub due_in_days: u32,
    /// Reviews of it so far.
    pub reviews: u32,
}

#[derive(Debug, Default)]
struct Inner {
    decks: BTreeMap<Id<Deck>, Deck>,
    cards: BTreeMap<Id<Card>, Card>,
    reviews: BTreeMap<Id<Card>, u32>,
}

/// All decks and cards. Clones are the same store.
#[derive(Debug, Clone, Default)]
pub struct Store(Arc<Mutex<Inner>>);

impl Store {
    /// Two decks to begin with.
    ///
    /// # Errors
    /// Never, as long as the ids below are ids.
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
            let made: Timestamp = day.parse().map_err(ToolError::system)?;
            let id: Id<Deck> = deck.parse().map_err(ToolError::system)?;
            let new =
                Deck { id: id.clone(), title: title.to_owned(), cards: 0, metadata: Metadata::new(made) };
            store.inner().decks.insert(id.clone(), new);
            for (front, back) in cards {
                store.create(&id, front, back, Metadata::new(made))?;
            }
        }
        Ok(store)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a card to a deck.
    ///
    /// # Errors
    /// When there is no such deck, or it is full.
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
            return Err(ToolError::not_found("deck", deck).hint("`search-decks` lists the decks there are"));
        };
        if known.cards >= LARGEST_DECK {
            let message = format!("the deck `{deck}` has {LARGEST_DECK} cards already");
            return Err(ToolError::rule("deck_full", message).not_started().hint("choose another deck"));
        }
        known.cards += 1;
        let id: Id<Card> = format!("card-{number}").parse().map_err(ToolError::system)?;
        let (front, back) = (front.to_owned(), back.to_owned());
        let card = Card { id: id.clone(), deck_id: deck.clone(), front, back, level: 1, metadata };
        inner.cards.insert(id, card.clone());
        Ok(card)
    }

    /// A card.
    ///
    /// # Errors
    /// When there is no such card.
    pub fn card(&self, id: &Id<Card>) -> Result<Card, ToolError> {
        self.inner().cards.get(id).cloned().ok_or_else(|| ToolError::not_found("card", id))
    }

    /// Cards with the same question in a deck.
    pub fn same(&self, card: &Card) -> Vec<Card> {
        let is_same =
            |other: &&Card| other.deck_id == card.deck_id && other.front == card.front && other.id != card.id;
        self.inner().cards.values().filter(is_same).cloned().collect()
    }

    /// All decks.
    pub fn decks(&self) -> Vec<Deck> {
        self.inner().decks.values().cloned().collect()
    }

    /// Records how well a card was known.
    ///
    /// # Errors
    /// When there is no such card.
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
