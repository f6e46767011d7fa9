//! The choice: a tool, no tool, or a question to the person; and how sure it is.
//!
//! First whether the query needs a tool at all, then whether the best one fits, then whether the words hold what it
//! cannot do without. Invariant: a choice says no more than it knows. Its confidence is how often such choices were
//! right when they were measured.

use crate::arguments::Arguments;
use crate::entry::Entry;
use crate::index::{Hit, Index, Query};
use crate::leaning::toward_talk;
use crate::said::spans;

/// The tool that asks the person. To choose it is to ask.
pub const ASKS: &str = "request_human_input";

/// Hits that a choice comes with.
const MOST_HITS: usize = 5;

/// A query needs no tool when this is above 0: it leans toward talk, no tool fits, and it holds no values, or not those
/// that the best tool cannot do without. The figures
/// began as those of a logistic regression on the core suite of `eval/`, with the whole catalog and with small ones; the
/// base and [`FITS`] were then chosen by the small ones. Fitted to three quarters of the lines they are right in 0.863 of
/// the last quarter, against 0.872 where they were fitted, so the score of that suite flatters them a little.
const BASE: f32 = 1.6;
const OF_LEANING: f32 = 17.5;
const OF_FIT: f32 = -15.2;
const OF_VALUES: f32 = -0.75;
const OF_ALL_IT_NEEDS: f32 = -0.85;

/// Values beyond this many say nothing more.
const MOST_VALUES: usize = 3;

/// A best tool that fits less than this fits by chance.
const FITS: f32 = 0.13;

/// What to do with a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// What to do.
    pub decision: Decision,
    /// How likely it is that this is right, from 0 to 1.
    pub confidence: f32,
    /// The tools that fit best, the best first; those that ask a person are not among them.
    pub hits: Vec<Hit>,
    /// Required parameters of the best tool that the query does not hold, when that is why a person is asked.
    pub missing: Vec<String>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The first of the hits is the tool.
    Tool,
    /// No tool is needed.
    None,
    /// The person should be asked first.
    Ask,
}

impl Decision {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::None => "none",
            Self::Ask => "ask",
        }
    }
}

impl Index {
    /// What to do with a query.
    pub fn choose(&self, query: &str) -> Choice {
        self.choose_among(query, |_| true)
    }

    /// The same among the entries that are shown to who asks.
    pub fn choose_among(&self, query: &str, shown: impl Fn(&Entry) -> bool) -> Choice {
        let query = Query::new(query);
        let hits = self.ranked(&query, MOST_HITS, |entry| entry.name != ASKS && shown(entry));
        let best = hits.first().map_or(0.0, |hit| hit.score);
        let gap = best - hits.get(1).map_or(0.0, |hit| hit.score);
        let entry = hits.first().and_then(|hit| self.get(&hit.name));
        // What a tool needs that fits by chance is nobody's question.
        let entry = entry.filter(|_| best >= FITS);
        let arguments = entry.map(|entry| Arguments::of(query.text, entry, None)).unwrap_or_default();
        let mut needed =
            entry.into_iter().flat_map(|entry| &entry.parameters).filter(|one| one.required).peekable();
        let has_all =
            needed.peek().is_some() && needed.all(|parameter| arguments.values.contains_key(&parameter.name));
        let talk = if best >= 1.0 { f32::NEG_INFINITY } else { talk(&query, best, has_all) };
        if talk > 0.0 {
            return Choice { decision: Decision::None, confidence: sigmoid(talk), hits, missing: Vec::new() };
        }
        let missing = arguments.missing;
        let is_asked = !missing.is_empty() || entry.is_none();
        let (decision, confidence) = if is_asked {
            (Decision::Ask, asking(talk))
        } else {
            (Decision::Tool, sigmoid(right(best, gap)))
        };
        Choice { decision, confidence, hits, missing }
    }
}

/// How clear it is that a query needs no tool: above 0 it is likely. `has_all` says that it holds what the best tool
/// cannot do without.
fn talk(query: &Query<'_>, best: f32, has_all: bool) -> f32 {
    let leaning = query.meaning.as_ref().map_or(0.0, toward_talk);
    let values = spans(query.text).len().min(MOST_VALUES) as f32;
    let all = f32::from(u8::from(has_all));
    BASE + OF_LEANING * leaning + OF_FIT * best + OF_VALUES * values + OF_ALL_IT_NEEDS * all
}

/// How clear it is that the best tool is the right one: by how well it fits, and how much better than the next. From a
/// logistic regression on the same lines.
fn right(best: f32, gap: f32) -> f32 {
    -0.5 + 7.0 * best + 9.0 * gap
}

/// How likely it is that asking is right. The surer it is that a tool is needed, the likelier; more is not known, since
/// whoever reads a query may find in it what the words do not say. Bounded: seven of ten such questions were right.
fn asking(talk: f32) -> f32 {
    sigmoid(-0.2 * talk).min(0.8)
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::entry::Parameter;

    fn index() -> Index {
        let tool = |name: &str, description: &str, schema: serde_json::Value| Entry {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: Parameter::all_of(&schema),
            ..Entry::default()
        };
        let city = json!({"properties": {"city": {"type": "string"}}, "required": ["city"]});
        let path = json!({"properties": {"path": {"type": "string"}}, "required": ["path"]});
        let text = json!({"properties": {"text": {"type": "string"}}, "required": ["text"]});
        Index::new([
            tool("get_weather", "The weather forecast for a city", city),
            tool("read_file", "Read the contents of a file", path),
            tool("count_words", "Counts the words of a text", text),
            tool(ASKS, "Ask the human user a clarifying question and wait for the answer", json!({})),
        ])
    }

    #[track_caller]
    fn check(query: &str, decision: Decision, first: &str, missing: &[&str]) {
        let choice = index().choose(query);
        assert_eq!(choice.decision, decision, "{query}: {choice:?}");
        assert_eq!(choice.missing, missing, "{query}: {choice:?}");
        assert!((0.5..=1.0).contains(&choice.confidence), "{query}: {choice:?}");
        if !first.is_empty() {
            assert_eq!(choice.hits[0].name, first, "{query}: {choice:?}");
        }
        assert!(choice.hits.iter().all(|hit| hit.name != ASKS), "{choice:?}");
    }

    #[test]
    fn a_tool_is_chosen_where_the_words_hold_what_it_needs() {
        check("what is the weather in Oslo?", Decision::Tool, "get_weather", &[]);
        check("read the file ./notes.txt", Decision::Tool, "read_file", &[]);
    }

    /// A question that sounds like one of what everybody knows, and brings what a tool needs along.
    #[test]
    fn a_question_about_what_it_quotes_is_for_the_tool_that_takes_it() {
        check("how many words are in 'the quick brown fox'?", Decision::Tool, "count_words", &[]);
        check("how many words does \"my bicycle has a flat tire\" have?", Decision::Tool, "count_words", &[]);
        check("who wrote 'Hamlet'?", Decision::None, "", &[]);
        check("how many legs does a spider have?", Decision::None, "", &[]);
    }

    #[test]
    fn a_person_is_asked_for_what_is_missing() {
        check("what will the weather be?", Decision::Ask, "get_weather", &["city"]);
        check("read_file", Decision::Ask, "read_file", &["path"]);
    }

    #[test]
    fn no_tool_is_chosen_for_talk() {
        check("write a poem about the sea", Decision::None, "", &[]);
        check("why do stars twinkle at night?", Decision::None, "", &[]);
    }

    #[test]
    fn a_request_that_no_tool_fits_is_asked_about() {
        check("book me a flight to Lima", Decision::Ask, "", &[]);
        let nothing = Index::default().choose("send 20 euros to Ben");
        assert_eq!((nothing.decision, nothing.hits), (Decision::Ask, Vec::new()));
    }
}
