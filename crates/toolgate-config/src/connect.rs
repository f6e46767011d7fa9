//! Adds Toolgate to the MCP servers of another program, and removes it again.
//!
//! The counterpart of `import`: it knows where each program keeps its servers and the format of an entry there.
//! Invariant: strings in, strings out. Everything except our entry is preserved byte for byte, and an entry of
//! another program is only replaced with `force`.

mod toml;
mod yaml;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};
use toolgate_store::text::{EntryList, TextError};

use crate::context::Environment;
use crate::import::{ClientProgram, server_places};

/// Environment variable with the API key, for clients that can read one.
pub const KEY_VARIABLE: &str = "TOOLGATE_API_KEY";

/// Scope of a client's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One project folder.
    Project,
    /// The current user, in every folder.
    User,
}

/// Transport between a client and Toolgate.
#[derive(Debug, Clone)]
pub enum ConnectMethod {
    /// The client starts Toolgate as a child process.
    Stdio { command: String, arguments: Vec<String> },
    /// The client sends HTTP requests, with the key from its environment.
    Http {
        /// URL of the MCP endpoint.
        url: String,
    },
}

/// Reason for not adding or removing an entry.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The program has no configuration per project.
    #[error("{0} has no configuration per project")]
    NoProject(&'static str),
    /// The program's configuration does not support URLs.
    #[error("{0} does not support URLs in its configuration")]
    NoHttp(&'static str),
    /// The program has to be configured by hand.
    #[error("`{0}` is not a supported client")]
    Unknown(&'static str),
    /// An entry of that name exists and is not Toolgate's.
    #[error("there is already an entry `{0}` that is not Toolgate's")]
    Foreign(String),
    /// The file is not a JSON object.
    #[error("the file cannot be edited")]
    Text(#[from] TextError),
    #[error("not valid TOML: {0}")]
    Toml(String),
    #[error("not valid YAML: {0}")]
    Yaml(String),
    /// The key that should hold the servers has another type.
    #[error("`{0}` does not hold a map of servers")]
    Shape(String),
    /// The entry cannot be cut out of the file, because it is not a separate table or block.
    #[error("the entry `{0}` is not a separate table")]
    NoTable(String),
}

/// Format of a client's configuration file.
#[derive(Clone, Copy)]
struct EntryFormat {
    /// Key of the servers.
    root: &'static str,
    syntax: FileSyntax,
    /// True if entries have a `type`.
    typed: bool,
    /// Key of the URL.
    url_key: &'static str,
    /// Reference to the API key's variable; `None` if URLs are not supported.
    reference: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileSyntax {
    Json,
    Toml,
    Yaml,
}

fn entry_format(client: ClientProgram) -> Result<EntryFormat, ConnectError> {
    let json = |root, typed, reference| {
        Ok(EntryFormat { root, syntax: FileSyntax::Json, typed, url_key: "url", reference })
    };
    let with_url_key =
        |url_key, reference| Ok(EntryFormat { url_key, ..json("mcpServers", false, Some(reference))? });
    match client {
        ClientProgram::VsCode => json("servers", true, Some("${env:TOOLGATE_API_KEY}")),
        ClientProgram::ClaudeCode => json("mcpServers", true, Some("${TOOLGATE_API_KEY}")),
        ClientProgram::ClaudeDesktop => json("mcpServers", false, None),
        ClientProgram::Cursor => json("mcpServers", false, Some("${env:TOOLGATE_API_KEY}")),
        ClientProgram::Gemini => with_url_key("httpUrl", "${TOOLGATE_API_KEY}"),
        ClientProgram::Windsurf => with_url_key("serverUrl", "${env:TOOLGATE_API_KEY}"),
        // No variables in headers: the key would be in the file.
        ClientProgram::Zed => json("context_servers", false, None),
        ClientProgram::Cline => json("mcpServers", false, None),
        ClientProgram::Codex => {
            let syntax = FileSyntax::Toml;
            Ok(EntryFormat { syntax, ..json("mcp_servers", false, Some(KEY_VARIABLE))? })
        }
        ClientProgram::Goose => {
            let (syntax, url_key) = (FileSyntax::Yaml, "uri");
            Ok(EntryFormat { syntax, url_key, ..json("extensions", true, Some("${TOOLGATE_API_KEY}"))? })
        }
        ClientProgram::HoloDeck => Err(ConnectError::Unknown(client.label())),
    }
}

/// Returns the file to put an entry in. `folder` is the client's working folder.
pub fn config_path(
    client: ClientProgram,
    scope: Scope,
    folder: &Path,
    environment: &Environment,
) -> Result<PathBuf, ConnectError> {
    entry_format(client)?;
    let mut files = client.files(folder, environment);
    let has_project = client.has_project_file();
    match scope {
        Scope::Project if !has_project => Err(ConnectError::NoProject(client.label())),
        Scope::Project => Ok(files.swap_remove(0)),
        Scope::User => {
            // After the project file come one file per system, or one for all systems.
            let mut own = files.split_off(usize::from(has_project));
            let system = if cfg!(target_os = "macos") {
                1
            } else if cfg!(windows) {
                2
            } else {
                0
            };
            let at = system.min(own.len() - 1);
            Ok(own.swap_remove(at))
        }
    }
}

/// Returns the file's text with our entry added; unchanged if it is already there.
pub fn connect(
    client: ClientProgram,
    text: &str,
    name: &str,
    method: &ConnectMethod,
    force: bool,
) -> Result<String, ConnectError> {
    let format = entry_format(client)?;
    let entry = build_entry(client, format, name, method)?;
    match format.syntax {
        FileSyntax::Json => {}
        FileSyntax::Toml => return toml::connect(text, format.root, name, &entry, force),
        FileSyntax::Yaml => return yaml::connect(text, format.root, name, &entry, force),
    }
    let mut top = parse_top(text)?;
    if top.position(format.root).is_none() {
        top.push(Some(format.root), &json!({}));
    }
    let mut servers = servers_object(&top, format.root)?;
    match servers.get(name).map(parse_with_comments) {
        Some(Some(known)) if known == Json::Object(entry.clone()) => return Ok(text.to_owned()),
        Some(known) if !force && !known.as_ref().is_some_and(is_toolgate_entry) => {
            return Err(ConnectError::Foreign(name.to_owned()));
        }
        _ => servers.set(name, &Json::Object(entry)),
    }
    top.put_inner(format.root, &servers);
    Ok(top.text())
}

/// Returns the file's text without our entry; `None` if there is no entry.
pub fn disconnect(
    client: ClientProgram,
    text: &str,
    name: &str,
    force: bool,
) -> Result<Option<String>, ConnectError> {
    let format = entry_format(client)?;
    match format.syntax {
        FileSyntax::Json => {}
        FileSyntax::Toml => return toml::disconnect(text, format.root, name, force),
        FileSyntax::Yaml => return yaml::disconnect(text, format.root, name, force),
    }
    let mut top = parse_top(text)?;
    if top.position(format.root).is_none() {
        return Ok(None);
    }
    let mut servers = servers_object(&top, format.root)?;
    let Some(at) = servers.position(name) else { return Ok(None) };
    let known = servers.get(name).and_then(parse_with_comments);
    if !force && !known.is_some_and(|known| is_toolgate_entry(&known)) {
        return Err(ConnectError::Foreign(name.to_owned()));
    }
    servers.remove(at);
    top.put_inner(format.root, &servers);
    Ok(Some(top.text()))
}

/// Returns the file's text without these servers, wherever the client has them. `folders` are the folders that servers
/// may be configured for.
pub fn remove_servers(
    client: ClientProgram,
    text: &str,
    names: &[String],
    folders: &[PathBuf],
) -> Result<String, ConnectError> {
    let format = entry_format(client)?;
    let mut text = text.to_owned();
    for name in names {
        match format.syntax {
            FileSyntax::Json => {}
            FileSyntax::Toml => text = toml::disconnect(&text, format.root, name, true)?.unwrap_or(text),
            FileSyntax::Yaml => text = yaml::disconnect(&text, format.root, name, true)?.unwrap_or(text),
        }
    }
    if format.syntax == FileSyntax::Json {
        for place in server_places(client, folders) {
            let mut top = parse_top(&text)?;
            if remove_below(&mut top, &place, names)? {
                text = top.text();
            }
        }
    }
    Ok(text)
}

/// Removes entries of the object that the keys lead to. Returns true if there were some.
fn remove_below(list: &mut EntryList, place: &[String], names: &[String]) -> Result<bool, ConnectError> {
    let Some((key, rest)) = place.split_first() else {
        let mut is_changed = false;
        for name in names {
            if let Some(at) = list.position(name) {
                list.remove(at);
                is_changed = true;
            }
        }
        return Ok(is_changed);
    };
    if list.position(key).is_none() {
        return Ok(false);
    }
    let mut inner = servers_object(list, key)?;
    let is_changed = remove_below(&mut inner, rest, names)?;
    if is_changed {
        list.put_inner(key, &inner);
    }
    Ok(is_changed)
}

/// Parses the top-level object. An empty file is treated as an empty object.
fn parse_top(text: &str) -> Result<EntryList, ConnectError> {
    let top = EntryList::parse(if text.trim().is_empty() { "{\n}\n" } else { text })?;
    if top.is_object() { Ok(top) } else { Err(TextError::Shape.into()) }
}

fn servers_object(top: &EntryList, root: &str) -> Result<EntryList, ConnectError> {
    let shape = || ConnectError::Shape(root.to_owned());
    let list = top.inner(root).ok_or_else(shape)?.map_err(|_| shape())?;
    if list.is_object() { Ok(list) } else { Err(shape()) }
}

/// Parses a JSON value that may contain comments.
fn parse_with_comments(text: &str) -> Option<Json> {
    let list = EntryList::parse(text).ok()?;
    if !list.is_object() {
        return serde_json::from_str(text).ok();
    }
    let keys: Vec<String> = list.keys().map(str::to_owned).collect();
    let field = |key: String| {
        let value = list.get(&key)?;
        Some((key.clone(), serde_json::from_str(value).ok().or_else(|| parse_with_comments(value))?))
    };
    keys.into_iter().map(field).collect::<Option<Map<_, _>>>().map(Json::Object)
}

fn build_entry(
    client: ClientProgram,
    format: EntryFormat,
    name: &str,
    method: &ConnectMethod,
) -> Result<Map<String, Json>, ConnectError> {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Json| entry.insert(key.to_owned(), value);
    let is_goose = client == ClientProgram::Goose;
    if is_goose {
        put("enabled", true.into());
        put("name", name.into());
    }
    match method {
        ConnectMethod::Stdio { command, arguments } => {
            if format.typed {
                put("type", "stdio".into());
            }
            put(if is_goose { "cmd" } else { "command" }, command.as_str().into());
            put("args", json!(arguments));
        }
        ConnectMethod::Http { url } => {
            let Some(reference) = format.reference else {
                return Err(ConnectError::NoHttp(client.label()));
            };
            if format.typed {
                put("type", if is_goose { "streamable_http" } else { "http" }.into());
            }
            put(format.url_key, url.as_str().into());
            if format.syntax == FileSyntax::Toml {
                put("bearer_token_env_var", reference.into());
            } else {
                put("headers", json!({ "X-API-Key": reference }));
            }
        }
    }
    Ok(entry)
}

/// Returns true if an entry starts Toolgate with `stdio` or refers to its API key.
pub fn is_toolgate_entry(entry: &Json) -> bool {
    let command = entry["command"].as_str().or(entry["cmd"].as_str());
    let command = command.and_then(|command| command.rsplit(['/', '\\']).next());
    let ours = command.is_some_and(|command| command == "toolgate" || command == "toolgate.exe");
    let args = entry["args"].as_array().map_or(&[][..], Vec::as_slice);
    let stdio = args.iter().any(|word| word == "stdio");
    // Matches under any program name: no other program is started with `-C FOLDER stdio`.
    let written = matches!(args, [folder, _, command, ..] if folder == "-C" && command == "stdio");
    let key = [&entry["headers"]["X-API-Key"], &entry["bearer_token_env_var"]];
    let keyed = key.iter().any(|key| key.as_str().is_some_and(|key| key.contains(KEY_VARIABLE)));
    let has_url = ["url", "httpUrl", "serverUrl", "uri"].iter().any(|key| entry[*key].is_string());
    (ours && stdio) || written || (has_url && keyed)
}

#[cfg(test)]
mod tests;
