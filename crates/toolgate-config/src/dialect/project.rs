//! `toolgate.yaml`, our own project file, and the registries it names.

use crate::context::{Context, Whose};
use crate::dialect::Dialect;
use crate::file::ProjectFile;
use crate::file::agent::AgentSection;
use crate::keys::{At, Read};
use crate::node::{Entry, Node, Value};
use crate::settle::Draft;
use crate::settle::agent::keep_secrets;

pub(crate) fn read(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.whose = Whose::Ours;
    // Before anything is told about the lines they stand in, whatever shape they have.
    if let Some(canaries) = node.get("egress").and_then(|egress| egress.get("canaries")) {
        cx.keep_values_secret("secret", canaries);
    }
    if let Some(Value::List(callers)) = node.get("callers").map(|callers| &callers.value) {
        let keys = |caller| ["api_key", "key_sha256"].map(|key| Node::get(caller, key));
        callers.iter().flat_map(keys).flatten().for_each(|key| cx.keep_values_secret("secret", key));
    }
    if let Some(Value::Map(apis)) = node.get("openapi").map(|apis| &apis.value) {
        let keys = |api: &'_ Entry| ["auth", "headers"].map(|key| api.node.get(key).cloned());
        for kept in apis.iter().flat_map(keys).flatten() {
            let Value::Map(values) = &kept.value else { continue };
            values.iter().for_each(|entry| cx.keep_values_secret("secret", &entry.node));
        }
    }
    if let Some(key) = node.get("web_search").and_then(|search| search.get("key")) {
        cx.keep_values_secret("secret", key);
    }
    if let Some(agent) = node.get("agent") {
        keep_secrets(agent, cx);
    }
    let Some(file) = ProjectFile::read(node, cx) else { return };
    draft.title(file.name, file.description);
    for caller in file.callers.into_iter().flat_map(|at| at.value) {
        draft.caller(caller.value, cx);
    }
    if let Some(policy) = file.policy {
        draft.named_policy(&policy, cx);
    }
    if let Some(egress) = file.egress {
        draft.egress(egress.value, cx);
    }
    let agent = file.agent.map_or_else(|| AgentSection::empty(node.span), |at| at.value);
    draft.agent(agent, cx);
    if let Some(telemetry) = file.telemetry {
        draft.telemetry(telemetry.value, cx);
    }
    if let Some(results) = file.results {
        draft.results(results.value);
    }
    for (name, api) in file.openapi.into_iter().flat_map(|at| at.value.0) {
        draft.api(&name, api, cx);
    }
    for (name, profile) in file.profiles.into_iter().flat_map(|at| at.value.0) {
        draft.profile(&name, profile, cx);
    }
    if let Some(human_input) = file.human_input {
        draft.human_input(human_input.value);
    }
    if let Some(web_search) = file.web_search {
        draft.web_search(web_search.value, cx);
    }
    if let Some(code_execution) = file.code_execution {
        draft.code_execution(code_execution.value, cx);
    }
    if let Some(serve) = file.serve {
        draft.serve(serve.value, cx);
    }
    if let Some(audit) = file.audit {
        draft.audit(audit.value);
    }
    if let Some(toolbox) = file.toolbox {
        draft.toolbox(toolbox.value, cx);
    }
    if let Some(registries) = file.registries {
        if let Some(tools) = registries.value.tools {
            registry(&tools, Dialect::Tools, draft, cx);
        }
        if let Some(mcp) = registries.value.mcp {
            registry(&mcp, Dialect::Mcp, draft, cx);
        }
    }
}

/// A registry that the project names must be there and be what it is said to be.
fn registry(named: &At<String>, dialect: Dialect, draft: &mut Draft, cx: &mut Context<'_>) {
    let path = cx.project.join(&named.value);
    if !cx.has_file(&path) {
        let what = if path.is_dir() { "is a folder" } else { "does not exist" };
        let message = format!("the registry `{}` {what}", named.value);
        return cx.error(
            named.span,
            message,
            "create it, or let `toolgate init` write a project to start from",
        );
    }
    let Some(node) = crate::load::parse(&path, cx) else { return };
    // Servers may be kept in the file of another program.
    let dialect = match Dialect::of(&node, &path) {
        Some(other @ (Dialect::Codex | Dialect::Goose)) if dialect == Dialect::Mcp => other,
        _ => dialect,
    };
    dialect.register(&path, draft);
    dialect.read(&node, draft, cx);
}
