//! `toolgate.yaml`, the project file, and the registries it names.

use crate::context::{Context, FileOwner};
use crate::dialect::Dialect;
use crate::file::ProjectFile;
use crate::file::agent::AgentSection;
use crate::keys::{ConfigValue, Spanned};
use crate::node::{MapEntry, Node, Value};
use crate::resolve::ConfigBuilder;
use crate::resolve::agent::add_model_secrets;

pub(crate) fn read(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    cx.file_owner = FileOwner::Toolgate;
    // Must come first: a problem shows the line it is in, and that line may hold a secret.
    if let Some(canaries) = node.get("egress").and_then(|egress| egress.get("canaries")) {
        cx.add_secret_values("secret", canaries);
    }
    if let Some(Value::List(callers)) = node.get("callers").map(|callers| &callers.value) {
        let keys = |caller| ["api_key", "key_sha256"].map(|key| Node::get(caller, key));
        callers.iter().flat_map(keys).flatten().for_each(|key| cx.add_secret_values("secret", key));
    }
    if let Some(Value::Map(apis)) = node.get("openapi").map(|apis| &apis.value) {
        let keys = |api: &'_ MapEntry| ["auth", "headers"].map(|key| api.node.get(key).cloned());
        for secrets in apis.iter().flat_map(keys).flatten() {
            let Value::Map(values) = &secrets.value else { continue };
            values.iter().for_each(|entry| cx.add_secret_values("secret", &entry.node));
        }
    }
    if let Some(key) = node.get("web_search").and_then(|search| search.get("key")) {
        cx.add_secret_values("secret", key);
    }
    if let Some(agent) = node.get("agent") {
        add_model_secrets(agent, cx);
    }
    let Some(file) = ProjectFile::read(node, cx) else { return };
    builder.set_title(file.name, file.description);
    for caller in file.callers.into_iter().flat_map(|at| at.value) {
        builder.add_caller(caller.value, cx);
    }
    if let Some(policy) = file.policy {
        builder.load_named_policy(&policy, cx);
    }
    if let Some(egress) = file.egress {
        builder.set_egress(egress.value, cx);
    }
    let agent = file.agent.map_or_else(|| AgentSection::empty(node.span), |at| at.value);
    builder.set_agent(agent, cx);
    if let Some(telemetry) = file.telemetry {
        builder.set_telemetry(telemetry.value, cx);
    }
    if let Some(results) = file.results {
        builder.set_results(results.value);
    }
    for (name, api) in file.openapi.into_iter().flat_map(|at| at.value.0) {
        builder.add_api(&name, api, cx);
    }
    for (name, profile) in file.profiles.into_iter().flat_map(|at| at.value.0) {
        builder.add_profile(&name, profile, cx);
    }
    if let Some(human_input) = file.human_input {
        builder.set_human_input(human_input.value);
    }
    if let Some(web_search) = file.web_search {
        builder.set_web_search(web_search.value, cx);
    }
    if let Some(code_execution) = file.code_execution {
        builder.set_code_execution(code_execution.value, cx);
    }
    if let Some(serve) = file.serve {
        builder.set_serve(serve.value, cx);
    }
    if let Some(audit) = file.audit {
        builder.set_audit(audit.value);
    }
    if let Some(toolbox) = file.toolbox {
        builder.add_toolbox(toolbox.value, cx);
    }
    if let Some(registries) = file.registries {
        if let Some(tools) = registries.value.tools {
            registry(&tools, Dialect::Tools, builder, cx);
        }
        if let Some(mcp) = registries.value.mcp {
            registry(&mcp, Dialect::Mcp, builder, cx);
        }
    }
}

/// Reads a registry named in the project file. It must exist and have the expected content.
fn registry(named: &Spanned<String>, dialect: Dialect, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
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
    // Servers may be in the configuration file of another program.
    let dialect = match Dialect::detect(&node, &path) {
        Some(other @ (Dialect::Codex | Dialect::Goose)) if dialect == Dialect::Mcp => other,
        _ => dialect,
    };
    dialect.record_registry(&path, builder);
    dialect.read(&node, builder, cx);
}
