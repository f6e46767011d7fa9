//! `inputs` of `mcp.json`: values the user is asked for when servers start.

use serde::Serialize;
use serde_json::{Map as JsonMap, Value as Json};

use crate::context::{Context, InputAnswer};
use crate::keys::{ConfigValue, KeyTable, Spanned, choice, into_value, into_values, join_quoted, keys};
use crate::node::Node;
use crate::resolve::ConfigBuilder;

keys! {
    /// A value the user is asked for when a server starts. The environment variable `TOOLGATE_INPUT_ID`
    /// (the id in upper case, `-` as `_`) answers it without a prompt.
    struct InputFile as "input" {
        /// Id used in `${input:ID}`.
        id: String; required,
        /// Kind of prompt: one line of text (`promptString`) or a choice from `options` (`pickString`). `command` is
        /// treated as `promptString`.
        r#type: InputKindName = "promptString",
        /// Prompt text.
        description: String,
        /// Default answer.
        default: String,
        /// Hides the answer while it is typed.
        password: bool = "false",
        /// Allowed answers, for `pickString`.
        options: Vec<Spanned<String>>,
    }
}

choice! {
    /// Kind of prompt.
    enum InputKindName as "a kind of input" {
        /// Free text, one line.
        PromptString = "promptString",
        /// A choice from `options`.
        PickString = "pickString",
        /// A command of the editor that wrote the file. Toolgate asks for one line of text instead.
        Command = "command",
    }
}

/// An input with its answer, if it has one. Inputs are read before servers, which may refer to them.
#[derive(Debug, Clone)]
pub(crate) struct InputEntry {
    pub(crate) file: InputFile,
    pub(crate) answered: bool,
}

impl ConfigValue for InputEntry {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let file = InputFile::read(node, cx)?;
        let id = file.id.as_ref()?.value.clone();
        let from_variable = cx.variable(&input_variable(&id)).map(|(value, _)| value.to_owned());
        let value = from_variable.or_else(|| file.default.as_ref().map(|at| at.value.clone()));
        let answered = value.is_some();
        if let Some(value) = value.as_deref().filter(|_| file.password.as_ref().is_some_and(|at| at.value)) {
            cx.hide(value);
        }
        cx.inputs.push(InputAnswer { id, value });
        Some(Self { file, answered })
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        InputFile::schema(parts)
    }

    fn label() -> String {
        InputFile::label()
    }

    fn tables(out: &mut Vec<KeyTable>) {
        InputFile::tables(out);
    }
}

/// A value the user is asked for when servers start.
#[derive(Debug, Clone, Serialize)]
pub struct InputSpec {
    /// Id used in `${input:ID}`.
    pub id: String,
    /// Prompt text.
    pub description: String,
    /// True if the answer is hidden while it is typed.
    pub password: bool,
    /// Allowed answers; any string if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// True if the variable or a default already answers it.
    pub answered: bool,
}

impl InputSpec {
    /// Name of the environment variable that answers it.
    pub fn variable(&self) -> String {
        input_variable(&self.id)
    }
}

pub(crate) fn input_variable(id: &str) -> String {
    format!("TOOLGATE_INPUT_{}", id.to_uppercase().replace(|c: char| !c.is_alphanumeric(), "_"))
}

impl ConfigBuilder {
    pub(crate) fn add_input(&mut self, InputEntry { file, answered }: InputEntry, cx: &mut Context<'_>) {
        let Some(id) = file.id else { return };
        let pick = file.r#type.is_some_and(|at| at.value == InputKindName::PickString);
        let options = into_values(file.options).unwrap_or_default();
        if pick && options.is_empty() {
            let message = format!("input `{}` has nothing to choose from", id.value);
            cx.error(id.span, message, "add `options`, or make it a `promptString`");
        }
        let answer =
            cx.inputs.iter().find(|input| input.id == id.value).and_then(|input| input.value.as_ref());
        if pick && !options.is_empty() && answer.is_some_and(|answer| !options.contains(answer)) {
            let message = format!("the answer to input `{}` is none of its options", id.value);
            let options: Vec<_> = options.iter().map(String::as_str).collect();
            let hint = format!(
                "one of {} is expected, by `default` or by `{}`",
                join_quoted(&options, "or"),
                input_variable(&id.value)
            );
            cx.error(id.span, message, hint);
        }
        if self.inputs.iter().any(|input| input.id == id.value) {
            cx.error(id.span, format!("input `{}` is declared twice", id.value), "keep one of the two");
        }
        self.inputs.push(InputSpec {
            description: into_value(file.description).unwrap_or_else(|| id.value.clone()),
            password: file.password.is_some_and(|at| at.value),
            options: if pick { options } else { Vec::new() },
            answered,
            id: id.value,
        });
    }
}

#[cfg(test)]
mod tests;
