//! Configurations to paste into each client, per profile.

use serde_json::json;
use toolgate_console::frame::Section;
use toolgate_console::pages::{Client, ConnectPage};
use toolgate_console::rest::Profiles;
use toolgate_console::text::url;

use super::super::visit::Visit;
use crate::auth::HttpError;
use crate::response::Response;

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let chosen = visit.query_value("profile").unwrap_or_default();
    let listed: Profiles = visit.get_if("listProfiles", "/v1/profiles").await.unwrap_or_default();
    let known = listed.profiles.iter().any(|profile| profile.name == chosen);
    let profile = if known { chosen.as_str() } else { "" };
    let mut profiles = vec![("All tools".to_owned(), "/connect".to_owned(), profile.is_empty())];
    profiles.extend(
        listed.profiles.iter().map(|one| {
            (one.name.clone(), format!("/connect?profile={}", url(&one.name)), one.name == profile)
        }),
    );
    let origin = visit.origin();
    let path = if profile.is_empty() { "/mcp".to_owned() } else { format!("/mcp/{}", url(profile)) };
    let endpoint = format!("{origin}{path}");
    let frame = visit.frame(Section::Connect, "Connect", &["toolgate connect CLIENT".to_owned()], "").await;
    Ok(visit.render(&ConnectPage { frame, clients: clients(&endpoint, profile), origin, endpoint, profiles }))
}

/// The clients, each in its own format.
fn clients(endpoint: &str, profile: &str) -> Vec<Client> {
    let flag = if profile.is_empty() { String::new() } else { format!(" --profile {profile}") };
    let command = |client: &str| format!("toolgate connect {client}{flag}");
    let pretty = |value: serde_json::Value| serde_json::to_string_pretty(&value).unwrap_or_default();
    let headers = json!({ "Authorization": "Bearer KEY" });
    let server = |kind: &str| json!({ "toolgate": { "type": kind, "url": endpoint, "headers": headers } });
    vec![
        Client {
            id: "claude-code",
            name: "Claude Code",
            command: command("claude-code"),
            place: "Or in .mcp.json of a project:",
            paste: pretty(json!({ "mcpServers": server("http") })),
        },
        Client {
            id: "vscode",
            name: "VS Code",
            command: command("vscode"),
            place: "Or in .vscode/mcp.json:",
            paste: pretty(json!({ "servers": server("http") })),
        },
        Client {
            id: "cursor",
            name: "Cursor",
            command: command("cursor"),
            place: "Or in .cursor/mcp.json:",
            paste: pretty(json!({ "mcpServers": { "toolgate": { "url": endpoint, "headers": headers } } })),
        },
        Client {
            id: "claude-desktop",
            name: "Claude Desktop",
            command: command("claude-desktop"),
            place: "Or in claude_desktop_config.json; it starts a program that forwards to the gateway:",
            paste: pretty(
                json!({ "mcpServers": { "toolgate": { "command": "toolgate", "args": ["stdio"] } } }),
            ),
        },
        Client {
            id: "codex",
            name: "Codex",
            command: command("codex"),
            place: "Or in ~/.codex/config.toml, with the key in the variable TOOLGATE_KEY:",
            paste: format!(
                "[mcp_servers.toolgate]\nurl = \"{endpoint}\"\nbearer_token_env_var = \"TOOLGATE_KEY\"\n"
            ),
        },
        Client {
            id: "curl",
            name: "A program",
            command: String::new(),
            place: "Over REST, with any HTTP client:",
            paste: format!(
                "curl -H 'Authorization: Bearer KEY' {}/v1/tools",
                endpoint.split("/mcp").next().unwrap_or_default()
            ),
        },
    ]
}
