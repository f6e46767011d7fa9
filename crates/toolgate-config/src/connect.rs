//! Puts Toolgate among the MCP servers of another program, and takes it out again.
//!
//! The counterpart of `import`: it knows where each program keeps its servers and how an entry is written there.
//! Invariant: texts in, texts out; what is not our entry stays byte by byte, and an entry that is not ours is not
//! touched unless that is asked for.

mod toml;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};
use toolgate_store::text::{List, TextError};

use crate::context::Environment;
use crate::import::Client;

/// The variable that holds the key, wherever a client can read one.
pub const KEY_VARIABLE: &str = "TOOLGATE_API_KEY";

/// For whom an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// For all who work in a folder.
    Project,
    /// For this person, everywhere.
    User,
}

/// How a client reaches Toolgate.
#[derive(Debug, Clone)]
pub enum Way {
    /// It starts a process, and speaks with it.
    Stdio {
        /// The executable.
        command: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// It sends requests to an address, with the key from its environment.
    Http {
        /// Where the endpoint is.
        url: String,
    },
}

/// Why an entry cannot be written or taken out.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The program has no such place.
    #[error("{0} has no configuration of its own for a folder")]
    NoProject(&'static str),
    /// The program knows no addresses.
    #[error("{0} cannot be given an address in its configuration")]
    NoHttp(&'static str),
    /// Others are configured by hand.
    #[error("`{0}` is not a client that can be connected")]
    Unknown(&'static str),
    /// There is something else by that name.
    #[error("there is an entry `{0}` already, which is not Toolgate's")]
    Foreign(String),
    /// The file is not JSON, or not an object.
    #[error("it cannot be changed")]
    Text(#[from] TextError),
    /// The file is not TOML.
    #[error("it is not TOML: {0}")]
    Toml(String),
    /// What should hold the servers is something else.
    #[error("`{0}` is not what holds servers there")]
    Shape(String),
    /// It is written in a way that cannot be cut out.
    #[error("the entry `{0}` is not a table of its own")]
    NoTable(String),
}

/// How a client's file is written.
#[derive(Clone, Copy)]
struct Format {
    /// The key that holds the servers.
    root: &'static str,
    toml: bool,
    /// Whether an entry says its type.
    typed: bool,
    /// How a variable is referred to; `None` where addresses cannot be given.
    reference: Option<&'static str>,
}

fn format(client: Client) -> Result<Format, ConnectError> {
    let json = |root, typed, reference| Ok(Format { root, toml: false, typed, reference });
    match client {
        Client::VsCode => json("servers", true, Some("${env:TOOLGATE_API_KEY}")),
        Client::ClaudeCode => json("mcpServers", true, Some("${TOOLGATE_API_KEY}")),
        Client::ClaudeDesktop => json("mcpServers", false, None),
        Client::Cursor => json("mcpServers", false, Some("${env:TOOLGATE_API_KEY}")),
        Client::Codex => {
            Ok(Format { root: "mcp_servers", toml: true, typed: false, reference: Some(KEY_VARIABLE) })
        }
        Client::Goose | Client::HoloDeck => Err(ConnectError::Unknown(client.label())),
    }
}

/// The file that an entry goes to. `folder` is where the client works.
pub fn place(
    client: Client,
    scope: Scope,
    folder: &Path,
    environment: &Environment,
) -> Result<PathBuf, ConnectError> {
    format(client)?;
    let mut files = client.files(folder, environment);
    let has_project = client != Client::ClaudeDesktop;
    match scope {
        Scope::Project if !has_project => Err(ConnectError::NoProject(client.label())),
        Scope::Project => Ok(files.swap_remove(0)),
        Scope::User => {
            // Behind the one of the project, one for each system, or one for all.
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

/// The text with our entry in it, which is the same where it is there already.
pub fn connect(
    client: Client,
    text: &str,
    name: &str,
    way: &Way,
    force: bool,
) -> Result<String, ConnectError> {
    let format = format(client)?;
    let entry = entry(client, format, way)?;
    if format.toml {
        return toml::connect(text, format.root, name, &entry, force);
    }
    let mut top = top(text)?;
    if top.at(format.root).is_none() {
        top.push(Some(format.root), &json!({}));
    }
    let mut servers = servers(&top, format.root)?;
    match servers.get(name).map(parsed) {
        Some(Some(known)) if known == Json::Object(entry.clone()) => return Ok(text.to_owned()),
        Some(known) if !force && !known.as_ref().is_some_and(is_ours) => {
            return Err(ConnectError::Foreign(name.to_owned()));
        }
        _ => servers.set(name, &Json::Object(entry)),
    }
    top.put_inner(format.root, &servers);
    Ok(top.text())
}

/// The text without our entry; `None` where there is none.
pub fn disconnect(
    client: Client,
    text: &str,
    name: &str,
    force: bool,
) -> Result<Option<String>, ConnectError> {
    let format = format(client)?;
    if format.toml {
        return toml::disconnect(text, format.root, name, force);
    }
    let mut top = top(text)?;
    if top.at(format.root).is_none() {
        return Ok(None);
    }
    let mut servers = servers(&top, format.root)?;
    let Some(at) = servers.at(name) else { return Ok(None) };
    let known = servers.get(name).and_then(parsed);
    if !force && !known.is_some_and(|known| is_ours(&known)) {
        return Err(ConnectError::Foreign(name.to_owned()));
    }
    servers.remove(at);
    top.put_inner(format.root, &servers);
    Ok(Some(top.text()))
}

/// A file that is empty is an object that is empty.
fn top(text: &str) -> Result<List, ConnectError> {
    let top = List::parse(if text.trim().is_empty() { "{\n}\n" } else { text })?;
    if top.is_object() { Ok(top) } else { Err(TextError::Shape.into()) }
}

fn servers(top: &List, root: &str) -> Result<List, ConnectError> {
    let shape = || ConnectError::Shape(root.to_owned());
    let list = top.inner(root).ok_or_else(shape)?.map_err(|_| shape())?;
    if list.is_object() { Ok(list) } else { Err(shape()) }
}

/// A value with its comments, as a value.
fn parsed(text: &str) -> Option<Json> {
    let list = List::parse(text).ok()?;
    if !list.is_object() {
        return serde_json::from_str(text).ok();
    }
    let keys: Vec<String> = list.keys().map(str::to_owned).collect();
    let field = |key: String| {
        let value = list.get(&key)?;
        Some((key.clone(), serde_json::from_str(value).ok().or_else(|| parsed(value))?))
    };
    keys.into_iter().map(field).collect::<Option<Map<_, _>>>().map(Json::Object)
}

fn entry(client: Client, format: Format, way: &Way) -> Result<Map<String, Json>, ConnectError> {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Json| entry.insert(key.to_owned(), value);
    match way {
        Way::Stdio { command, arguments } => {
            if format.typed {
                put("type", "stdio".into());
            }
            put("command", command.as_str().into());
            put("args", json!(arguments));
        }
        Way::Http { url } => {
            let Some(reference) = format.reference else {
                return Err(ConnectError::NoHttp(client.label()));
            };
            if format.typed {
                put("type", "http".into());
            }
            put("url", url.as_str().into());
            if format.toml {
                put("bearer_token_env_var", reference.into());
            } else {
                put("headers", json!({ "X-API-Key": reference }));
            }
        }
    }
    Ok(entry)
}

/// Whether an entry leads to Toolgate: its command with `stdio`, or its key.
fn is_ours(entry: &Json) -> bool {
    let command = entry["command"].as_str().and_then(|command| command.rsplit(['/', '\\']).next());
    let ours = command.is_some_and(|command| command == "toolgate" || command == "toolgate.exe");
    let args = entry["args"].as_array().map_or(&[][..], Vec::as_slice);
    let stdio = args.iter().any(|word| word == "stdio");
    // Whatever the program is called: nobody else is started like this.
    let written = matches!(args, [folder, _, door, ..] if folder == "-C" && door == "stdio");
    let key = [&entry["headers"]["X-API-Key"], &entry["bearer_token_env_var"]];
    let keyed = key.iter().any(|key| key.as_str().is_some_and(|key| key.contains(KEY_VARIABLE)));
    (ours && stdio) || written || (entry["url"].is_string() && keyed)
}

#[cfg(test)]
mod tests;
