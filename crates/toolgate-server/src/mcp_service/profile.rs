//! Profiles of the MCP service: the tools a caller sees, and the routing of its calls.
//!
//! The profile is looked up per request, so a configuration change counts from the next request on. Invariant: every
//! call takes the same pipeline, whatever name the profile gives to the tool.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use toolgate_mcp::server::{ClientRequest, RpcResult};
use toolgate_mcp::{RawJson, RpcError};
use toolgate_runtime::CallOutcome;
use toolgate_runtime::code_mode::{FIND_FUNCTIONS, RUN_CODE};
use toolgate_types::Profile;
use toolgate_types::profile::{HintsMode, ProfileName, ToolExposure};

use super::{McpCaller, McpService};
use crate::profile::{CALL_TOOL, DESCRIBE_TOOL, ProfileTool, ProfileView, SEARCH_TOOLS};

/// Cache of views, by profile.
#[derive(Default)]
pub(super) struct ViewCache(Mutex<HashMap<ProfileName, Arc<ProfileView>>>);

/// Route of a call.
pub(super) enum CallRoute {
    /// Through the pipeline.
    Pipeline(RoutedCall),
    /// Through the pipeline: a program that calls the tools of a profile.
    Program { view: Arc<ProfileView>, arguments: Option<RawJson> },
    /// Answered by the gateway itself: a search of the tools that the caller may see. It is recorded as a list.
    Answered { name: &'static str, arguments: Option<RawJson>, outcome: RpcResult },
}

/// A call with the tool name and arguments of the catalog.
#[derive(Default)]
pub(super) struct RoutedCall {
    pub(super) name: Arc<str>,
    pub(super) arguments: Option<RawJson>,
    /// True if the tool is not part of the profile.
    pub(super) hidden: bool,
    /// The profile, and the tool in it, if any.
    pub(super) seen: Option<(Arc<ProfileView>, Option<Arc<ProfileTool>>)>,
    /// Hints in the result.
    pub(super) hints: HintsMode,
}

impl RoutedCall {
    /// Renames tools in the error to the names of the profile.
    pub(super) fn rename_error(&self, called: &mut CallOutcome) {
        if let Some((view, shown)) = &self.seen {
            view.rename_error(called, shown.as_deref());
        }
    }

    /// The profile, if any.
    pub(super) fn view(&self) -> Option<&ProfileView> {
        self.seen.as_ref().map(|(view, _)| &**view)
    }
}

impl McpService {
    /// Returns the profile of a caller; `None` shows everything.
    pub(super) fn profile(&self, mcp_caller: &McpCaller) -> Result<Option<Arc<Profile>>, RpcError> {
        let profiles = self.runtime.profiles();
        let found =
            profiles.resolve(&mcp_caller.caller.id, mcp_caller.profile.as_ref().map(ProfileName::as_str));
        let missing = |_| RpcError::new(-32600, "the profile no longer exists");
        found.map(|profile| profile.cloned()).map_err(missing)
    }

    /// Returns the view of a profile on the current catalog.
    pub(super) fn view(&self, profile: &Arc<Profile>) -> Arc<ProfileView> {
        let catalog = self.runtime.catalog();
        let lock = || self.view_cache.0.lock();
        let before = lock().get(&profile.name).cloned();
        if let Some(view) = before.as_ref().filter(|view| view.is_current(&catalog, profile)) {
            return Arc::clone(view);
        }
        // Built outside the lock, because it takes time. Two threads that build the same view do no harm.
        let view = Arc::new(ProfileView::new(&catalog, profile, before.as_deref()));
        let mut views = lock();
        let there = self.runtime.profiles();
        views.retain(|name, _| there.all.iter().any(|profile| profile.name == *name));
        views.insert(profile.name.clone(), Arc::clone(&view));
        view
    }

    /// Builds the views of all profiles.
    pub(crate) fn prepare(&self) {
        for profile in &self.runtime.profiles().all {
            self.view(profile).prepare();
        }
    }

    /// Finds a tool by the name the caller knows.
    pub(super) fn find_tool(
        &self,
        mcp_caller: &McpCaller,
        name: &str,
    ) -> Option<(Arc<ProfileView>, Arc<ProfileTool>)> {
        let view = self.view(&self.profile(mcp_caller).ok()??);
        let shown = Arc::clone(view.find(name)?);
        Some((view, shown))
    }

    /// Maps a call to the tool name and arguments of the catalog.
    pub(super) async fn route(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        name: Arc<str>,
        arguments: Option<RawJson>,
    ) -> Result<CallRoute, RpcError> {
        let Some(profile) = self.profile(mcp_caller)? else {
            let hints = self.runtime.profiles().hints;
            return Ok(CallRoute::Pipeline(RoutedCall { name, arguments, hints, ..RoutedCall::default() }));
        };
        let view = self.view(&profile);
        if profile.exposure == ToolExposure::Search {
            let revision = request.client.revision();
            match &*name {
                SEARCH_TOOLS => {
                    let lists = self.list_filter(mcp_caller, request).await;
                    let outcome = self.search(mcp_caller, &view, arguments.as_ref(), &lists, revision);
                    return Ok(CallRoute::Answered { name: SEARCH_TOOLS, arguments, outcome });
                }
                DESCRIBE_TOOL => {
                    let lists = self.list_filter(mcp_caller, request).await;
                    let outcome = self.describe(mcp_caller, &view, arguments.as_ref(), &lists, revision);
                    return Ok(CallRoute::Answered { name: DESCRIBE_TOOL, arguments, outcome });
                }
                CALL_TOOL => {
                    let (name, arguments) = super::search::call_tool_target(arguments.as_ref())?;
                    return Ok(CallRoute::Pipeline(self.routed_call(
                        mcp_caller,
                        view,
                        name.into(),
                        arguments,
                    )));
                }
                _ => {}
            }
        }
        if self.shows_programs(mcp_caller, &view) {
            match &*name {
                RUN_CODE => return Ok(CallRoute::Program { view, arguments }),
                FIND_FUNCTIONS => {
                    let lists = self.list_filter(mcp_caller, request).await;
                    let revision = request.client.revision();
                    let outcome =
                        self.find_functions(mcp_caller, &view, arguments.as_ref(), &lists, revision);
                    return Ok(CallRoute::Answered { name: FIND_FUNCTIONS, arguments, outcome });
                }
                _ => {}
            }
        }
        Ok(CallRoute::Pipeline(self.routed_call(mcp_caller, view, name, arguments)))
    }
}

impl McpService {
    /// Maps a call by the name that a profile shows. The login to a server of the profile keeps its name.
    fn routed_call(
        &self,
        mcp_caller: &McpCaller,
        view: Arc<ProfileView>,
        name: Arc<str>,
        arguments: Option<RawJson>,
    ) -> RoutedCall {
        let mut routed = routed_call(view, name, arguments);
        if routed.hidden
            && let Some(login) = self.runtime.login_tool(&mcp_caller.caller, &routed.name)
            && routed.view().is_some_and(|view| self.has_server_of(&view.profile, &login))
        {
            routed.hidden = false;
        }
        routed
    }
}

fn routed_call(view: Arc<ProfileView>, name: Arc<str>, arguments: Option<RawJson>) -> RoutedCall {
    let hints = view.profile.hints;
    match view.find(&name).map(Arc::clone) {
        Some(shown) => RoutedCall {
            name: shown.tool.name.as_str().into(),
            arguments: arguments.map(|arguments| shown.arguments(arguments)),
            hidden: false,
            seen: Some((view, Some(shown))),
            hints,
        },
        None => RoutedCall { name, arguments, hidden: true, seen: Some((view, None)), hints },
    }
}

/// Appends a text block to the content of a result.
pub(super) fn with_text(result: &RawJson, text: &str) -> RawJson {
    let block = serde_json::json!({ "type": "text", "text": text });
    let mut out = String::with_capacity(result.as_str().len() + text.len() + 64);
    let members = result.members();
    if members.iter().all(|(name, _)| name != "content") {
        return result.clone();
    }
    out.push('{');
    for (at, (name, value)) in members.iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        out.push_str(&serde_json::Value::from(&**name).to_string());
        out.push(':');
        match value.trim_end().strip_suffix(']') {
            Some(list) if name == "content" => {
                out.push_str(list);
                let is_empty = list.trim_start_matches('[').trim().is_empty();
                out.push_str(&format!("{}{block}]", if is_empty { "" } else { "," }));
            }
            _ => out.push_str(value),
        }
    }
    out.push('}');
    RawJson::from_trusted(out)
}

#[test]
fn appends_text_as_the_last_block() {
    let check = |result: &str, due: &str| {
        assert_eq!(with_text(&RawJson::from_trusted(result.to_owned()), "x").as_str(), due);
    };
    let block = r#"{"type":"text","text":"x"}"#;
    check(r#"{"content":[ ],"a":1.0}"#, &format!(r#"{{"content":[ {block}],"a":1.0}}"#));
    check(
        r#"{"content":[{"type":"text","text":"]"}] }"#,
        &format!(r#"{{"content":[{{"type":"text","text":"]"}},{block}]}}"#),
    );
    check(r#"{"task":{}}"#, r#"{"task":{}}"#);
}
