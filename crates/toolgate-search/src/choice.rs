//! The choice: a tool, no tool, or a question to the user; and its confidence.
//!
//! Decides in three steps: does the query need a tool, does the best one fit, does the query contain its arguments. A search of
//! the web and a computation are seldom named in words, so they are chosen by need. A missing argument is a question
//! about the tool, never a doubt about it. Invariant: the confidence is the probability that the choice is right.

use crate::arguments::ExtractedArguments;
use crate::entry::{ToolEntry, ToolPurpose};
use crate::index::{ParsedQuery, RankedEntry, SearchHit, ToolIndex};
use crate::intent::{computation_similarity, example_ratios, fresh_similarity, need_ratio};
use crate::values::split_words;
use crate::words::{is_content_word, split};

mod model;

pub use model::{ChoiceEvidence, ChoiceProbabilities, DecisionModel, FITTED};

/// The tool that asks the user. Choosing it means asking.
pub const ASK_TOOL: &str = "request_human_input";

/// Number of hits returned with a choice.
const MAX_HITS: usize = 5;
/// Number of hits after the best one that its score is compared with.
const COMPARED_HITS: usize = 5;
/// Number of words of a query that count for its coverage.
const MAX_COVERED_WORDS: usize = 15;

/// Minimum similarity to questions about the present, and to computations. Lower similarity occurs by chance.
const MIN_FRESH: f32 = 0.1;
const MIN_COMPUTATION: f32 = 0.19;

/// Words of a request that states one step. A longer one describes several, and their arguments come from each other's
/// results, so a missing argument is no reason to ask before the first step.
const MAX_STEP_WORDS: usize = 26;

/// Confidence of a choice by need, and of a tool that is named in full.
const NEED_CONFIDENCE: f32 = 0.8;
const NAMED_CONFIDENCE: f32 = 0.995;
/// Share of questions for an argument that were right: a reader may find arguments that the words do not state.
const MISSING_CONFIDENCE: f32 = 0.7;

/// The decision for a query.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolChoice {
    pub decision: ChoiceDecision,
    /// Probability that the decision is right, from 0 to 1.
    pub confidence: f32,
    /// Best matching tools, best first, without the one that asks the user.
    pub hits: Vec<SearchHit>,
    /// Required parameters of the best tool that the query lacks, if that is the reason to ask.
    pub missing: Vec<String>,
    /// True if the query needs a tool, whether or not the catalog has one that fits.
    pub needs_tool: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceDecision {
    /// Use the first hit.
    Tool,
    /// Use no tool: none is needed, or none fits and no tool asks the user.
    None,
    /// Ask the user first.
    Ask,
}

impl ChoiceDecision {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::None => "none",
            Self::Ask => "ask",
        }
    }
}

impl ToolIndex {
    /// Decides how to handle a query.
    pub fn choose(&self, query: &str) -> ToolChoice {
        self.choose_among(query, |_| true)
    }

    /// Decides among the entries that are visible to the caller.
    pub fn choose_among(&self, query: &str, is_visible: impl Fn(&ToolEntry) -> bool) -> ToolChoice {
        self.considered(query, is_visible).decide(&FITTED)
    }

    /// Collects the evidence for a choice.
    pub fn consider(&self, query: &str) -> ConsideredQuery {
        self.considered(query, |_| true)
    }

    fn considered(&self, query: &str, is_visible: impl Fn(&ToolEntry) -> bool) -> ConsideredQuery {
        let query = ParsedQuery::new(query);
        let ranked =
            self.ranked(&query, COMPARED_HITS + 1, |entry| entry.name != ASK_TOOL && is_visible(entry));
        let hits = ranked.iter().take(MAX_HITS).map(SearchHit::from).collect();
        let arguments = ranked.first().map(|hit| ExtractedArguments::extract(query.text, hit.entry, None));
        let mut missing = arguments.unwrap_or_default().missing;
        let need_ratio = query.embedding.as_ref().map_or(0.0, need_ratio);
        let evidence = evidence(&query, &ranked, need_ratio, missing.is_empty());
        if split_words(query.text).len() > MAX_STEP_WORDS {
            missing.clear();
        }
        ConsideredQuery {
            evidence,
            is_named: ranked.first().is_some_and(|best| best.score >= 1.0),
            by_need: self.tool_for_need(&query, need_ratio, &is_visible).map(|tool| tool.name.clone()),
            can_ask: self.get(ASK_TOOL).is_some_and(is_visible),
            hits,
            missing,
        }
    }

    /// Returns the tool that searches the web or executes code, if the query needs that.
    fn tool_for_need(
        &self,
        query: &ParsedQuery<'_>,
        need_ratio: f32,
        is_visible: impl Fn(&ToolEntry) -> bool,
    ) -> Option<&ToolEntry> {
        let embedding = query.embedding.as_ref().filter(|_| need_ratio > 0.0)?;
        let find = |purpose| self.with_purpose(purpose).find(|entry| is_visible(entry));
        if computation_similarity(embedding) >= MIN_COMPUTATION {
            return find(ToolPurpose::ExecuteCode);
        }
        if fresh_similarity(embedding) >= MIN_FRESH { find(ToolPurpose::SearchWeb) } else { None }
    }
}

/// A query with all evidence for its choice, without the constants of the decision.
#[derive(Debug, Clone)]
pub struct ConsideredQuery {
    pub evidence: ChoiceEvidence,
    /// True if the query names the best tool in full.
    is_named: bool,
    /// The tool for the need of the query, if no other one fits.
    by_need: Option<String>,
    /// True if there is a tool that asks the user.
    can_ask: bool,
    pub hits: Vec<SearchHit>,
    missing: Vec<String>,
}

impl ConsideredQuery {
    /// Decides with the constants of a model.
    pub fn decide(self, model: &DecisionModel) -> ToolChoice {
        let ChoiceProbabilities { fits, unserved, unneeded, first_is_right } = model.weigh(&self.evidence);
        let needs_tool = self.is_named || fits + unserved > unneeded;
        let (no_tool, ask) = if self.can_ask { (unneeded, unserved) } else { (unneeded + unserved, 0.0) };
        let has_match = self.is_named || (!self.hits.is_empty() && fits >= no_tool.max(ask));
        let Self { mut hits, mut missing, .. } = self;
        let right = if self.is_named { NAMED_CONFIDENCE } else { fits * first_is_right };
        let (decision, confidence) = match self.by_need {
            _ if has_match && missing.is_empty() => (ChoiceDecision::Tool, right),
            _ if has_match => (ChoiceDecision::Ask, MISSING_CONFIDENCE * right.max(fits)),
            Some(name) => {
                let score = hits.iter().find(|hit| hit.name == name).map_or(0.0, |hit| hit.score);
                hits.retain(|hit| hit.name != name);
                hits.insert(0, SearchHit { name, score });
                hits.truncate(MAX_HITS);
                (ChoiceDecision::Tool, NEED_CONFIDENCE)
            }
            None if ask > no_tool => (ChoiceDecision::Ask, ask),
            None => (ChoiceDecision::None, no_tool),
        };
        if !has_match {
            missing.clear();
        }
        ToolChoice { decision, confidence, hits, missing, needs_tool }
    }
}

/// Computes the evidence of a query and its best entries.
fn evidence(
    query: &ParsedQuery<'_>,
    ranked: &[RankedEntry<'_>],
    need_ratio: f32,
    is_complete: bool,
) -> ChoiceEvidence {
    let Some((best, others)) = ranked.split_first() else {
        return ChoiceEvidence { need_ratio, fit: [0.0; 5], rank: [0.0; 2] };
    };
    let others_mean = others.iter().map(|hit| hit.score).sum::<f32>() / others.len().max(1) as f32;
    let words = split(&query.plain).iter().filter(|word| is_content_word(word)).count();
    let covered_words = best.coverage * words.min(MAX_COVERED_WORDS) as f32 / MAX_COVERED_WORDS as f32;
    ChoiceEvidence {
        need_ratio,
        fit: [
            best.cosine,
            best.coverage,
            best.score - others_mean,
            f32::from(u8::from(is_complete)),
            covered_words,
        ],
        rank: [best.score, best.score - others.first().map_or(0.0, |next| next.score)],
    }
}

/// Returns the need ratio of each example query, measured without it, and true if it needs a tool.
pub fn need_examples() -> Vec<(f32, bool)> {
    example_ratios()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::entry::ToolParameter;

    fn index() -> ToolIndex {
        let tool = |name: &str, description: &str, schema: serde_json::Value| ToolEntry {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: ToolParameter::from_schema(&schema),
            ..ToolEntry::default()
        };
        let city = json!({"properties": {"city": {"type": "string"}}, "required": ["city"]});
        let path = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
        let text = json!({"properties": {"text": {"type": "string"}}, "required": ["text"]});
        ToolIndex::new([
            tool("get_weather", "The weather forecast for a city", city),
            tool("read_file", "Read the contents of a file", path),
            tool("count_words", "Counts the words of a text", text),
            tool(ASK_TOOL, "Ask the human user a clarifying question and wait for the answer", json!({})),
        ])
    }

    #[track_caller]
    fn check(query: &str, decision: ChoiceDecision, first: &str, missing: &[&str]) {
        let choice = index().choose(query);
        assert_eq!(choice.decision, decision, "{query}: {choice:?}");
        assert_eq!(choice.missing, missing, "{query}: {choice:?}");
        assert!((0.5..=1.0).contains(&choice.confidence), "{query}: {choice:?}");
        if !first.is_empty() {
            assert_eq!(choice.hits[0].name, first, "{query}: {choice:?}");
        }
        assert!(choice.hits.iter().all(|hit| hit.name != ASK_TOOL), "{choice:?}");
    }

    #[test]
    fn chooses_a_tool_if_the_query_has_its_arguments() {
        check("what is the weather in Oslo?", ChoiceDecision::Tool, "get_weather", &[]);
        check("read the file ./notes.txt", ChoiceDecision::Tool, "read_file", &[]);
    }

    /// Sounds like a general knowledge question, but contains the arguments of a tool.
    #[test]
    fn question_about_a_quotation_goes_to_the_tool_that_takes_it() {
        check("how many words are in 'the quick brown fox'?", ChoiceDecision::Tool, "count_words", &[]);
        check(
            "how many words does \"my bicycle has a flat tire\" have?",
            ChoiceDecision::Tool,
            "count_words",
            &[],
        );
        check("who wrote 'Hamlet'?", ChoiceDecision::None, "", &[]);
        check("how many legs does a spider have?", ChoiceDecision::None, "", &[]);
    }

    #[test]
    fn asks_for_missing_arguments() {
        check("what will the weather be?", ChoiceDecision::Ask, "get_weather", &["city"]);
        check("read_file", ChoiceDecision::Ask, "read_file", &["path"]);
    }

    #[test]
    fn chooses_no_tool_for_talk() {
        check("write a poem about the sea", ChoiceDecision::None, "", &[]);
        check("why do stars twinkle at night?", ChoiceDecision::None, "", &[]);
    }

    #[test]
    fn asks_if_no_tool_matches_a_request() {
        check("book me a flight to Lima", ChoiceDecision::Ask, "", &[]);
        // Without a tool that asks, there is only the answer that no tool fits.
        let nothing = ToolIndex::default().choose("send 20 euros to Ben");
        assert_eq!((nothing.decision, nothing.hits), (ChoiceDecision::None, Vec::new()));
        assert!(nothing.needs_tool);
        assert!(!index().choose("write a poem about the sea").needs_tool);
    }

    /// These share no word with the tool they need.
    #[test]
    fn chooses_search_and_code_by_need() {
        let text = |name: &str| json!({"properties": {name: {"type": "string"}}, "required": [name]});
        let mut index = index();
        for (name, description, parameter) in [
            ("web_search", "Searches the web and returns titles, links and excerpts", "query"),
            ("code_execution", "Executes code in a sandbox and returns its output", "code"),
        ] {
            index.put(ToolEntry {
                name: name.to_owned(),
                description: description.to_owned(),
                parameters: ToolParameter::from_schema(&text(parameter)),
                ..ToolEntry::default()
            });
        }
        let first = |query: &str| {
            let choice = index.choose(query);
            (choice.decision, choice.hits.first().map_or(String::new(), |hit| hit.name.clone()))
        };
        let tool = |name: &str| (ChoiceDecision::Tool, name.to_owned());
        assert_eq!(first("is the tower open on Mondays?"), tool("web_search"));
        assert_eq!(first("are flights from the capital delayed today?"), tool("web_search"));
        assert_eq!(first("what is 18 % of 4,310?"), tool("code_execution"));
        assert_eq!(first("what is the weather in Oslo?"), tool("get_weather"));
        assert_eq!(first("write a poem about the sea").0, ChoiceDecision::None);
    }
}
