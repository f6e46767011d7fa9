//! The choice: a tool, no tool, or a question to the user; and its confidence.
//!
//! Decides first if the query needs a search of the web or a computation, which it seldom names; then if it needs a tool
//! at all, if the best tool matches, and if the query contains the arguments that the tool requires. Invariant: the
//! confidence is calibrated: it is the measured share of such choices that were right.

use crate::arguments::ExtractedArguments;
use crate::entry::{ToolEntry, ToolPurpose};
use crate::index::{ParsedQuery, SearchHit, ToolIndex};
use crate::intent::{computation_similarity, fresh_similarity, talk_similarity};
use crate::values::{find_values, split_words};

/// The tool that asks the user. Choosing it means asking.
pub const ASK_TOOL: &str = "request_human_input";

/// Number of hits returned with a choice.
const MAX_HITS: usize = 5;

/// A query needs no tool if the weighted sum is above 0: it is similar to talk, no tool matches, and it contains no
/// values, or not those that the best tool requires. The weights started as those of a logistic regression on the core
/// suite of `eval/`, with the whole catalog and with small ones; the base and [`MIN_SCORE`] were then tuned on the
/// small ones. Fitted to three quarters of the lines they are right in 0.863 of the last quarter, against 0.872 on the
/// lines they were fitted to, so the score of that suite is slightly optimistic.
const BASE: f32 = 1.6;
const TALK_WEIGHT: f32 = 17.5;
const SCORE_WEIGHT: f32 = -15.2;
const VALUES_WEIGHT: f32 = -0.75;
const COMPLETE_WEIGHT: f32 = -0.85;

/// Maximum number of values that count.
const MAX_VALUES: usize = 3;

/// Minimum score of the best tool; lower scores are a match by chance.
const MIN_SCORE: f32 = 0.13;

/// Minimum similarity to questions about the present, and to computations. Lower similarity occurs by chance.
const MIN_FRESH: f32 = 0.1;
const MIN_COMPUTATION: f32 = 0.19;

/// A best tool with a lower score matches a question about the present by chance.
const MAX_SCORE_FOR_SEARCH: f32 = 0.2;
/// A tool with a higher score is preferred to the execution of code: it may be made for exactly this computation.
const MAX_SCORE_FOR_CODE: f32 = 0.4;

/// Words of a request that states one step. A longer one describes several, and their arguments come from each other's
/// results, so a missing argument is no reason to ask before the first step.
const MAX_STEP_WORDS: usize = 26;

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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceDecision {
    /// Use the first hit.
    Tool,
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
        let query = ParsedQuery::new(query);
        let mut hits = self.rank(&query, MAX_HITS, |entry| entry.name != ASK_TOOL && is_visible(entry));
        let best = hits.first().map_or(0.0, |hit| hit.score);
        let gap = best - hits.get(1).map_or(0.0, |hit| hit.score);
        if let Some(tool) = self.tool_for_need(&query, best, &is_visible) {
            hits.retain(|other| other.name != tool.name);
            hits.insert(0, SearchHit { name: tool.name.clone(), score: best });
            hits.truncate(MAX_HITS);
            let (decision, confidence) = (ChoiceDecision::Tool, NEED_CONFIDENCE);
            return ToolChoice { decision, confidence, hits, missing: Vec::new() };
        }
        let entry = hits.first().and_then(|hit| self.get(&hit.name));
        // A tool that matches only by chance must not cause questions about its parameters.
        let entry = entry.filter(|_| best >= MIN_SCORE);
        let arguments =
            entry.map(|entry| ExtractedArguments::extract(query.text, entry, None)).unwrap_or_default();
        let mut needed =
            entry.into_iter().flat_map(|entry| &entry.parameters).filter(|one| one.required).peekable();
        let has_all =
            needed.peek().is_some() && needed.all(|parameter| arguments.values.contains_key(&parameter.name));
        let talk_log_odds =
            if best >= 1.0 { f32::NEG_INFINITY } else { talk_log_odds(&query, best, has_all) };
        if talk_log_odds > 0.0 {
            return ToolChoice {
                decision: ChoiceDecision::None,
                confidence: sigmoid(talk_log_odds),
                hits,
                missing: Vec::new(),
            };
        }
        let is_one_step = split_words(query.text).len() <= MAX_STEP_WORDS;
        let missing = if is_one_step { arguments.missing } else { Vec::new() };
        let is_asked = !missing.is_empty() || entry.is_none();
        let (decision, confidence) = if is_asked {
            (ChoiceDecision::Ask, ask_probability(talk_log_odds))
        } else {
            (ChoiceDecision::Tool, sigmoid(tool_log_odds(best, gap)))
        };
        ToolChoice { decision, confidence, hits, missing }
    }

    /// Returns the tool that searches the web or executes code, if the query needs that and no tool fits better.
    fn tool_for_need(
        &self,
        query: &ParsedQuery<'_>,
        best: f32,
        is_visible: impl Fn(&ToolEntry) -> bool,
    ) -> Option<&ToolEntry> {
        let embedding = query.embedding.as_ref()?;
        let find = |purpose| self.with_purpose(purpose).find(|entry| is_visible(entry));
        if best < MAX_SCORE_FOR_CODE && computation_similarity(embedding) >= MIN_COMPUTATION {
            return find(ToolPurpose::ExecuteCode);
        }
        let needs_search = best < MAX_SCORE_FOR_SEARCH && fresh_similarity(embedding) >= MIN_FRESH;
        if needs_search { find(ToolPurpose::SearchWeb) } else { None }
    }
}

/// Confidence of a choice by need.
const NEED_CONFIDENCE: f32 = 0.8;

/// Returns the log-odds that a query needs no tool. `has_all`: the query contains all required arguments of the best
/// tool.
fn talk_log_odds(query: &ParsedQuery<'_>, best: f32, has_all: bool) -> f32 {
    let leaning = query.embedding.as_ref().map_or(0.0, talk_similarity);
    let values = find_values(query.text).len().min(MAX_VALUES) as f32;
    let all = f32::from(u8::from(has_all));
    BASE + TALK_WEIGHT * leaning + SCORE_WEIGHT * best + VALUES_WEIGHT * values + COMPLETE_WEIGHT * all
}

/// Returns the log-odds that the best tool is the right one, from its score and the gap to the next. From a logistic
/// regression on the same lines.
fn tool_log_odds(best: f32, gap: f32) -> f32 {
    -0.5 + 7.0 * best + 9.0 * gap
}

/// Returns the probability that asking is right. It rises with the certainty that a tool is needed; nothing more is
/// known, because a reader may find arguments that the words do not state. Capped: seven of ten such questions were
/// right.
fn ask_probability(talk_log_odds: f32) -> f32 {
    sigmoid(-0.2 * talk_log_odds).min(0.8)
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
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
        let nothing = ToolIndex::default().choose("send 20 euros to Ben");
        assert_eq!((nothing.decision, nothing.hits), (ChoiceDecision::Ask, Vec::new()));
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
