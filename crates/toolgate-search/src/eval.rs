//! Evaluation: measures tool-search accuracy on labelled queries.
//!
//! Takes catalogs and the lines of a gold set, runs every query, and compares the results. Invariant: the same lines,
//! catalogs and seed give the same metrics on every machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::arguments::ExtractedArguments;
use crate::choice::{ChoiceDecision, ToolChoice};
use crate::entry::{ToolEntry, ToolParameter};
use crate::index::ToolIndex;

mod metrics;

pub use metrics::{Calibration, CalibrationBin, EvalMetrics, EvalReport, PrecisionRecall, ToolRecall};

/// A labelled query.
#[derive(Debug, Clone, Deserialize)]
pub struct GoldLine {
    pub query: String,
    /// Correct tools; any of them counts.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Correct decision.
    pub kind: ExpectedKind,
    /// Suite it belongs to.
    #[serde(default)]
    pub suite: String,
    /// Catalog to search, if there are several.
    #[serde(default)]
    pub catalog: String,
    /// Language of the query.
    #[serde(default)]
    pub lang: String,
    /// The correct call, if it is known.
    #[serde(default)]
    pub call: Option<GoldCall>,
}

/// The correct call for a query.
#[derive(Debug, Clone, Deserialize)]
pub struct GoldCall {
    pub tool: String,
    pub arguments: Map<String, Value>,
}

/// The correct decision for a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpectedKind {
    Tool,
    None,
    /// Ask the user.
    Ask,
    /// Several tools in sequence; any of them may be the first.
    Multi,
}

/// Samples a small catalog for each line: the correct tools, and random others.
#[derive(Debug, Clone, Copy)]
pub struct CatalogSample {
    /// Number of tools per catalog.
    pub size: usize,
    /// Random seed.
    pub seed: u64,
}

/// A line names a catalog that does not exist.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownCatalog {
    /// Line number, starting at 1.
    pub line: usize,
    pub catalog: String,
}

/// The choice made for a line.
#[derive(Debug)]
pub struct EvalAnswer<'a> {
    pub line: &'a GoldLine,
    pub choice: ToolChoice,
    /// True if the arguments extracted for the correct tool are those of its call; `None` if the line has no call.
    pub arguments: Option<bool>,
}

impl<'a> EvalAnswer<'a> {
    /// Answers a line with an index.
    pub fn of(line: &'a GoldLine, index: &ToolIndex) -> Self {
        let expected = line.call.as_ref().and_then(|call| Some((call, index.get(&call.tool)?)));
        let arguments = expected.map(|(call, entry)| {
            let found = ExtractedArguments::extract(&line.query, entry, None).values;
            found.len() == call.arguments.len()
                && call
                    .arguments
                    .iter()
                    .all(|(name, value)| found.get(name).is_some_and(|is| same_value(is, value)))
        });
        Self { line, choice: index.choose(&line.query), arguments }
    }

    /// Returns true if the choice is correct.
    pub fn is_correct(&self) -> bool {
        match (self.line.kind, self.choice.decision) {
            (ExpectedKind::Tool | ExpectedKind::Multi, ChoiceDecision::Tool) => self.is_among(1),
            (ExpectedKind::None, ChoiceDecision::None) | (ExpectedKind::Ask, ChoiceDecision::Ask) => true,
            _ => false,
        }
    }

    /// Returns true if a correct tool is among the first hits.
    pub fn is_among(&self, first: usize) -> bool {
        self.choice.hits.iter().take(first).any(|hit| self.line.tools.contains(&hit.name))
    }
}

/// Compares values as a reader would: `"Paris"` is `paris`, and 5 is `"5"`.
fn same_value(one: &Value, other: &Value) -> bool {
    let text = |value: &Value| match value {
        Value::String(text) => text.trim().to_lowercase(),
        value => value.to_string(),
    };
    one == other
        || one.as_f64().is_some_and(|number| Some(number) == other.as_f64())
        || text(one) == text(other)
}

/// Runs every line against its catalog, in order. Calls `done` with the number of lines finished so far.
///
/// # Errors
/// If a line names a catalog that does not exist.
pub fn evaluate<'a>(
    catalogs: &BTreeMap<String, Vec<ToolEntry>>,
    lines: &'a [GoldLine],
    sample: Option<CatalogSample>,
    mut done: impl FnMut(usize),
) -> Result<Vec<EvalAnswer<'a>>, UnknownCatalog> {
    let mut indexes: BTreeMap<&str, ToolIndex> = BTreeMap::new();
    let mut answers = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        let no_catalog = || UnknownCatalog { line: at + 1, catalog: line.catalog.clone() };
        // If there is only one catalog, it is used for every line.
        let only = (catalogs.len() == 1).then(|| catalogs.iter().next()).flatten();
        let (name, entries) = catalogs.get_key_value(&line.catalog).or(only).ok_or_else(no_catalog)?;
        let sampled = sample.map(|sample| sample_catalog(entries, line, sample, at));
        let index = sampled.as_ref().unwrap_or_else(|| {
            indexes.entry(name).or_insert_with(|| ToolIndex::new(entries.iter().cloned()))
        });
        answers.push(EvalAnswer::of(line, index));
        done(at + 1);
    }
    Ok(answers)
}

/// Parses a file of tools: a list, or several catalogs by name.
pub fn parse_catalogs(file: &Value) -> Option<BTreeMap<String, Vec<ToolEntry>>> {
    match file {
        Value::Array(tools) => {
            Some(BTreeMap::from([(String::new(), tools.iter().filter_map(parse_tool).collect())]))
        }
        Value::Object(members) => {
            let catalogs = members.get("catalogs")?.as_object()?;
            let read = |(name, tools): (&String, &Value)| {
                Some((name.clone(), tools.as_array()?.iter().filter_map(parse_tool).collect()))
            };
            catalogs.iter().map(read).collect()
        }
        _ => None,
    }
}

/// Creates the entry of a tool as listed by an MCP server. Returns `None` if it has no name.
pub fn parse_tool(tool: &Value) -> Option<ToolEntry> {
    let text = |key: &str| tool.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(ToolEntry {
        name: text("name")?,
        server: text("server"),
        title: text("title"),
        description: text("description").unwrap_or_default(),
        parameters: tool.get("inputSchema").map(ToolParameter::from_schema).unwrap_or_default(),
        examples: Vec::new(),
    })
}

/// Samples a small catalog for a line.
fn sample_catalog(entries: &[ToolEntry], line: &GoldLine, sample: CatalogSample, at: usize) -> ToolIndex {
    let mut random = SplitMix64(sample.seed ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut names: BTreeSet<&str> = entries
        .iter()
        .map(|entry| entry.name.as_str())
        .filter(|name| line.tools.iter().any(|tool| tool == name))
        .collect();
    let mut others: Vec<&str> =
        entries.iter().map(|entry| entry.name.as_str()).filter(|name| !names.contains(name)).collect();
    while names.len() < sample.size && !others.is_empty() {
        let at = random.below(others.len());
        names.insert(others.swap_remove(at));
    }
    ToolIndex::new(entries.iter().filter(|entry| names.contains(entry.name.as_str())).cloned())
}

/// SplitMix64 random number generator: small, and the same on every platform.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }
}

#[cfg(test)]
mod tests;
