//! What a batch of changes comes to: which are made, which are refused, and what the registry is then.
//!
//! A registry of ten thousand tools is not checked whole for each of them. A tool is right or wrong by its own
//! entry and the project file, and names are unique in a document, so only the entries that change are
//! checked; servers are few and are checked together, since two of them may want one prefix. Where tools come
//! from other files too, everything is checked.
//! Invariant: nothing is written here, and a refused change leaves no trace.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Candidate, Change, Check, Checked, Done, Problem, Problems, Refused, State};
use crate::document::{Kind, Op};
use crate::store::{Documents, Rev, Texts};

/// A state that changes are made to.
pub(super) struct Base {
    pub(super) rev: Rev,
    pub(super) documents: Documents,
    pub(super) checked: Arc<Checked>,
}

impl Base {
    pub(super) fn state(&self, refused: Option<Problems>) -> State {
        let Self { rev, documents, checked } = self;
        State { rev: *rev, checked: Arc::clone(checked), documents: documents.clone(), refused }
    }
}

/// What is to become of a batch.
pub(super) struct Plan {
    /// The changes that are made.
    pub(super) ops: Vec<Op>,
    /// For each change: nothing, or why it is not made.
    verdicts: Vec<Result<Vec<Problem>, Refused>>,
    documents: Documents,
    checked: Arc<Checked>,
}

impl Plan {
    pub(super) fn new(base: &Base, changes: &[Change], check: &Check) -> Self {
        let plan = Self {
            ops: Vec::new(),
            verdicts: Vec::new(),
            documents: base.documents.clone(),
            checked: Arc::clone(&base.checked),
        };
        let mut together = plan.clone();
        for change in changes {
            let verdict = together.apply(base.rev, change);
            together.verdicts.push(verdict.map(|()| Vec::new()));
        }
        if together.ops.is_empty() {
            return together;
        }
        let touched = together.ops.clone();
        if together.check(base, &touched, check).is_ok() {
            for (at, change) in changes
                .iter()
                .enumerate()
                .filter(|(at, _)| together.verdicts[*at].is_ok())
                .collect::<Vec<_>>()
            {
                together.verdicts[at] = Ok(together.notes(&change.op));
            }
            return together;
        }
        // One of them is bad. One by one, each on what the good ones before it have made.
        let mut plan = plan;
        for change in changes {
            let (documents, made) = (plan.documents.clone(), plan.ops.len());
            let verdict = plan.apply(base.rev, change).and_then(|()| {
                plan.check(base, std::slice::from_ref(&change.op), check).map_err(Refused::Invalid)
            });
            if verdict.is_err() {
                plan.documents = documents;
                plan.ops.truncate(made);
            }
            let verdict = verdict.map(|()| plan.notes(&change.op));
            plan.verdicts.push(verdict);
        }
        plan
    }

    fn clone(&self) -> Self {
        let Self { ops, documents, checked, .. } = self;
        Self {
            ops: ops.clone(),
            verdicts: Vec::new(),
            documents: documents.clone(),
            checked: Arc::clone(checked),
        }
    }

    /// Makes a change on the documents.
    fn apply(&mut self, rev: Rev, Change { expect, op }: &Change) -> Result<(), Refused> {
        // Whatever was made before it in this batch is a change that it did not expect.
        if expect.is_some_and(|expect| expect != rev || !self.ops.is_empty()) {
            return Err(Refused::Conflict { current: rev });
        }
        self.documents.apply(op)?;
        self.ops.push(op.clone());
        Ok(())
    }

    /// Checks the documents, after these changes.
    fn check(&mut self, base: &Base, touched: &[Op], check: &Check) -> Result<(), Problems> {
        let Documents { tools, servers } = &self.documents;
        let known = base.documents.tools.as_ref().map_or(0, crate::document::Document::len);
        let whole = base.checked.tools.len() != known;
        let names: Vec<&str> =
            touched.iter().filter(|op| op.kind == Kind::Tool).map(|op| op.name.as_str()).collect();
        let names = unique(names);
        let texts = Texts {
            tools: tools.as_ref().map(|tools| if whole { tools.text() } else { tools.only(&names) }.into()),
            servers: servers.as_ref().map(|servers| servers.text().into()),
        };
        let mut checked = check(Candidate { texts: &texts, whole })?;
        if !whole {
            checked.tools = self.merged(&checked.tools, &names);
            checked.variables.extend(base.checked.variables.iter().cloned());
            for known in &base.checked.secrets {
                if !checked.secrets.iter().any(|own| own.expose() == known.expose()) {
                    checked.secrets.push(known.clone());
                }
            }
        }
        self.checked = Arc::new(checked);
        Ok(())
    }

    /// All tools in the order of the file: those that changed, and the others as they were.
    fn merged(
        &self,
        new: &[Arc<toolgate_types::ToolDefinition>],
        touched: &[&str],
    ) -> Vec<Arc<toolgate_types::ToolDefinition>> {
        let mut by_name: HashMap<&str, &Arc<_>> =
            self.checked.tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        touched.iter().for_each(|name| {
            by_name.remove(name);
        });
        by_name.extend(new.iter().map(|tool| (tool.name.as_str(), tool)));
        let names = self.documents.tools.iter().flat_map(crate::document::Document::names);
        names.filter_map(|name| by_name.get(&**name).map(|tool| Arc::clone(tool))).collect()
    }

    /// What is to be known about an entry.
    fn notes(&self, op: &Op) -> Vec<Problem> {
        let about = format!("`{}`", op.name);
        self.checked.notes.iter().filter(|note| note.message.contains(&about)).cloned().collect()
    }

    /// The state after the commit.
    pub(super) fn base(&self, rev: Rev) -> Arc<Base> {
        Arc::new(Base { rev, documents: self.documents.clone(), checked: Arc::clone(&self.checked) })
    }

    /// The answers after the commit.
    pub(super) fn outcomes(&self, rev: Rev) -> Vec<Result<Done, Refused>> {
        let outcome = |verdict: &Result<Vec<Problem>, Refused>| match verdict {
            Ok(notes) => Ok(Done { rev, notes: notes.clone() }),
            Err(Refused::Conflict { .. }) => Err(Refused::Conflict { current: rev }),
            Err(refused) => Err(refused.clone()),
        };
        self.verdicts.iter().map(outcome).collect()
    }

    /// The answers where the commit failed.
    pub(super) fn failed(&self, rev: Rev, why: &Refused) -> Vec<Result<Done, Refused>> {
        let outcome = |outcome: Result<Done, Refused>| outcome.and_then(|_| Err(why.clone()));
        self.outcomes(rev).into_iter().map(outcome).collect()
    }
}

fn unique(names: Vec<&str>) -> Vec<&str> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().filter(|name| seen.insert(*name)).collect()
}
