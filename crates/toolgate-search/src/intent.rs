//! Intent: estimates the need behind a query: nothing but words, an action, facts of the present, or a computation.
//!
//! Talk is answered from general knowledge or by writing; everything else looks up, computes or changes something,
//! whatever tools there are. Example sentences of each kind form regions of the embedding space. Invariant: the
//! examples cover kinds of queries, and none is taken from an evaluation set.

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

/// Sharpness of the kernel around an example. Between 8 and 14 the results differ little.
const SHARPNESS: f32 = 10.0;

static EXAMPLES: LazyLock<NeedExamples> = LazyLock::new(|| {
    let embed = |text| sentences(text).filter_map(Embedding::embed);
    let needs = [ACTION_SENTENCES, FRESH_SENTENCES, COMPUTATION_SENTENCES];
    NeedExamples { talk: embed(TALK_SENTENCES).collect(), needs: needs.into_iter().flat_map(embed).collect() }
});
static FRESH_DIRECTION: LazyLock<Option<Embedding>> =
    LazyLock::new(|| Embedding::direction_between(sentences(TALK_SENTENCES), sentences(FRESH_SENTENCES)));
static COMPUTATION_DIRECTION: LazyLock<Option<Embedding>> = LazyLock::new(|| {
    let others = sentences(TALK_SENTENCES).chain(sentences(FRESH_SENTENCES));
    Embedding::direction_between(others, sentences(COMPUTATION_SENTENCES))
});

/// Embeddings of the example queries.
struct NeedExamples {
    /// Those that need no tool.
    talk: Vec<Embedding>,
    /// Those that need one.
    needs: Vec<Embedding>,
}

impl NeedExamples {
    /// Returns the logarithm of the ratio of two kernel densities at a query: of examples that need a tool, and of
    /// those that need none. `without` leaves out one example.
    fn log_ratio(&self, query: &Embedding, without: Option<&Embedding>) -> f32 {
        let density = |examples: &[Embedding]| {
            let others =
                examples.iter().filter(|example| without.is_none_or(|left| !std::ptr::eq(*example, left)));
            let sum: f32 = others.map(|example| (SHARPNESS * query.cosine(example)).exp()).sum();
            sum / examples.len().max(1) as f32
        };
        (density(&self.needs) / density(&self.talk)).ln()
    }
}

/// Returns how much closer a query is to examples that need a tool than to those that need none.
pub(crate) fn need_ratio(query: &Embedding) -> f32 {
    EXAMPLES.log_ratio(query, None)
}

/// Returns the ratio of each example, measured without it, and true if it needs a tool.
pub(crate) fn example_ratios() -> Vec<(f32, bool)> {
    let NeedExamples { talk, needs } = &*EXAMPLES;
    let all = talk.iter().map(|example| (example, false)).chain(needs.iter().map(|example| (example, true)));
    all.map(|(example, needs_tool)| (EXAMPLES.log_ratio(example, Some(example)), needs_tool)).collect()
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
    fn check(query: &str, needs_tool: bool) {
        let ratio = need_ratio(&Embedding::embed(query).unwrap());
        assert_eq!(ratio > 0.0, needs_tool, "{query}: {ratio}");
    }

    #[test]
    fn separates_talk_from_actions() {
        check("why do birds sing?", false);
        check("write a limerick about a cow", false);
        check("what is the meaning of life?", false);
        check("restart the database server", true);
        check("upload the report to the shared drive", true);
        check("book a hotel room", true);
    }

    /// The examples of one kind predict each other: at least 17 of 20 are on their own side without themselves.
    #[test]
    fn examples_are_on_their_own_side() {
        let all = example_ratios();
        let right = all.iter().filter(|(ratio, needs_tool)| (*ratio > 0.0) == *needs_tool).count();
        assert!(right * 20 >= all.len() * 17, "{right} of {}", all.len());
    }
}
