//! Links between the Markdown files of the tree: their files and headings exist.
//!
//! URLs of other hosts are not opened: a check must not depend on the network.

use std::collections::BTreeSet;

use super::{Problem, TextFile};

/// Checks every relative link.
pub(super) fn check(files: &[TextFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, target) in links(&file.text) {
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, id)| (path, Some(id)));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let found = files.iter().find(|other| other.path == path);
            let folder = format!("{path}/");
            // The root of the tree has no path.
            let exists = found.is_some()
                || path.is_empty()
                || files.iter().any(|other| other.path.starts_with(&folder));
            let has_heading = match (found, anchor) {
                (Some(found), Some(anchor)) => headings(&found.text).contains(anchor),
                _ => true,
            };
            if !exists || !has_heading {
                problems.push(Problem {
                    message: format!("the link `{target}` leads nowhere"),
                    place: format!("{}:{number}", file.path),
                    hint: if exists {
                        format!("{path} has no heading with this anchor")
                    } else {
                        "no file of the tree has this path".to_owned()
                    },
                });
            }
        }
    }
    problems
}

/// The relative targets of a page, with their lines. Code is skipped.
fn links(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut in_block) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        // Every second part is code.
        for part in line.split('`').step_by(2) {
            let targets = part.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            let relative = targets.map(|(target, _)| target).filter(|target| !target.contains(':'));
            found.extend(relative.map(|target| (index + 1, target)));
        }
    }
    found
}

/// The path of a link, relative to the root of the tree.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of the headings of a page, as GitHub and mdBook name them.
fn headings(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut in_block) = (BTreeSet::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_block) else { continue };
        let plain = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let base: String =
            plain.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect();
        let repeated = (1..).map(|number| format!("{base}-{number}"));
        let anchor = std::iter::once(base.clone()).chain(repeated).find(|anchor| !anchors.contains(anchor));
        anchors.extend(anchor);
    }
    anchors
}
