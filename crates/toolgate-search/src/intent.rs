//! Intent: estimates the need behind a query: nothing but words, an action, facts of the present, or a computation.
//!
//! Talk is answered from general knowledge or by writing; an action looks up or changes something outside, whatever
//! tools there are. Example sentences of each kind form regions of the embedding space, and the difference of the means
//! of two regions is a direction. Invariant: the examples cover kinds of queries, and none is taken from an evaluation
//! set.

use std::sync::LazyLock;

use crate::model::Embedding;

/// Example queries that need no tool.
const TALK_SENTENCES: &str = include_str!("../model/talk.txt");
/// Example queries that need one.
const ACTION_SENTENCES: &str = include_str!("../model/deeds.txt");
/// Example questions that need facts of the present.
const FRESH_SENTENCES: &str = include_str!("../model/fresh.txt");
/// Example queries that need a computation.
const COMPUTATION_SENTENCES: &str = include_str!("../model/computation.txt");

static TALK_DIRECTION: LazyLock<Option<Embedding>> =
    LazyLock::new(|| Embedding::direction_between(sentences(ACTION_SENTENCES), sentences(TALK_SENTENCES)));
static FRESH_DIRECTION: LazyLock<Option<Embedding>> =
    LazyLock::new(|| Embedding::direction_between(sentences(TALK_SENTENCES), sentences(FRESH_SENTENCES)));
static COMPUTATION_DIRECTION: LazyLock<Option<Embedding>> = LazyLock::new(|| {
    let others = sentences(TALK_SENTENCES).chain(sentences(FRESH_SENTENCES));
    Embedding::direction_between(others, sentences(COMPUTATION_SENTENCES))
});

/// Returns the similarity of a query to talk: above 0 it needs no tool, below it needs one.
pub(crate) fn talk_similarity(query: &Embedding) -> f32 {
    similarity(query, &TALK_DIRECTION)
}

/// Returns the similarity of a query to questions about the present.
pub(crate) fn fresh_similarity(query: &Embedding) -> f32 {
    similarity(query, &FRESH_DIRECTION)
}

/// Returns the similarity of a query to computations.
pub(crate) fn computation_similarity(query: &Embedding) -> f32 {
    similarity(query, &COMPUTATION_DIRECTION)
}

fn similarity(query: &Embedding, direction: &Option<Embedding>) -> f32 {
    direction.as_ref().map_or(0.0, |toward| query.cosine(toward))
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, is_talk: bool) {
        let leaning = talk_similarity(&Embedding::embed(query).unwrap());
        assert_eq!(leaning > 0.0, is_talk, "{query}: {leaning}");
    }

    #[test]
    fn separates_talk_from_actions() {
        check("why do birds sing?", true);
        check("write a limerick about a cow", true);
        check("what is the meaning of life?", true);
        check("restart the database server", false);
        check("upload the report to the shared drive", false);
        check("book a hotel room", false);
    }

    /// At least nine of ten examples must be on their own side.
    #[test]
    fn examples_are_on_their_own_side() {
        for (text, is_talk) in [(TALK_SENTENCES, true), (ACTION_SENTENCES, false)] {
            let all: Vec<Embedding> = sentences(text).filter_map(Embedding::embed).collect();
            let right = all.iter().filter(|query| (talk_similarity(query) > 0.0) == is_talk).count();
            assert!(right * 10 >= all.len() * 9, "{right} of {}", all.len());
        }
    }
}
