//! `policy.cedar`: rules become a checked policy.

use std::path::Path;

use toolgate_policy::{RuleError, Rules};

use crate::config::PolicyFile;
use crate::context::{Context, Environment};
use crate::keys::At;
use crate::problem::{Problem, Report};
use crate::settle::Draft;
use crate::source::{SourceId, Span};

/// The file that is read where none is named.
const USUAL_NAME: &str = "policy.cedar";

impl Draft {
    /// The rules in a file that the project names.
    pub(crate) fn named_policy(&mut self, named: &At<String>, cx: &mut Context<'_>) {
        self.origins.insert("policy".to_owned(), named.span);
        let path = cx.project.join(&named.value);
        self.policy = Some(None);
        if path.is_file() {
            self.policy = Some(read(&path, cx));
        } else {
            let what = if path.is_dir() { "is a folder" } else { "does not exist" };
            let message = format!("the policy `{}` {what}", named.value);
            cx.error(named.span, message, "create it, or remove it here; paths start at the project folder");
        }
    }

    /// The rules beside the project file, where it names none. Whatever shape the project has: rules that
    /// somebody wrote must not be passed over.
    pub(crate) fn usual_policy(&mut self, cx: &mut Context<'_>) {
        let path = cx.project.join(USUAL_NAME);
        // A link that leads nowhere is a policy that is gone, not one that was never there.
        if self.policy.is_none() && (path.exists() || path.is_symlink()) {
            self.policy = Some(read(&path, cx));
        }
    }
}

/// Rules that belong to no project yet, and what is to be said about them.
pub fn load_rules(path: &Path, environment: &Environment) -> (Option<Rules>, Report) {
    let path = crate::load::absolute(path, environment);
    let mut cx = Context::new(path.parent().map(Path::to_owned).unwrap_or_default(), environment);
    let rules = if path.is_file() {
        read(&path, &mut cx).map(|file| file.rules)
    } else {
        let message = format!("the policy `{}` does not exist", path.display());
        cx.push(Problem::nowhere(message).hint("name a file with rules in Cedar"));
        None
    };
    let report = Report::new(cx.sources, cx.problems, cx.secrets);
    (rules, report)
}

fn read(path: &Path, cx: &mut Context<'_>) -> Option<PolicyFile> {
    let id = cx.open(path).map_err(|problem| cx.push(problem)).ok()?;
    let source = cx.sources.get(id);
    let (path, rules) = (source.name().to_owned(), Rules::new(source.text()));
    let told = match &rules {
        Ok(rules) => rules.warnings(),
        Err(errors) => errors.as_slice(),
    };
    for RuleError { message, hint, at } in told {
        let place = place(at.clone(), id, cx);
        let hint = hint.as_deref().unwrap_or("docs/policy.md shows what rules can say");
        let problem = match &rules {
            Ok(_) => Problem::warning(place, message),
            Err(_) => Problem::error(place, message),
        };
        cx.push(problem.hint(hint));
    }
    let rules = rules.ok()?;
    Some(PolicyFile { path, version: rules.version().to_owned(), rules })
}

/// A place in the file; its start where there is none.
fn place(at: Option<std::ops::Range<usize>>, id: SourceId, cx: &Context<'_>) -> Span {
    let text = cx.sources.get(id).text();
    let range = at.filter(|range| text.get(range.clone()).is_some()).unwrap_or(0..0);
    Span::new(id, range.start, range.end)
}
