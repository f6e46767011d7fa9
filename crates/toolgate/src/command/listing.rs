//! What servers offer beside tools, as prompts and resources list it.

use serde_json::{Value as Json, json};
use toolgate_upstream::offer::{Offer, Offered};

use crate::cli::{Answers, Project};
use crate::command::live;
use crate::command::servers::first_line;
use crate::output::{BOLD, DIM, Output};

/// Lists what `of` takes from each server; `key` is what one of them is asked for by.
pub(crate) fn list(
    key: &str,
    of: impl Fn(&Offer) -> Vec<(&'static str, &Offered)>,
    project: &Project,
    output: &Output,
) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        Answers::Ask,
        |_| true,
        async |runtime, errors| {
            let mut all: Vec<Json> = Vec::new();
            for (server, offer) in runtime.offers() {
                for (kind, Offered { id, title, description, definition, fault }) in of(&offer) {
                    if let Some(fault) = fault {
                        output.message(&format!("{kind} `{id}` of {server} is held back: {fault}\n"));
                        continue;
                    }
                    let mut one = json!({ "kind": kind, "server": server, "title": title, "description": description, "definition": definition });
                    one[key] = json!(id);
                    all.push(one);
                }
            }
            if output.json {
                output.document(&all)?;
            } else {
                for one in &all {
                    let text = |name: &str| one[name].as_str().unwrap_or_default();
                    let (id, server) = (text(key), text("server"));
                    // Without a description the title says more, unless it is but the name again.
                    let about =
                        [text("description"), text("title")].into_iter().find(|text| !text.is_empty());
                    let about = about.filter(|about| *about != id).map(first_line).unwrap_or_default();
                    output.result(&format!("{BOLD}{id}{BOLD:#} {DIM}of {server}{DIM:#}  {about}\n"));
                }
            }
            Ok(live::tell(&errors, output))
        },
    )
}
