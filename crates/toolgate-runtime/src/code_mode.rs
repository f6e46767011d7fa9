//! Code mode: a program of the model calls tools as functions, and only its output goes to the model.
//!
//! A front end that shows tools this way builds a [`Program`] from the tools that its caller sees, and runs it as the tool
//! `code_execution`: its permission, rules, rate limit and records are those of that tool. Each function call is an
//! operation of its own, with the rights, limits and approvals of the caller. Invariant: a program calls only tools that
//! are its functions; it holds no credential, and the number and the size of its calls are bounded.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use toolgate_types::{Caller, ErrorCode, HumanDuration};
use toolgate_upstream::builtin::{BuiltinCall, BuiltinError, BuiltinResult};
use toolgate_upstream::code::{CodeRunner, FunctionError, FunctionHost, ProgramFunction};
use toolgate_upstream::{BuiltinTool, RawJson, TraceContext};

pub use crate::builtins::CODE_EXECUTION;
use crate::builtins::code_reply;
use crate::catalog::{CatalogTool, Upstream};
use crate::operation::{CallOrigin, Operation, OperationTarget};
use crate::pipeline::{CallOutcome, MAX_APPROVAL_WAIT};
use crate::provider_schema::short_hash;
use crate::runtime::Runtime;

/// Tool that runs a program.
pub const RUN_CODE: &str = "run_code";
/// Tool that finds functions.
pub const FIND_FUNCTIONS: &str = "find_functions";
/// Calls of one program.
const MAX_CALLS: usize = 200;
/// Programs that run at the same time. They take no slot, because the tools that they call need slots.
static PROGRAMS: Semaphore = Semaphore::const_new(16);
/// Characters of a type, and of the description of a function.
const MAX_TYPE_CHARS: usize = 300;
const MAX_ABOUT_CHARS: usize = 300;
/// Nested types that are spelled out.
const MAX_TYPE_DEPTH: usize = 3;
/// Keywords of Python.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];
/// Names that programs need themselves.
const BUILTINS: [&str; 44] = [
    "ToolError",
    "abs",
    "all",
    "any",
    "bool",
    "bytes",
    "chr",
    "dict",
    "dir",
    "divmod",
    "enumerate",
    "exec",
    "filter",
    "float",
    "format",
    "getattr",
    "hash",
    "id",
    "input",
    "int",
    "isinstance",
    "iter",
    "len",
    "list",
    "map",
    "max",
    "min",
    "next",
    "object",
    "open",
    "ord",
    "pow",
    "print",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "sorted",
    "str",
    "sum",
    "tuple",
    "type",
    "zip",
];

/// A tool as a function.
#[derive(Debug, Clone)]
pub struct CodeFunction {
    /// A Python identifier.
    pub name: String,
    /// Name of the tool that callers know.
    pub shown: String,
    pub description: String,
    pub tool: Arc<CatalogTool>,
}

impl CodeFunction {
    /// Names of the arguments: required ones first, in the order of the schema.
    fn parameters(&self) -> Vec<String> {
        let schema: Value = self.tool.input_schema.parse().unwrap_or_default();
        let required = |name: &String| is_required(&schema, name);
        let names: Vec<String> =
            schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let (mut first, rest): (Vec<_>, Vec<_>) = names.into_iter().partition(required);
        first.extend(rest);
        first
    }

    /// The signature, such as `get_order(id: str, full: bool = None) -> {"total": float}`.
    pub fn signature(&self) -> String {
        let schema: Value = self.tool.input_schema.parse().unwrap_or_default();
        let parameter = |name: String| {
            let kind = python_type(&schema["properties"][&name], 0);
            let optional = if is_required(&schema, &name) { "" } else { " = None" };
            let shown = if is_identifier(&name) { name } else { format!("**{{{name:?}}}") };
            format!("{shown}: {kind}{optional}")
        };
        let parameters: Vec<String> = self.parameters().into_iter().map(parameter).collect();
        let output = self.tool.output_schema.as_ref().and_then(|schema| schema.parse::<Value>().ok());
        let returns = output.map_or_else(|| "str".to_owned(), |schema| python_type(&schema, 0));
        format!("{}({}) -> {returns}", self.name, parameters.join(", "))
    }

    /// The description on one line.
    pub fn about(&self) -> String {
        let about = self.description.split_whitespace().collect::<Vec<_>>().join(" ");
        shorten(&about, MAX_ABOUT_CHARS)
    }

    /// Signature and description.
    pub fn stub(&self) -> String {
        let (signature, about) = (self.signature(), self.about());
        if about.is_empty() { signature } else { format!("{signature}\n    {about}") }
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
}

fn is_identifier(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !KEYWORDS.contains(&name)
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Describes a JSON Schema as a Python type.
fn python_type(schema: &Value, depth: usize) -> String {
    let text = match schema {
        _ if depth > MAX_TYPE_DEPTH => "object".to_owned(),
        _ if schema["enum"].is_array() => {
            let values = schema["enum"].as_array().into_iter().flatten().map(Value::to_string);
            values.collect::<Vec<_>>().join(" | ")
        }
        _ if schema.get("const").is_some() => schema["const"].to_string(),
        _ => match &schema["type"] {
            Value::String(kind) => plain_type(kind, schema, depth),
            Value::Array(kinds) => {
                let kinds =
                    kinds.iter().filter_map(Value::as_str).map(|kind| plain_type(kind, schema, depth));
                kinds.collect::<Vec<_>>().join(" | ")
            }
            _ => match schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
                Some(all) => {
                    let kinds = all.iter().map(|one| python_type(one, depth + 1));
                    kinds.collect::<Vec<_>>().join(" | ")
                }
                None if schema["properties"].is_object() => plain_type("object", schema, depth),
                None => "object".to_owned(),
            },
        },
    };
    if depth == 0 { shorten(&text, MAX_TYPE_CHARS) } else { text }
}

fn plain_type(kind: &str, schema: &Value, depth: usize) -> String {
    match kind {
        "string" => "str".to_owned(),
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "boolean" => "bool".to_owned(),
        "null" => "None".to_owned(),
        "array" => format!("list[{}]", python_type(&schema["items"], depth + 1)),
        _ => match schema["properties"].as_object().filter(|all| !all.is_empty()) {
            Some(properties) => {
                let member = |(name, schema): (&String, &Value)| {
                    format!("{name:?}: {}", python_type(schema, depth + 1))
                };
                format!("{{{}}}", properties.iter().map(member).collect::<Vec<_>>().join(", "))
            }
            None => "dict".to_owned(),
        },
    }
}

/// The functions of a program.
#[derive(Debug, Clone, Default)]
pub struct FunctionSet {
    functions: Vec<CodeFunction>,
    names: HashMap<String, usize>,
}

impl FunctionSet {
    /// Names tools, given with the name and the description that the caller knows.
    pub fn new(tools: impl IntoIterator<Item = (String, String, Arc<CatalogTool>)>) -> Self {
        let mut set = Self::default();
        for (shown, description, tool) in tools {
            let mut name: String =
                shown.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            if !is_identifier(&name) || BUILTINS.contains(&name.as_str()) {
                name.insert_str(0, "f_");
            }
            if set.names.contains_key(&name) {
                name = format!("{name}_{}", short_hash(&shown));
            }
            if set.names.insert(name.clone(), set.functions.len()).is_none() {
                set.functions.push(CodeFunction { name, shown, description, tool });
            }
        }
        set
    }

    pub fn all(&self) -> &[CodeFunction] {
        &self.functions
    }

    pub fn get(&self, name: &str) -> Option<&CodeFunction> {
        self.functions.get(*self.names.get(name)?)
    }

    /// The function of a tool, by the name that the caller knows.
    pub fn of_tool(&self, shown: &str) -> Option<&CodeFunction> {
        self.functions.iter().find(|function| function.shown == shown)
    }

    /// Returns signatures and descriptions of all functions, if they have at most this many bytes.
    pub fn stubs(&self, most: usize) -> Option<String> {
        let mut text = String::new();
        for function in &self.functions {
            let _ = writeln!(text, "{}", function.stub());
            if text.len() > most {
                return None;
            }
        }
        Some(text)
    }

    /// The functions with names that occur in a program.
    fn used_in(&self, code: &str) -> Vec<ProgramFunction> {
        let words: HashSet<&str> = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
        let used = self.functions.iter().filter(|function| words.contains(function.name.as_str()));
        used.map(|function| ProgramFunction {
            name: function.name.clone(),
            parameters: function.parameters(),
        })
        .collect()
    }
}

/// Decides if one more call may be made, before the pipeline does: the budget of a run.
pub type CallGate = Arc<dyn Fn(&CatalogTool) -> Result<(), String> + Send + Sync>;

/// A program that one caller may run.
pub struct Program {
    pub runtime: Arc<Runtime>,
    pub caller: Caller,
    pub functions: FunctionSet,
    /// Origin of the calls of a tool.
    pub origin: Arc<dyn Fn(&CatalogTool) -> CallOrigin + Send + Sync>,
    pub gate: CallGate,
    /// Trace of the call that runs the program.
    pub trace: TraceContext,
}

impl Program {
    /// Returns the operation that runs a program. `None` if the catalog has no `code_execution`.
    pub fn into_operation(self, arguments: RawJson, origin: CallOrigin) -> Option<Operation> {
        let runtime = Arc::clone(&self.runtime);
        let trace = self.trace.clone();
        let catalog = runtime.catalog();
        let base = catalog.resolve(CODE_EXECUTION)?;
        let Upstream::Builtin(builtin) = &base.upstream else { return None };
        let runner = Arc::clone(builtin.code.as_ref()?);
        let timeout = runner.config().timeout.get() + MAX_APPROVAL_WAIT;
        let program = Arc::new(self);
        let run = move |call: BuiltinCall| -> BoxFuture<'static, BuiltinResult> {
            let (program, runner) = (Arc::clone(&program), Arc::clone(&runner));
            Box::pin(async move { program.run(&runner, call).await })
        };
        let name = CODE_EXECUTION.parse().expect("a valid name");
        let mut tool =
            BuiltinTool::query(name, base.description.clone(), RawJson::from_value(&input_schema()), run);
        tool.timeout = Some(HumanDuration::from_secs(timeout.as_secs()));
        tool.waits_for_person = true;
        let tool = CatalogTool::for_program(base, tool);
        runtime.share_state(base, &tool);
        let target = OperationTarget::FrontEndTool(Arc::new(tool));
        Some(Operation::new(target, arguments).with_origin(origin).with_trace(trace))
    }

    async fn run(&self, runner: &CodeRunner, call: BuiltinCall) -> BuiltinResult {
        let Ok(_running) = PROGRAMS.try_acquire() else {
            return Err(BuiltinError::new(ErrorCode::Overloaded, "too many programs run at the same time"));
        };
        let arguments: Value = call.arguments.parse().map_err(|error| error.to_string())?;
        let code = arguments["code"].as_str().unwrap_or_default();
        let host =
            ProgramHost { program: self, calls: AtomicUsize::new(0), untrusted: AtomicBool::new(false) };
        let functions = self.functions.used_in(code);
        let ran = runner.run_program(code, &functions, &host).await;
        if host.untrusted.load(Ordering::Relaxed) {
            call.untrusted.store(true, Ordering::Relaxed);
        }
        Ok(code_reply(ran?, &call.caller, self.runtime.results.as_ref()).await)
    }
}

/// Schema of the arguments of [`RUN_CODE`].
pub fn input_schema() -> Value {
    json!({
        "type": "object", "required": ["code"], "additionalProperties": false,
        "properties": { "code": { "type": "string", "minLength": 1, "maxLength": 200_000,
            "description": "A Python program. What it prints is the result." } },
    })
}

/// Description of [`RUN_CODE`], with the functions if they are few.
pub fn run_code_description(stubs: Option<&str>) -> String {
    let rules = "Runs a Python program that calls tools as functions, and returns what it prints. Do several steps in one \
                 program: call, filter and combine, and print only what you need. A function returns the structured result \
                 of its tool, JSON text parsed, or a string; it raises `ToolError` (`code`, `message`, `hint`) if the call \
                 fails or is not allowed. Programs share no state, and have no network and no files.";
    match stubs {
        Some(stubs) => format!("{rules} Functions:\n{stubs}"),
        None => format!("{rules} Find functions with `{FIND_FUNCTIONS}` first."),
    }
}

/// Answers the calls of a program through the pipeline.
struct ProgramHost<'a> {
    program: &'a Program,
    calls: AtomicUsize,
    /// True if a result came from a source that is not trusted.
    untrusted: AtomicBool,
}

impl FunctionHost for ProgramHost<'_> {
    fn call<'a>(
        &'a self,
        name: &'a str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, FunctionError>> {
        Box::pin(async move {
            let Program { runtime, caller, functions, origin, gate, trace } = self.program;
            if self.calls.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS {
                let message = format!("a program makes at most {MAX_CALLS} calls");
                return Err(FunctionError::new(ErrorCode::RateLimited.label(), message));
            }
            let Some(function) = functions.get(name) else {
                let message = format!("there is no function `{name}`");
                return Err(FunctionError::new(ErrorCode::ToolNotFound.label(), message));
            };
            gate(&function.tool).map_err(|why| FunctionError::new(ErrorCode::RateLimited.label(), why))?;
            let operation = Operation {
                full_result: true,
                ..Operation::tool(function.tool.name.clone(), RawJson::from_value(&Value::Object(arguments)))
            };
            let trace = TraceContext::generate().with_parent(trace.traceparent());
            let operation = operation.with_trace(trace).with_origin(origin(&function.tool));
            let outcome = runtime.execute_boxed(caller, operation).await;
            if outcome.is_untrusted() {
                self.untrusted.store(true, Ordering::Relaxed);
            }
            function_result(&outcome)
        })
    }
}

/// Returns the result as a program sees it.
fn function_result(outcome: &CallOutcome) -> Result<Value, FunctionError> {
    if let Some(error) = &outcome.result.error {
        let (code, message) = (error.code.label().to_owned(), error.message.clone());
        return Err(FunctionError { code, message, hint: error.hint.clone() });
    }
    let reply: Value = outcome.reply.as_ref().and_then(|reply| reply.parse().ok()).unwrap_or_default();
    if !reply["structuredContent"].is_null() {
        return Ok(reply["structuredContent"].clone());
    }
    let blocks = reply["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    if blocks.iter().any(|block| block["type"] != "text") {
        return Ok(Value::Array(blocks.to_vec()));
    }
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let text = texts.join("\n");
    let is_json = text.trim_start().starts_with(['{', '[']);
    let parsed = is_json.then(|| serde_json::from_str(&text).ok()).flatten();
    Ok(parsed.unwrap_or(Value::String(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_become_python_types() {
        for (schema, text) in [
            (json!({ "type": "string" }), "str"),
            (json!({ "type": ["integer", "null"] }), "int | None"),
            (json!({ "enum": ["a", "b"] }), "\"a\" | \"b\""),
            (json!({ "type": "array", "items": { "type": "number" } }), "list[float]"),
            (json!({ "type": "object", "properties": { "a": { "type": "boolean" } } }), "{\"a\": bool}"),
            (json!({ "anyOf": [{ "type": "string" }, { "type": "object" }] }), "str | dict"),
            (json!({}), "object"),
            (json!(true), "object"),
        ] {
            assert_eq!(python_type(&schema, 0), text, "{schema}");
        }
        let mut deep = json!({ "type": "string" });
        for _ in 0..50 {
            deep = json!({ "type": "array", "items": deep });
        }
        assert_eq!(python_type(&deep, 0), "list[list[list[list[object]]]]");
    }
}
