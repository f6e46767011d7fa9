//! Leaning: whether a query is like those that need no tool, or like those that need one.
//!
//! There is a kind of question that anyone answers from what they know, and a kind of request that is done by writing;
//! and there are those for which something outside is looked up or changed, whatever tools there are. Sentences of both
//! kinds lie in two regions, and the way from one to the other is a direction. Invariant: the sentences are of kinds, and
//! of nobody's measurement.

use std::sync::LazyLock;

use crate::model::Vector;

/// Queries that need no tool.
const TALK: &str = include_str!("../model/talk.txt");
/// Queries that need one.
const DEEDS: &str = include_str!("../model/deeds.txt");

static TOWARD_TALK: LazyLock<Option<Vector>> =
    LazyLock::new(|| Vector::from_to(sentences(DEEDS), sentences(TALK)));

/// How far a query leans toward what needs no tool: above 0 it does, below it needs one.
pub(crate) fn toward_talk(query: &Vector) -> f32 {
    TOWARD_TALK.as_ref().map_or(0.0, |toward| query.nearness(toward))
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, is_talk: bool) {
        let leaning = toward_talk(&Vector::of(query).unwrap());
        assert_eq!(leaning > 0.0, is_talk, "{query}: {leaning}");
    }

    #[test]
    fn talk_and_deeds_are_told_apart() {
        check("why do birds sing?", true);
        check("write a limerick about a cow", true);
        check("what is the meaning of life?", true);
        check("restart the database server", false);
        check("upload the report to the shared drive", false);
        check("book a hotel room", false);
    }

    /// What the sentences are for: nine of ten lie on their own side.
    #[test]
    fn the_sentences_lie_on_their_sides() {
        for (text, is_talk) in [(TALK, true), (DEEDS, false)] {
            let all: Vec<Vector> = sentences(text).filter_map(Vector::of).collect();
            let right = all.iter().filter(|query| (toward_talk(query) > 0.0) == is_talk).count();
            assert!(right * 10 >= all.len() * 9, "{right} of {}", all.len());
        }
    }
}
