//! Evaluation: how often the choice is right, on queries of which it is known what is right.
//!
//! Takes catalogs and lines of a gold set, asks the index as everybody does, and counts. Invariant: the same lines,
//! catalogs and seed give the same figures, on every machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::choice::{Choice, Decision};
use crate::entry::{Entry, Parameter};
use crate::index::Index;

mod figures;

pub use figures::{Bin, Figures, Judged, Recalled, Report, Told};

/// One query, and what is right for it.
#[derive(Debug, Clone, Deserialize)]
pub struct Line {
    /// What somebody says.
    pub query: String,
    /// The tools that are right; any of them.
    #[serde(default)]
    pub tools: Vec<String>,
    /// What to do with it.
    pub kind: Expected,
    /// The part of the set it belongs to.
    #[serde(default)]
    pub suite: String,
    /// The catalog it is asked of, where there are many.
    #[serde(default)]
    pub catalog: String,
    /// Its language.
    #[serde(default)]
    pub lang: String,
}

/// What is right for a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    /// One tool.
    Tool,
    /// No tool.
    None,
    /// A question to the person.
    Ask,
    /// Several tools, one after the other; the first may be any of them.
    Multi,
}

/// Small catalogs, drawn for each line: the tools that are right, and others.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Tools in each.
    pub size: usize,
    /// What decides which.
    pub seed: u64,
}

/// A line that names a catalog which is not there.
#[derive(Debug, PartialEq, Eq)]
pub struct NoCatalog {
    /// The line, from 1.
    pub line: usize,
    /// The catalog it names.
    pub catalog: String,
}

/// What was chosen for a line.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The line.
    pub line: &'a Line,
    /// What was chosen.
    pub choice: Choice,
}

impl Answer<'_> {
    /// Whether the choice is right.
    pub fn is_right(&self) -> bool {
        match (self.line.kind, self.choice.decision) {
            (Expected::Tool | Expected::Multi, Decision::Tool) => self.is_among(1),
            (Expected::None, Decision::None) | (Expected::Ask, Decision::Ask) => true,
            _ => false,
        }
    }

    /// Whether one of the right tools is among the first.
    pub fn is_among(&self, first: usize) -> bool {
        self.choice.hits.iter().take(first).any(|hit| self.line.tools.contains(&hit.name))
    }
}

/// Asks every line of its catalog, in turn, and tells of each that is done.
///
/// # Errors
/// When a line names a catalog that is not there.
pub fn answers<'a>(
    catalogs: &BTreeMap<String, Vec<Entry>>,
    lines: &'a [Line],
    sample: Option<Sample>,
    mut done: impl FnMut(usize),
) -> Result<Vec<Answer<'a>>, NoCatalog> {
    let mut indexes: BTreeMap<&str, Index> = BTreeMap::new();
    let mut answers = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        let no_catalog = || NoCatalog { line: at + 1, catalog: line.catalog.clone() };
        // A single catalog is that of every line.
        let only = (catalogs.len() == 1).then(|| catalogs.iter().next()).flatten();
        let (name, entries) = catalogs.get_key_value(&line.catalog).or(only).ok_or_else(no_catalog)?;
        let choice = match sample {
            Some(sample) => drawn(entries, line, sample, at).choose(&line.query),
            None => {
                let index = indexes.entry(name).or_insert_with(|| Index::new(entries.iter().cloned()));
                index.choose(&line.query)
            }
        };
        answers.push(Answer { line, choice });
        done(at + 1);
    }
    Ok(answers)
}

/// The tools of a file: a list, or catalogs by their names.
pub fn catalogs(file: &Value) -> Option<BTreeMap<String, Vec<Entry>>> {
    match file {
        Value::Array(tools) => {
            Some(BTreeMap::from([(String::new(), tools.iter().filter_map(entry).collect())]))
        }
        Value::Object(members) => {
            let catalogs = members.get("catalogs")?.as_object()?;
            let read = |(name, tools): (&String, &Value)| {
                Some((name.clone(), tools.as_array()?.iter().filter_map(entry).collect()))
            };
            catalogs.iter().map(read).collect()
        }
        _ => None,
    }
}

/// The entry of a tool as servers list it; `None` for what has no name.
pub fn entry(tool: &Value) -> Option<Entry> {
    let text = |key: &str| tool.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Entry {
        name: text("name")?,
        server: text("server"),
        title: text("title"),
        description: text("description").unwrap_or_default(),
        parameters: tool.get("inputSchema").map(Parameter::all_of).unwrap_or_default(),
        examples: Vec::new(),
    })
}

/// A small catalog for one line.
fn drawn(entries: &[Entry], line: &Line, sample: Sample, at: usize) -> Index {
    let mut random = Random(sample.seed ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
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
    Index::new(entries.iter().filter(|entry| names.contains(entry.name.as_str())).cloned())
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
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
