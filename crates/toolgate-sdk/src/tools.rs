//! Registry of the tools of one program.
//!
//! Invariant: names are unique, and every tool fulfils the contract: there is no other kind of [`Tool`].

use std::collections::BTreeMap;

use serde_json::Value;
use toolgate_types::ToolContext as Context;
use toolgate_types::tool::Category;

use crate::tool::{CallResult, Tool};

/// Two tools have the same name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a tool `{0}` already")]
pub struct DuplicateTool(pub String);

/// Tools of one program.
#[derive(Debug, Clone)]
pub struct Tools {
    name: &'static str,
    version: &'static str,
    instructions: Option<String>,
    tools: BTreeMap<String, Tool>,
}

impl Tools {
    /// Creates an empty registry for a program: `Tools::new("cards", env!("CARGO_PKG_VERSION"))`.
    pub fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version, instructions: None, tools: BTreeMap::new() }
    }

    /// Sets instructions for models about all of the tools, sent to clients as MCP server instructions.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.instructions = Some(text.to_owned());
        self
    }

    /// Adds a tool and returns the registry.
    ///
    /// # Errors
    /// If there is a tool with this name already.
    pub fn with(mut self, tool: Tool) -> Result<Self, DuplicateTool> {
        self.register(tool)?;
        Ok(self)
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// If there is a tool with this name already.
    pub fn register(&mut self, tool: Tool) -> Result<(), DuplicateTool> {
        let name = tool.name().to_owned();
        if self.tools.contains_key(&name) {
            return Err(DuplicateTool(name));
        }
        self.tools.insert(name, tool);
        Ok(())
    }

    /// Returns a tool by name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name)
    }

    /// Returns all tools, sorted by name.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Tool> {
        self.tools.values()
    }

    /// Returns the tools of a category.
    pub fn by_category(&self, category: Category) -> impl Iterator<Item = &Tool> {
        self.all().filter(move |tool| tool.definition().category == category)
    }

    /// Returns the tools with a tag.
    pub fn by_tag<'a>(&'a self, tag: &'a str) -> impl Iterator<Item = &'a Tool> {
        self.all().filter(move |tool| tool.definition().tags.iter().any(|own| own == tag))
    }

    /// Returns the name of the program.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the version of the program.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Returns the instructions for models, if set.
    pub fn instructions_text(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Calls a tool. Returns `None` if there is no tool with this name.
    pub async fn call(&self, name: &str, arguments: Value, context: Context) -> Option<CallResult> {
        let tool = self.get(name)?;
        Some(tool.call(arguments, context, self.version).await)
    }
}
