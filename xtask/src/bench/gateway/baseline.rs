//! `benches/gateway.json`: instructions and allocations per call, kept with the code.
//!
//! Unlike a time, these figures hardly depend on the machine, so the benchmark fails if one of them rises. Invariant: only
//! `--update` writes the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::program;

/// Path of the file in the repository.
pub(super) const FILE: &str = "benches/gateway.json";

/// A figure may rise by this share: the order of events differs between runs, and with it the size of batches.
const TOLERANCE: f64 = 0.10;

/// The stored figures by the name of the case.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// For readers of the file.
    about: String,
    cases: BTreeMap<String, BaselineCase>,
}

/// Figures per call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct BaselineCase {
    /// User instructions without those of SHA-256.
    #[serde(serialize_with = "rounded")]
    pub(super) instructions: f64,
    pub(super) allocations: f64,
}

/// The comparison of a run with the stored figures, as sentences.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Each of them fails the benchmark.
    pub(super) rises: Vec<String>,
    /// Figures that fell, or are not stored yet.
    pub(super) notes: Vec<String>,
}

/// Writes instructions as a whole number.
fn rounded<S: serde::Serializer>(instructions: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(instructions.round() as u64)
}

fn path() -> PathBuf {
    program::root().join(FILE)
}

impl Baseline {
    /// Reads the file. A missing one is empty.
    pub(super) fn read() -> anyhow::Result<Self> {
        let path = path();
        match fs::read_to_string(&path) {
            Ok(text) => {
                serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Replaces the figures of the measured cases and writes the file.
    pub(super) fn update(mut self, measured: &[(&'static str, BaselineCase)]) -> anyhow::Result<()> {
        "Per call at 16 connections, profile `profiling`. Written by `cargo xtask bench counts --update`."
            .clone_into(&mut self.about);
        let rounded = measured.iter().map(|(name, case)| {
            let BaselineCase { instructions, allocations } = case;
            let allocations = (allocations * 10.0).round() / 10.0;
            let case = BaselineCase { instructions: *instructions, allocations };
            ((*name).to_owned(), case)
        });
        self.cases.extend(rounded);
        let path = path();
        let folder = path.parent().context("the file is in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let text = serde_json::to_string_pretty(&self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Compares measured figures with the stored ones.
    pub(super) fn compare(&self, measured: &[(&'static str, BaselineCase)]) -> Comparison {
        let mut comparison = Comparison::default();
        for (name, new) in measured {
            let Some(old) = self.cases.get(*name) else {
                comparison.notes.push(format!("no figures of `{name}` in {FILE}: `--update` adds them"));
                continue;
            };
            let figures = [
                ("instructions", old.instructions, new.instructions),
                ("allocations", old.allocations, new.allocations),
            ];
            for (figure, old, new) in figures {
                comparison.add(&format!("{figure} per call of `{name}`"), old, new);
            }
        }
        comparison
    }
}

impl Comparison {
    fn add(&mut self, figure: &str, old: f64, new: f64) {
        let change = (new / old - 1.0) * 100.0;
        if new > old * (1.0 + TOLERANCE) {
            self.rises.push(format!("{figure} rose by {change:.0} %: {old:.1} in {FILE}, {new:.1} now"));
        } else if new < old * (1.0 - TOLERANCE) {
            self.notes.push(format!("{figure} fell by {:.0} %: {old:.1} in {FILE}, {new:.1} now", -change));
        }
    }
}

#[test]
fn more_than_ten_percent_up_fails_and_down_is_a_note() {
    let case = |instructions, allocations| BaselineCase { instructions, allocations };
    let stored = Baseline { about: String::new(), cases: [("small".to_owned(), case(1000.0, 20.0))].into() };
    let check = |name, instructions, allocations| {
        let Comparison { rises, notes } = stored.compare(&[(name, case(instructions, allocations))]);
        (rises.join("; "), notes.join("; "))
    };
    assert_eq!(check("small", 1100.0, 18.0), (String::new(), String::new()));
    assert_eq!(
        check("small", 1110.0, 10.0),
        (
            "instructions per call of `small` rose by 11 %: 1000.0 in benches/gateway.json, 1110.0 now"
                .to_owned(),
            "allocations per call of `small` fell by 50 %: 20.0 in benches/gateway.json, 10.0 now".to_owned()
        )
    );
    assert_eq!(
        check("other", 1.0, 1.0),
        (String::new(), "no figures of `other` in benches/gateway.json: `--update` adds them".to_owned())
    );
}
