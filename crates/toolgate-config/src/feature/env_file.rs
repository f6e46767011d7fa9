//! `env_file`: files with variables, of a project or of a server.

use std::collections::HashMap;

use crate::context::{Context, FileVariable};
use crate::keys::{ConfigValue, OneOrMany};
use crate::node::Node;

/// Reads the files of `env_file` before the rest of the map, since the rest may refer to their
/// variables. Returns `None` if the key is absent.
pub(crate) fn read_env_files(node: &Node, cx: &mut Context<'_>) -> Option<HashMap<String, FileVariable>> {
    let named = node.get("env_file").or_else(|| node.get("envFile"))?;
    // Problems with the value itself are reported when the key is read with the others.
    let problems_before = cx.problems.len();
    let paths = OneOrMany::<String>::read(named, cx);
    cx.problems.truncate(problems_before);
    let mut variables = HashMap::new();
    for path in paths.into_iter().flat_map(|paths| paths.0) {
        let file = cx.project.join(&path.value);
        if file.is_file() {
            variables.extend(cx.read_env_file(&file).unwrap_or_default());
        } else {
            let message = format!("the file `{}` does not exist", path.value);
            cx.error(path.span, message, "create it, or remove it here; paths start at the project folder");
        }
    }
    Some(variables)
}
