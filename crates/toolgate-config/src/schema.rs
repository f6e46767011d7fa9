//! The JSON Schemas and the reference page, both made from the keys in `file`.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use crate::dialect::agent::AgentFile;
use crate::file::{McpFile, ProjectFile, ToolsFile};
use crate::keys::{Key, Read, Table};

/// A file that has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaOf {
    /// `toolgate.yaml`.
    Project,
    /// `tools.json`.
    Tools,
    /// `mcp.json`.
    Mcp,
    /// `agent.yaml`.
    Agent,
}

/// The JSON Schema that editors use for a file.
pub fn schema(of: SchemaOf) -> Json {
    let mut parts = Map::new();
    let (title, root) = match of {
        SchemaOf::Project => ("toolgate.yaml", ProjectFile::schema(&mut parts)),
        SchemaOf::Tools => ("tools.json", ToolsFile::schema(&mut parts)),
        SchemaOf::Mcp => ("mcp.json", McpFile::schema(&mut parts)),
        SchemaOf::Agent => ("agent.yaml", AgentFile::schema(&mut parts)),
    };
    // The keys of the root stand at the top, so that `$schema` can be allowed beside them.
    let name =
        root["$ref"].as_str().and_then(|path| path.rsplit('/').next()).expect("a file is a map").to_owned();
    let mut root = parts.remove(&name).expect("the map was just added");
    root["properties"]["$schema"] =
        json!({ "type": "string", "description": "The schema of this file, for editors." });
    if of == SchemaOf::Mcp {
        // Another program's file: what we do not know in it is not wrong, and the servers have three names.
        root["additionalProperties"] = json!(true);
        if let Some(server) = parts.get_mut("ServerFile") {
            server["additionalProperties"] = json!(true);
            // The key of a server is its name.
            if let Some(keys) = server["properties"].as_object_mut() {
                keys.remove("name");
            }
        }
    }
    if of == SchemaOf::Agent {
        // Another program's file, too.
        root["additionalProperties"] = json!(true);
    }
    if of == SchemaOf::Project {
        root["patternProperties"] = json!({ "^x-": {} });
    }
    let mut schema = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "title": title });
    for (key, value) in root.as_object().into_iter().flatten() {
        schema[key] = value.clone();
    }
    schema["$defs"] = Json::Object(parts);
    schema
}

/// The reference page, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for table in TABLES.iter() {
        section(table, &mut page);
    }
    page
}

/// Every map of our files, in the order of the reference page.
static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let mut tables = Vec::new();
    ProjectFile::tables(&mut tables);
    ToolsFile::tables(&mut tables);
    McpFile::tables(&mut tables);
    tables
});

/// Where a key that is in the wrong place would be in the right one.
pub(crate) fn home_of(key: &str) -> Option<String> {
    let has =
        |table: &&Table| table.keys.iter().any(|known| known.name == key || known.aliases.contains(&key));
    let homes: Vec<_> = TABLES.iter().filter(has).map(|table| table.what).take(3).collect();
    (!homes.is_empty()).then(|| format!("it is a key of {}", homes.join(" and of ")))
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Made by `toolgate schema --reference`; change the doc comments in crates/toolgate-config/src/file.rs. -->

A project is a folder with a `toolgate.yaml`. `toolgate check` says whether it is good, what it
means and where each value came from; `toolgate schema` prints the JSON Schema for editors.

- **Variables.** `${NAME}` stands for an environment variable, or one of `.env`; `${NAME:-default}`
  gives a default for one that is unset or empty; `$$` is a `$`. A reference that cannot be resolved
  is an error. `${env:NAME}`, `${input:ID}`, `${workspaceFolder}` and `${userHome}` are understood
  too. Schemas and examples of tools are left alone.
- **Durations** are `30s`, `500ms`, `1m30s`, ISO 8601 (`PT30S`, `P0DT0H0M30S`) or a number of
  seconds; **sizes** are `4MiB`, `64KiB`, `10MB` or a number of bytes. Both are more than zero.
- **Unknown keys** are errors in `toolgate.yaml` and `tools.json`, and notes in files of other
  programs. Keys that start with `x-` at the top of `toolgate.yaml` are yours.
- **Other shapes.** Where there is no `toolgate.yaml`, these are read as they are: `agent.yaml` of
  HoloDeck, a `config.yaml` with a `myai.toolbox` tree, `tools/tools.json` and `mcp.json` on their
  own; `--file` names any other, Codex's `config.toml` and goose's `config.yaml` among them. Entries
  of `tools.json` may be those of a service manifest (`scopeRequirement`, `capabilities`) or of a tool
  contract (`risk`, `required_scopes`, `constraints`).
";

fn section(table: &Table, page: &mut String) {
    page.push_str(&format!("\n## {}\n\n{}\n\n", table.what, table.doc));
    page.push_str("| key | value | default | what it is |\n| --- | --- | --- | --- |\n");
    for Key { name, aliases, label, default, required, doc } in &table.keys {
        let default = match (required, default) {
            (true, _) => "**required**".to_owned(),
            (false, Some(default)) => format!("`{default}`"),
            (false, None) => String::new(),
        };
        let names = std::iter::once(name).chain(*aliases).map(|name| format!("`{name}`"));
        let names = names.collect::<Vec<_>>().join(", ");
        let doc = doc.replace('\n', " ").replace('|', "\\|");
        page.push_str(&format!("| {names} | {label} | {default} | {doc} |\n"));
    }
}
