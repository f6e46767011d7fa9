//! Plans a batch of changes: applies the valid ones, rejects the others, and computes the resulting registry.
//!
//! A registry of ten thousand tools is not validated as a whole for every change. The validity of a tool depends only
//! on its own entry and the project file, and names are unique in a document, so only changed entries are validated.
//! Servers are few and are validated together, because two of them may claim the same prefix. If tools come from other
//! files too, everything is validated. Invariant: nothing is written here, and a rejected change leaves no trace.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{
    ChangeError, ChangePreview, CheckFn, CheckInput, CheckedRegistry, CommittedChange, RegistryChange,
    RegistryProblem, RegistryProblems, RegistryState, ToolChange,
};
use crate::document::{EntryKind, EntryOp};
use crate::store::{RegistryDocuments, RegistrySources, Revision};

/// The state that changes are applied to.
pub(super) struct BaseState {
    pub(super) rev: Revision,
    pub(super) documents: RegistryDocuments,
    pub(super) checked: Arc<CheckedRegistry>,
}

impl BaseState {
    pub(super) fn state(&self, refused: Option<RegistryProblems>) -> RegistryState {
        let Self { rev, documents, checked } = self;
        RegistryState {
            rev: *rev,
            checked: Arc::clone(checked),
            documents: documents.clone(),
            rejection: refused,
        }
    }
}

/// The result of planning a batch.
pub(super) struct BatchPlan {
    /// Changes to commit.
    pub(super) ops: Vec<EntryOp>,
    /// Warnings or rejection of each change.
    verdicts: Vec<Result<Vec<RegistryProblem>, ChangeError>>,
    documents: RegistryDocuments,
    checked: Arc<CheckedRegistry>,
}

impl BatchPlan {
    pub(super) fn new(base: &BaseState, changes: &[RegistryChange], check: &CheckFn) -> Self {
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
        if together.check(base, &touched, check).is_ok() && together.all_authorized(base, changes) {
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
        // At least one is rejected: apply them one by one, each on top of the valid ones before it.
        let mut plan = plan;
        for change in changes {
            let (documents, made) = (plan.documents.clone(), plan.ops.len());
            let before = Arc::clone(&plan.checked);
            let verdict = plan
                .apply(base.rev, change)
                .and_then(|()| {
                    plan.check(base, std::slice::from_ref(&change.op), check).map_err(ChangeError::Invalid)
                })
                .and_then(|()| authorize(change, &before, &plan.checked));
            if verdict.is_err() {
                plan.documents = documents;
                plan.ops.truncate(made);
                plan.checked = before;
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

    /// Applies a change to the documents.
    fn apply(
        &mut self,
        rev: Revision,
        RegistryChange { expect, op, .. }: &RegistryChange,
    ) -> Result<(), ChangeError> {
        // Earlier changes of the same batch count as conflicts too.
        if expect.is_some_and(|expect| expect != rev || !self.ops.is_empty()) {
            return Err(ChangeError::Conflict { current: rev });
        }
        self.documents.apply(op)?;
        self.ops.push(op.clone());
        Ok(())
    }

    /// Validates the documents after these changes.
    fn check(
        &mut self,
        base: &BaseState,
        touched: &[EntryOp],
        check: &CheckFn,
    ) -> Result<(), RegistryProblems> {
        let RegistryDocuments { tools, servers } = &self.documents;
        let known = base.documents.tools.as_ref().map_or(0, crate::document::RegistryDocument::len);
        let whole = base.checked.tools.len() != known;
        let names: Vec<&str> =
            touched.iter().filter(|op| op.kind == EntryKind::Tool).map(|op| op.name.as_str()).collect();
        let names = unique(names);
        let texts = RegistrySources {
            tools: tools
                .as_ref()
                .map(|tools| if whole { tools.text() } else { tools.render_only(&names) }.into()),
            servers: servers.as_ref().map(|servers| servers.text().into()),
        };
        let mut checked = check(CheckInput { texts: &texts, whole })?;
        if !whole {
            checked.tools = self.merge_tools(&checked.tools, &names);
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

    /// Returns true if the authors of all applied changes have the permissions for them. False if two changes are
    /// about the same tool: then each has to be compared with the one before it.
    fn all_authorized(&self, base: &BaseState, changes: &[RegistryChange]) -> bool {
        if changes.iter().all(|change| change.authorize.is_none()) {
            return true;
        }
        let mut names = HashSet::new();
        let applied = changes.iter().zip(&self.verdicts).filter(|(_, verdict)| verdict.is_ok());
        applied.filter(|(change, _)| change.op.kind == EntryKind::Tool).all(|(change, _)| {
            names.insert(&change.op.name) && authorize(change, &base.checked, &self.checked).is_ok()
        })
    }

    /// Returns all tools in the order of the file: the changed ones from `new`, the others as they were.
    fn merge_tools(
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
        let names = self.documents.tools.iter().flat_map(crate::document::RegistryDocument::names);
        names.filter_map(|name| by_name.get(&**name).map(|tool| Arc::clone(tool))).collect()
    }

    /// Returns the warnings about an entry.
    fn notes(&self, op: &EntryOp) -> Vec<RegistryProblem> {
        let about = format!("`{}`", op.name);
        self.checked.notes.iter().filter(|note| note.message.contains(&about)).cloned().collect()
    }

    /// Returns the outcome of a plan with one change.
    pub(super) fn into_preview(mut self) -> Result<ChangePreview, ChangeError> {
        let notes = self.verdicts.pop().expect("each change has a verdict")?;
        Ok(ChangePreview { checked: self.checked, notes })
    }

    /// Returns the state after the commit.
    pub(super) fn base(&self, rev: Revision) -> Arc<BaseState> {
        Arc::new(BaseState { rev, documents: self.documents.clone(), checked: Arc::clone(&self.checked) })
    }

    /// Returns the replies after the commit.
    pub(super) fn outcomes(&self, rev: Revision) -> Vec<Result<CommittedChange, ChangeError>> {
        let outcome = |verdict: &Result<Vec<RegistryProblem>, ChangeError>| match verdict {
            Ok(notes) => Ok(CommittedChange { rev, notes: notes.clone() }),
            Err(ChangeError::Conflict { .. }) => Err(ChangeError::Conflict { current: rev }),
            Err(refused) => Err(refused.clone()),
        };
        self.verdicts.iter().map(outcome).collect()
    }

    /// Returns the replies after a failed commit.
    pub(super) fn failed_outcomes(
        &self,
        rev: Revision,
        why: &ChangeError,
    ) -> Vec<Result<CommittedChange, ChangeError>> {
        let outcome = |outcome: Result<CommittedChange, ChangeError>| outcome.and_then(|_| Err(why.clone()));
        self.outcomes(rev).into_iter().map(outcome).collect()
    }
}

/// Checks that the author of a tool change has the permissions for it.
fn authorize(
    change: &RegistryChange,
    before: &CheckedRegistry,
    after: &CheckedRegistry,
) -> Result<(), ChangeError> {
    let (Some(authorizer), EntryKind::Tool) = (&change.authorize, change.op.kind) else { return Ok(()) };
    let name = change.op.name.as_str();
    let find = |checked: &'_ CheckedRegistry| {
        checked.tools.iter().find(|tool| tool.name.as_str() == name).map(Arc::clone)
    };
    let (before, after) = (find(before), find(after));
    authorizer.check(ToolChange { name, before: before.as_deref(), after: after.as_deref() })
}

fn unique(names: Vec<&str>) -> Vec<&str> {
    let mut seen = HashSet::new();
    names.into_iter().filter(|name| seen.insert(*name)).collect()
}
