//! `run_code` and `find_functions`: programs that call the tools of a profile as functions.
//!
//! Invariant: a program has the functions that the tool list would show to the same caller; each call is an operation of
//! the caller, and the program is a call of `code_execution`.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_mcp::server::{ClientRequest, RpcResult};
use toolgate_mcp::{Forwarded, RawJson, Revision, RpcError};
use toolgate_runtime::code_mode::{
    self, CODE_EXECUTION, FIND_FUNCTIONS, FunctionSet, Program, RUN_CODE, run_code_description,
};
use toolgate_runtime::questions::REQUEST_HUMAN_INPUT;
use toolgate_runtime::results::READ_RESULT;
use toolgate_runtime::{CallOrigin, CatalogTool, ListFilter, ToolState};
use toolgate_types::profile::{HintsMode, ToolExposure};

use super::call::mcp_result;
use super::hints::ResultHints;
use super::profile::RoutedCall;
use super::search::structured_result;
use super::{McpCaller, McpService};
use crate::profile::ProfileView;

/// Functions that one search returns.
const MAX_FOUND: usize = 10;
/// Bytes of signatures and descriptions in the description of `run_code`.
const MAX_STUB_BYTES: usize = 8 << 10;
/// Tools that are no functions: they are listed themselves.
const DIRECT: [&str; 2] = [REQUEST_HUMAN_INPUT, READ_RESULT];

impl McpService {
    /// Returns true if the caller uses the tools of a profile in programs. Callers that may not run code get the tools
    /// themselves.
    pub(super) fn shows_programs(&self, mcp_caller: &McpCaller, view: &ProfileView) -> bool {
        view.profile.exposure == ToolExposure::Code
            && self.runtime.catalog().resolve(CODE_EXECUTION).is_some_and(|tool| {
                tool.state == ToolState::Ready
                    && tool.is_in_profile(&view.profile)
                    && self.runtime.may_see(&mcp_caller.caller, tool)
            })
    }

    /// The functions of a caller.
    fn functions(&self, mcp_caller: &McpCaller, view: &ProfileView, lists: &ListFilter) -> FunctionSet {
        let is_function = |tool: &CatalogTool| {
            let is_direct = tool.server.is_none()
                && (DIRECT.contains(&tool.name.as_str()) || tool.name == CODE_EXECUTION);
            !is_direct && lists.shows(tool) && self.runtime.may_see(&mcp_caller.caller, tool)
        };
        let shown = view.ready().filter(|shown| is_function(&shown.tool));
        FunctionSet::new(
            shown.map(|shown| (shown.name.clone(), shown.description.clone(), Arc::clone(&shown.tool))),
        )
    }

    /// Definitions of the tools that run programs, and of those that are no functions.
    pub(super) fn program_entries(
        &self,
        mcp_caller: &McpCaller,
        view: &Arc<ProfileView>,
        lists: &ListFilter,
    ) -> Vec<String> {
        let functions = self.functions(mcp_caller, view, lists);
        let stubs = functions.stubs(MAX_STUB_BYTES);
        let about =
            view.profile.description.as_ref().map(|text| format!(" Purpose: {text}")).unwrap_or_default();
        let query =
            json!({ "type": "string", "description": "What the function should do, in a few words." });
        let find = json!({
            "name": FIND_FUNCTIONS,
            "description": format!("Finds functions for `{RUN_CODE}` by what they do. There are {}.", functions.all().len()),
            "inputSchema": { "type": "object", "properties": { "query": query }, "required": ["query"] },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        });
        let run = json!({
            "name": RUN_CODE,
            "description": run_code_description(stubs.as_deref()) + &about,
            "inputSchema": code_mode::input_schema(),
        });
        let direct = |tool: &CatalogTool| {
            tool.server.is_none()
                && DIRECT.contains(&tool.name.as_str())
                && self.runtime.may_see(&mcp_caller.caller, tool)
        };
        let others = view.ready().filter(|shown| direct(&shown.tool)).map(|shown| shown.definition.clone());
        [run.to_string(), find.to_string()].into_iter().chain(others).collect()
    }

    pub(super) fn find_functions(
        &self,
        mcp_caller: &McpCaller,
        view: &Arc<ProfileView>,
        arguments: Option<&RawJson>,
        lists: &ListFilter,
        revision: Revision,
    ) -> RpcResult {
        let arguments: Value = arguments.and_then(|arguments| arguments.parse().ok()).unwrap_or_default();
        let query = arguments["query"].as_str().filter(|query| !query.trim().is_empty());
        let query = query.ok_or_else(|| {
            RpcError::new(
                RpcError::INVALID_PARAMS,
                format!("`{FIND_FUNCTIONS}` needs `query`, a description of the task"),
            )
        })?;
        let functions = self.functions(mcp_caller, view, lists);
        let found = view.search(query, MAX_FOUND, |tool| {
            lists.shows(tool) && self.runtime.may_see(&mcp_caller.caller, tool)
        });
        let found = found.iter().filter_map(|shown| functions.of_tool(&shown.name));
        let found: Vec<Value> = found
            .map(|function| json!({ "signature": function.signature(), "description": function.about() }))
            .collect();
        Ok(structured_result(json!({ "functions": found }), revision))
    }

    pub(super) async fn run_program(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        view: &Arc<ProfileView>,
        arguments: Option<RawJson>,
    ) -> RpcResult {
        let lists = self.list_filter(mcp_caller, request).await;
        // The client answers the questions of servers and approves calls; other parts of its request are not arguments
        // of the calls.
        let client = request.forwarded(&["name", "arguments"]).client;
        let origin = CallOrigin {
            session: request.session.as_deref().map(super::issued_session),
            forwarded: Forwarded { client, ..Forwarded::default() },
            client_approves: mcp_caller.client_approves,
            access: mcp_caller.access.clone(),
            profile: Some(Arc::clone(&view.profile)),
            ..CallOrigin::default()
        };
        let inner = origin.clone();
        let program = Program {
            runtime: Arc::clone(&self.runtime),
            caller: (*mcp_caller.caller).clone(),
            functions: self.functions(mcp_caller, view, &lists),
            origin: Arc::new(move |_| inner.clone()),
            gate: Arc::new(|_| Ok(())),
            trace: request.trace.clone(),
        };
        let arguments = arguments.unwrap_or_else(|| RawJson::from_value(&json!({})));
        let Some(operation) = program.into_operation(arguments, origin) else {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{RUN_CODE}`")));
        };
        let called = self.runtime.execute_boxed(&mcp_caller.caller, operation).await;
        mcp_caller.record_missing(&called);
        let routed =
            RoutedCall { name: RUN_CODE.into(), hints: HintsMode::default(), ..RoutedCall::default() };
        let hints = ResultHints::render(&self.runtime, &mcp_caller.caller, &routed, &called);
        mcp_result(called, &hints, request.client.revision())
    }
}
