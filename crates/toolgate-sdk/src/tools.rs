//! The tools of one program, by their names.
//!
//! Invariant: every name is there once, and every tool keeps the contract: there is no other kind of [`Tool`].

use std::collections::BTreeMap;

use serde_json::Value;
use toolgate_types::ToolContext as Context;
use toolgate_types::tool::Category;

use crate::tool::{CallResult, Tool};

/// A name is there already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a tool `{0}` already")]
pub struct Duplicate(pub String);

/// The tools of one program.
#[derive(Debug, Clone)]
pub struct Tools {
    name: &'static str,
    version: &'static str,
    instructions: Option<String>,
    tools: BTreeMap<String, Tool>,
}

impl Tools {
    /// No tools yet, of a program with a name and a version: `Tools::new("cards", env!("CARGO_PKG_VERSION"))`.
    pub fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version, instructions: None, tools: BTreeMap::new() }
    }

    /// What a model should know of all of them.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.instructions = Some(text.to_owned());
        self
    }

    /// The same with one more.
    ///
    /// # Errors
    /// When its name is there already.
    pub fn with(mut self, tool: Tool) -> Result<Self, Duplicate> {
        self.register(tool)?;
        Ok(self)
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// When its name is there already.
    pub fn register(&mut self, tool: Tool) -> Result<(), Duplicate> {
        let name = tool.name().to_owned();
        if self.tools.contains_key(&name) {
            return Err(Duplicate(name));
        }
        self.tools.insert(name, tool);
        Ok(())
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name)
    }

    /// All of them, by their names.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Tool> {
        self.tools.values()
    }

    /// Those of one kind.
    pub fn by_category(&self, category: Category) -> impl Iterator<Item = &Tool> {
        self.all().filter(move |tool| tool.definition().category == category)
    }

    /// Those with a tag.
    pub fn by_tag<'a>(&'a self, tag: &'a str) -> impl Iterator<Item = &'a Tool> {
        self.all().filter(move |tool| tool.definition().tags.iter().any(|own| own == tag))
    }

    /// The name of the program.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its version.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// What a model should know of all of them, where that was said.
    pub fn told(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Calls a tool; `None` where there is none of this name.
    pub async fn call(&self, name: &str, arguments: Value, context: Context) -> Option<CallResult> {
        let tool = self.get(name)?;
        Some(tool.call(arguments, context, self.version).await)
    }
}
