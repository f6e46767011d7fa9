//! Finds the targets of operations that are not tool calls, and lists those a caller may see.
//!
//! Invariant: a resource or prompt that the caller may not see is in no list, and an operation on it fails as if it did
//! not exist.

use std::sync::Arc;
use std::time::SystemTime;

use regex::RegexBuilder;
use serde_json::json;
use toolgate_json::CallArguments;
use toolgate_policy::decide::PolicyRequest;
use toolgate_policy::{TargetKind, ToolAttributes};
use toolgate_types::call::OperationKind;
use toolgate_types::{CallError, Caller, ErrorCode, Profile, ServerName, ServerSpec, Stage};
use toolgate_upstream::invoke::ServerRequest;
use toolgate_upstream::offer::{OfferedItem, ServerOffer};
use toolgate_upstream::{RawJson, Server};

use crate::catalog::{CatalogTool, SEPARATOR, server_item};
use crate::operation::{CompletionTarget, Operation, OperationTarget};
use crate::results::URI_PREFIX;
use crate::runtime::{AccessRules, ListFilter, Runtime};

use super::{MAX_NAME_BYTES, MAX_URI_BYTES};

/// A prompt, resource or resource template that a caller may use.
#[derive(Debug, Clone)]
pub struct VisibleItem {
    pub server: String,
    pub item: OfferedItem,
}

impl Runtime {
    /// Prompts that the caller may get, in configuration order.
    pub fn visible_prompts(&self, caller: &Caller, lists: &ListFilter) -> Vec<VisibleItem> {
        self.visible_items(caller, lists, TargetKind::Prompt, |offer| &offer.prompts)
    }

    /// Resources that the caller may read, in configuration order.
    pub fn visible_resources(&self, caller: &Caller, lists: &ListFilter) -> Vec<VisibleItem> {
        self.visible_items(caller, lists, TargetKind::Resource, |offer| &offer.resources)
    }

    /// Resource templates that the caller may read from, in configuration order.
    pub fn visible_templates(&self, caller: &Caller, lists: &ListFilter) -> Vec<VisibleItem> {
        self.visible_items(caller, lists, TargetKind::Resource, |offer| &offer.templates)
    }

    fn visible_items(
        &self,
        caller: &Caller,
        lists: &ListFilter,
        kind: TargetKind,
        of: impl Fn(&ServerOffer) -> &Arc<[OfferedItem]>,
    ) -> Vec<VisibleItem> {
        let (mut all, access) = (Vec::new(), &self.access.rules());
        for (server, offer) in self.approved_offers() {
            let name = &server.spec().name;
            let mut visibility = ItemVisibility::new(access, caller, server.spec(), kind);
            let listed = lists.items(name, &offer, &of);
            // Only prompts of the catalog can be used.
            let is_known = |item: &OfferedItem| {
                kind != TargetKind::Prompt || offer.prompts.iter().any(|known| known.id == item.id)
            };
            for item in listed.iter().filter(|item| item.fault.is_none() && is_known(item)) {
                let in_profile = |profile: &Profile| match kind {
                    TargetKind::Prompt => includes_prompt(profile, name.as_str(), &item.id),
                    TargetKind::Resource | TargetKind::Tool => profile.resources.contains(&[&item.id]),
                };
                if visibility.includes(&item.id) && self.access.is_in_some_profile(caller, in_profile) {
                    all.push(VisibleItem { server: name.to_string(), item: item.clone() });
                }
            }
        }
        all
    }

    /// Returns true if the caller may see a prompt or a resource of the catalog.
    pub(crate) fn may_see_items(&self, caller: &Caller, server: &ServerName) -> bool {
        let lists = ListFilter::default();
        let is_of = |item: &VisibleItem| item.server == server.as_str();
        self.visible_prompts(caller, &lists).iter().any(is_of)
            || self.visible_resources(caller, &lists).iter().any(is_of)
            || self.visible_templates(caller, &lists).iter().any(is_of)
    }

    /// Returns true if the caller may read a resource of a server.
    pub fn may_see_resource(&self, caller: &Caller, server: &str, uri: &str) -> bool {
        let (offers, access) = (self.approved_offers(), &self.access.rules());
        let found = offers.iter().find(|(known, _)| known.spec().name.as_str() == server);
        found.is_some_and(|(server, offer)| {
            self.access.is_in_some_profile(caller, |profile| includes_resource(profile, offer, uri))
                && ItemVisibility::new(access, caller, server.spec(), TargetKind::Resource).includes(uri)
        })
    }

    /// Finds the target of an operation on a resource or a prompt.
    pub(super) fn resolve_item(
        &self,
        access: &Arc<AccessRules>,
        caller: &Caller,
        operation: &Operation,
    ) -> Result<CatalogTool, CallError> {
        let missing = || not_found(operation);
        let is_prompt = matches!(
            operation.target,
            OperationTarget::Prompt { .. } | OperationTarget::Completion(CompletionTarget::Prompt { .. })
        );
        if operation.name().len() > if is_prompt { MAX_NAME_BYTES } else { MAX_URI_BYTES } {
            return Err(missing());
        }
        let server = |name: &str| self.approved_server(access, caller, operation, name);
        match &operation.target {
            OperationTarget::Resource { uri, .. } if uri.starts_with(URI_PREFIX) => {
                Ok(CatalogTool::for_stored_result(uri))
            }
            OperationTarget::Resource { uri, server: Some(name) } => {
                let server = server(name)?;
                if !self.offers_resource(caller, operation, &server, uri) {
                    return Err(missing());
                }
                let request = ServerRequest::ReadResource;
                Ok(CatalogTool::for_request(server.spec(), TargetKind::Resource, uri, request))
            }
            OperationTarget::Subscription { uri } => {
                let holders = self.resource_holders(access, caller, uri, operation.origin.profile.as_deref());
                let server = server(holders.first().ok_or_else(missing)?)?;
                Ok(CatalogTool::for_subscription(server.spec(), uri))
            }
            OperationTarget::Prompt { server: name, name: prompt } => {
                let server = server(name)?;
                self.require_prompt(caller, operation, &server, prompt)?;
                let request = ServerRequest::GetPrompt { name: prompt.clone() };
                Ok(CatalogTool::for_request(server.spec(), TargetKind::Prompt, prompt, request))
            }
            OperationTarget::Completion(CompletionTarget::Prompt { server: name, name: prompt }) => {
                let server = server(name)?;
                self.require_prompt(caller, operation, &server, prompt)?;
                let reference = RawJson::from_value(&json!({ "type": "ref/prompt", "name": prompt }));
                let request = ServerRequest::Complete { reference };
                Ok(CatalogTool::for_request(server.spec(), TargetKind::Prompt, prompt, request))
            }
            OperationTarget::Completion(CompletionTarget::Resource { uri }) => {
                let listed = |offer: &ServerOffer| {
                    offer.templates.iter().chain(&*offer.resources).any(|item| item.id == *uri)
                };
                let profile = operation.origin.profile.as_deref();
                let offers = self.approved_offers();
                let includes = |profile: &Profile| profile.resources.contains(&[uri]);
                let mut holders = offers.iter().filter(|(server, offer)| {
                    listed(offer)
                        && profile.is_none_or(includes)
                        && self.access.is_in_some_profile(caller, includes)
                        && ItemVisibility::new(access, caller, server.spec(), TargetKind::Resource)
                            .includes(uri)
                });
                let spec = holders.next().ok_or_else(missing)?.0.spec();
                let reference = RawJson::from_value(&json!({ "type": "ref/resource", "uri": uri }));
                let request = ServerRequest::Complete { reference };
                Ok(CatalogTool::for_request(spec, TargetKind::Resource, uri, request))
            }
            // A resource that no server has, and targets that are resolved elsewhere.
            OperationTarget::Resource { server: None, .. }
            | OperationTarget::Tool(_)
            | OperationTarget::FrontEndTool(_)
            | OperationTarget::Task { .. } => Err(missing()),
        }
    }

    /// Fails unless the server offers the prompt and a profile of the caller includes it.
    fn require_prompt(
        &self,
        caller: &Caller,
        operation: &Operation,
        server: &Server,
        prompt: &str,
    ) -> Result<(), CallError> {
        let name = server.spec().name.as_str();
        // A server that has not answered yet may have the prompt; the request reports the reason.
        let is_offered = self
            .offer_of(server)
            .is_none_or(|offer| offer.prompts.iter().any(|item| item.id == prompt && item.fault.is_none()));
        let is_in_profiles =
            self.access.is_in_some_profile(caller, |profile| includes_prompt(profile, name, prompt));
        if operation.origin.hidden || !is_in_profiles || !is_offered {
            return Err(not_found(operation));
        }
        Ok(())
    }

    /// Returns true if the server may have the resource: it lists it, or has resources at all, and no profile excludes
    /// it. Servers can have resources that they do not list.
    fn offers_resource(&self, caller: &Caller, operation: &Operation, server: &Server, uri: &str) -> bool {
        // A server that has not answered yet may have the resource; the request reports the reason.
        let offer = self.offer_of(server).unwrap_or_default();
        let faulty = offer.resources.iter().any(|item| item.id == uri && item.fault.is_some());
        let is_part = |profile: &Profile| includes_resource(profile, &offer, uri);
        !faulty
            && !operation.origin.hidden
            && operation.origin.profile.as_deref().is_none_or(is_part)
            && self.access.is_in_some_profile(caller, is_part)
    }

    /// Servers that may have a resource, most likely first: those that list it, then those with a matching template,
    /// then the one server with resources of the same scheme.
    pub(super) fn resource_holders(
        &self,
        access: &Arc<AccessRules>,
        caller: &Caller,
        uri: &str,
        profile: Option<&Profile>,
    ) -> Vec<String> {
        let scheme = |uri: &str| uri.split(':').next().unwrap_or_default().to_owned();
        let mut found = Vec::new();
        for (server, offer) in self.approved_offers() {
            let is_part = |profile: &Profile| includes_resource(profile, &offer, uri);
            if !profile.is_none_or(is_part) || !self.access.is_in_some_profile(caller, is_part) {
                continue;
            }
            let all = || offer.resources.iter().chain(&*offer.templates);
            let rank = if offer.resources.iter().any(|item| item.id == uri) {
                0
            } else if offer.templates.iter().any(|item| matches_template(&item.id, uri)) {
                1
            } else if all().any(|item| scheme(&item.id) == scheme(uri)) {
                2
            } else {
                continue;
            };
            if ItemVisibility::new(access, caller, server.spec(), TargetKind::Resource).includes(uri) {
                found.push((rank, server.spec().name.to_string()));
            }
        }
        // Stable sort: equal ranks keep the order of the configuration. The scheme counts only if a single server uses
        // it.
        found.sort_by_key(|(rank, _)| *rank);
        let best = found.first().map_or(0, |(rank, _)| *rank);
        if best < 2 || found.len() > 1 {
            found.retain(|(rank, _)| *rank < 2);
        }
        found.into_iter().map(|(_, name)| name).collect()
    }

    fn approved_server(
        &self,
        access: &Arc<AccessRules>,
        caller: &Caller,
        operation: &Operation,
        name: &str,
    ) -> Result<Arc<Server>, CallError> {
        let server = self.sources.server(name).ok_or_else(|| not_found(operation))?;
        if self.pins.is_approved(server.spec()) {
            return Ok(server);
        }
        let kind = match operation.kind() {
            OperationKind::Prompt => TargetKind::Prompt,
            _ => TargetKind::Resource,
        };
        if !ItemVisibility::new(access, caller, server.spec(), kind).includes(operation.name()) {
            return Err(not_found(operation));
        }
        let message = format!("MCP server `{name}` is not approved");
        Err(CallError::new(ErrorCode::Unauthorized, Stage::Resolve, message)
            .with_hint(format!("review it with `toolgate servers approve {name}`")))
    }

    /// The offer of a server; `None` if the server has not answered yet.
    fn offer_of(&self, server: &Server) -> Option<ServerOffer> {
        let offers = self.approved_offers();
        offers.into_iter().find(|(known, _)| known.spec().name == server.spec().name).map(|(_, offer)| offer)
    }
}

/// Returns true if a profile includes a resource, by its URI or by a template that it matches.
fn includes_resource(profile: &Profile, offer: &ServerOffer, uri: &str) -> bool {
    let by_template = |item: &OfferedItem| {
        matches_template(&item.id, uri) && profile.resources.contains(&[item.id.as_str(), uri])
    };
    profile.resources.contains(&[uri]) || offer.templates.iter().any(by_template)
}

/// Returns true if a profile includes a prompt, by its name or by its qualified name.
fn includes_prompt(profile: &Profile, server: &str, prompt: &str) -> bool {
    profile.prompts.contains(&[prompt, &format!("{server}{SEPARATOR}{prompt}")])
}

/// Decides about the prompts or resources of one server for one caller.
struct ItemVisibility<'a> {
    access: Arc<AccessRules>,
    caller: &'a Caller,
    /// Attributes of the last item; only the name differs from item to item.
    item: ToolAttributes,
}

impl<'a> ItemVisibility<'a> {
    fn new(access: &Arc<AccessRules>, caller: &'a Caller, spec: &ServerSpec, kind: TargetKind) -> Self {
        Self { access: Arc::clone(access), caller, item: server_item(spec, kind, "") }
    }

    fn includes(&mut self, id: &str) -> bool {
        id.clone_into(&mut self.item.name);
        id.clone_into(&mut self.item.original);
        self.access.policy.may_see(&PolicyRequest {
            caller: self.caller,
            tool: &self.item,
            arguments: &CallArguments::empty(),
            tainted: false,
            now: SystemTime::now(),
        })
    }
}

/// The error for a resource, prompt or task that does not exist, as far as the caller may know.
pub(super) fn not_found(operation: &Operation) -> CallError {
    let (thing, hint) = match &operation.target {
        OperationTarget::Resource { .. }
        | OperationTarget::Subscription { .. }
        | OperationTarget::Completion(CompletionTarget::Resource { .. }) => {
            ("resource", "`toolgate resources list` shows them all")
        }
        OperationTarget::Prompt { .. } | OperationTarget::Completion(CompletionTarget::Prompt { .. }) => {
            ("prompt", "`toolgate prompts list` shows them all")
        }
        OperationTarget::Task { .. } => ("task", "a task belongs to the caller that started it"),
        OperationTarget::Tool(_) | OperationTarget::FrontEndTool(_) => {
            return super::tool_not_found(operation.name());
        }
    };
    let name: String = operation.name().chars().take(MAX_QUOTED_CHARS).collect();
    CallError::new(ErrorCode::NotFound, Stage::Resolve, format!("there is no {thing} `{name}`"))
        .with_hint(hint)
}

/// Characters of a name from outside that an error message quotes.
const MAX_QUOTED_CHARS: usize = 512;

/// Memory limit of a compiled template.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Returns true if a URI matches a template. An expression matches any string without a slash, or with slashes if its
/// operator allows them. Templates come from servers, so the match takes linear time.
fn matches_template(template: &str, uri: &str) -> bool {
    let Some((before, _)) = template.split_once('{') else { return template == uri };
    if !uri.starts_with(before) {
        return false;
    }
    let (mut pattern, mut rest) = (String::from("(?s)^"), template);
    while let Some((literal, expression)) = rest.split_once('{') {
        let Some((name, after)) = expression.split_once('}') else { return false };
        let slashes = name.starts_with(['+', '#', '/', '?', '&', ';', '.']) || name.ends_with('*');
        let optional = name.starts_with(['?', '&', '/', ';', '#', '.']);
        pattern.push_str(&regex::escape(literal));
        pattern.push_str(if slashes { "." } else { "[^/]" });
        pattern.push(if optional { '*' } else { '+' });
        rest = after;
    }
    pattern.push_str(&regex::escape(rest));
    pattern.push('$');
    let pattern = RegexBuilder::new(&pattern).size_limit(MAX_PATTERN_BYTES).build();
    pattern.is_ok_and(|pattern| pattern.is_match(uri))
}

#[test]
fn uri_templates_match_uris() {
    for (template, uri, due) in [
        ("test://template/{id}/data", "test://template/1/data", true),
        ("test://template/{id}/data", "test://template/1/2/data", false),
        ("test://template/{id}/data", "test://template//data", false),
        ("file:///{+path}", "file:///a/b", true),
        ("a://b", "a://b", true),
        ("a://b", "a://bc", false),
        ("s://{a}/{b}", "s://x/y", true),
        ("s://x{?q}", "s://x", true),
        ("s://{", "s://{", false),
    ] {
        assert_eq!(matches_template(template, uri), due, "{template} {uri}");
    }
}

#[test]
fn hostile_templates_match_in_linear_time() {
    // With backtracking this would not end.
    let template = format!("s://{}!", "{+a}".repeat(200));
    assert!(!matches_template(&template, &format!("s://{}", "x".repeat(5_000))));
}
