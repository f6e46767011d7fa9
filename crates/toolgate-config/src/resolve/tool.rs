//! Resolves entries of `tools.json`.

use std::path::{Component, Path, PathBuf};

use toolgate_types::hints::Severity;
use toolgate_types::tool::{
    Category, ContractLevel, Deprecation, FollowUp, RateLimit, ResponseTime, ScriptSpec, ToolExample,
};
use toolgate_types::{ByteSize, ToolDefinition, ToolLimits, ToolName};

use crate::context::Context;
use crate::file::{
    CategoryName, ContractName, DeprecationFile, ExampleFile, FollowUpFile, PriorityName, RateLimitFile,
    ResponseTimeName, ToolFile, ToolKindName,
};
use crate::keys::Spanned;
use crate::problem::Problem;
use crate::resolve::caching::CacheKeys;
use crate::resolve::server::resolve_env;
use crate::resolve::{ConfigBuilder, PendingEntry, into_value, into_values, json_schema};

/// Maximum length of a file name on common file systems.
const MAX_FILE_NAME_BYTES: usize = 255;
/// Minimum memory for an interpreter to start.
const MIN_MEMORY: ByteSize = ByteSize::from_mib(32);

impl ConfigBuilder {
    /// Adds a tool, or reports its problems. Its script is in `folder`.
    pub(crate) fn add_tool(&mut self, file: ToolFile, folder: &Path, cx: &mut Context<'_>) {
        let label =
            file.name.as_ref().map_or_else(|| "tool".to_owned(), |name| format!("tool `{}`", name.value));
        cx.labels.push(label);
        self.build_tool(file, folder, cx);
        cx.labels.pop();
    }

    fn build_tool(&mut self, mut file: ToolFile, folder: &Path, cx: &mut Context<'_>) {
        let written = file.value_spans();
        let (name, description) = (file.name.take(), file.description.take());
        let input = file.input_schema.take();
        let script = name.as_ref().and_then(|name| resolve_script(&mut file, name, folder, cx));
        if let Some(input) = &input {
            json_schema::check(&input.value.0, true, cx);
        }
        if let Some(output) = &file.output_schema {
            json_schema::check(&output.value.0, false, cx);
        }
        let caching = CacheKeys {
            ttl_is_invalid: file.cache_ttl.is_none() && file.present_keys.contains(&"cache_ttl"),
            cacheable: file.cacheable.take(),
            category: file.category.take(),
            ttl: file.cache_ttl.take(),
        };
        let cache_ttl = caching.resolve_ttl(cx);
        let deprecated =
            file.deprecated.take().and_then(|at| resolve_deprecation(at.value, name.as_ref(), cx));
        // These keys are required; missing or invalid ones are already reported.
        let (Some(name), Some(description), Some(input), Some(script)) = (name, description, input, script)
        else {
            return;
        };
        if let Some(first) = self.tool_at.insert(name.value.clone(), self.tools.len()) {
            let hint = format!(
                "the other is at {}; rename or remove one",
                cx.sources.location(self.tools[first].span)
            );
            cx.error(name.span, format!("tool `{}` is defined twice", name.value), hint);
        }
        self.record_origins(&format!("tools.{}", name.value), written);
        let full = matches!(&file.contract, Some(at) if matches!(at.value, ContractName::Full));
        if full {
            self.full_contract.push((name.value.clone(), name.span));
        }
        let limits = ToolLimits {
            max_instances: into_value(file.max_instances),
            timeout: into_value(file.timeout),
            parallel_capable: into_value(file.parallel_capable),
        };
        let tool = ToolDefinition {
            description: description.value,
            contract: if full { ContractLevel::Full } else { ContractLevel::Standard },
            version: into_value(file.version).unwrap_or_else(|| "1.0.0".to_owned()),
            input_schema: input.value.0.to_json(),
            output_schema: file.output_schema.map(|at| at.value.0.to_json()),
            script,
            limits,
            permissions: into_values(file.permissions).unwrap_or_default(),
            category: caching.category.as_ref().map(|at| at.value.into()),
            response_time: file.response_time.map(|at| match at.value {
                ResponseTimeName::Fast => ResponseTime::Fast,
                ResponseTimeName::Medium => ResponseTime::Medium,
                ResponseTimeName::Slow => ResponseTime::Slow,
            }),
            cache_ttl,
            idempotent: into_value(file.idempotent).unwrap_or(false),
            examples: into_values(file.examples).into_iter().flatten().filter_map(resolve_example).collect(),
            tags: into_values(file.tags).unwrap_or_default(),
            rate_limit: file.rate_limit.and_then(|at| resolve_rate_limit(at.value)),
            deprecated,
            follow_ups: resolve_follow_ups(file.follow_ups),
            name: name.value,
        };
        self.tools.push(PendingEntry { value: tool, caching, span: name.span });
    }
}

impl From<CategoryName> for Category {
    fn from(name: CategoryName) -> Self {
        match name {
            CategoryName::Query => Self::Query,
            CategoryName::Mutation => Self::Mutation,
            CategoryName::Analysis => Self::Analysis,
            CategoryName::Generation => Self::Generation,
        }
    }
}

fn resolve_script(
    file: &mut ToolFile,
    name: &Spanned<ToolName>,
    folder: &Path,
    cx: &mut Context<'_>,
) -> Option<ScriptSpec> {
    // `local` is the only kind of tool so far.
    match file.r#type.as_ref().map(|at| at.value) {
        Some(ToolKindName::Local) | None => {}
    }
    let (mut path, mut entrypoint) = (file.script_path.take(), file.entrypoint.take());
    if let Some(config) = file.config.take() {
        for (key, outer, inner) in [
            ("script_path", &mut path, config.value.script_path),
            ("entrypoint", &mut entrypoint, config.value.entrypoint),
        ] {
            match (&outer, inner) {
                (Some(_), Some(inner)) => {
                    let message =
                        format!("`{key}` is given inside and outside of `config`{}", cx.location_suffix());
                    cx.error(inner.key_span, message, "keep one of the two");
                }
                (None, inner) => *outer = inner,
                (Some(_), None) => {}
            }
        }
    }
    let entrypoint = entrypoint.map_or_else(|| "run".to_owned(), |at| at.value);
    let (written, span) = match path {
        Some(path) => (path.value, path.span),
        None => (format!("{}.py", name.value), name.span),
    };
    let script_path = match relative_path(&written)
        .map(|path| folder.join(path))
        .and_then(|path| check_symlinks(path, folder))
    {
        Ok(path) => path,
        Err(why) => {
            let message = format!("`{written}` cannot be the script{}: {why}", cx.location_suffix());
            cx.error(span, message, "scripts are files in the folder of the registry, or in a folder there");
            return None;
        }
    };
    let (env, max_memory) = (resolve_env(file.env.take(), cx), resolve_memory(file.max_memory.take(), cx));
    if !script_path.is_file() {
        // A warning only: the tool exists, and calls of it report the missing script.
        let message = format!("the script `{written}` of tool `{}` does not exist", name.value);
        let hint = "create it, or correct `script_path`; until then calls fail with `tool_execution_error`";
        cx.push(Problem::warning(span, message).hint(hint));
    }
    let (folder, project) = (folder.to_owned(), cx.project.to_owned());
    Some(ScriptSpec { script_path, entrypoint, env, max_memory, folder, project })
}

/// Resolves the memory limit of a script and reports values too low for an interpreter.
fn resolve_memory(file: Option<Spanned<ByteSize>>, cx: &mut Context<'_>) -> ByteSize {
    let Some(at) = file else { return ScriptSpec::DEFAULT_MEMORY };
    if at.value < MIN_MEMORY {
        let message = format!("`{}` is too little memory{}", at.value, cx.location_suffix());
        cx.error(at.span, message, format!("programs need `{MIN_MEMORY}` to start"));
    }
    at.value
}

/// Checks that a path cannot leave the folder it is joined to.
fn relative_path(written: &str) -> Result<PathBuf, &'static str> {
    let path = Path::new(written);
    if written.is_empty() || written.contains('\0') {
        return Err("it is not the name of a file");
    }
    if written.trim() != written || written.split('/').any(|part| part.trim() != part) {
        return Err("it has white space at an end");
    }
    if written.split('/').any(|part| part.len() > MAX_FILE_NAME_BYTES) {
        return Err("it is too long");
    }
    if path.components().all(|part| matches!(part, Component::Normal(_))) && !written.contains("/./") {
        Ok(path.to_owned())
    } else {
        Err("it points outside the folder")
    }
}

/// Rejects a path with a symbolic link out of the folder. A dangling link is treated as a missing file.
fn check_symlinks(path: PathBuf, folder: &Path) -> Result<PathBuf, &'static str> {
    let below = path.ancestors().take_while(|part| *part != folder);
    if !below.into_iter().any(Path::is_symlink) {
        return Ok(path);
    }
    match (fs_err::canonicalize(&path), fs_err::canonicalize(folder)) {
        (Ok(real), Ok(folder)) if !real.starts_with(&folder) => Err("a link in it points outside the folder"),
        _ => Ok(path),
    }
}

fn resolve_example(file: ExampleFile) -> Option<ToolExample> {
    Some(ToolExample {
        description: file.description?.value,
        params: file.params?.value.0.to_json(),
        expected_result: file.expected_result.map(|at| at.value.0.to_json()),
    })
}

pub(super) fn resolve_rate_limit(file: RateLimitFile) -> Option<RateLimit> {
    let milliseconds = file.window_ms?.value;
    let window =
        format!("{milliseconds}ms").parse().expect("a positive number of milliseconds is a duration");
    Some(RateLimit { max_calls: file.max_calls?.value, window })
}

pub(super) fn resolve_follow_ups(files: Option<Spanned<Vec<Spanned<FollowUpFile>>>>) -> Vec<FollowUp> {
    let follow_up = |file: FollowUpFile| {
        Some(FollowUp {
            action: file.action?.value,
            priority: file.priority.map_or(Severity::Medium, |at| match at.value {
                PriorityName::Critical => Severity::Critical,
                PriorityName::High => Severity::High,
                PriorityName::Medium => Severity::Medium,
                PriorityName::Low => Severity::Low,
            }),
            description: into_value(file.description),
            after: into_values(file.after).unwrap_or_default(),
        })
    };
    into_values(files).into_iter().flatten().filter_map(follow_up).collect()
}

fn resolve_deprecation(
    file: DeprecationFile,
    name: Option<&Spanned<ToolName>>,
    cx: &mut Context<'_>,
) -> Option<Deprecation> {
    let (since, replacement, date) = (file.since?, file.replacement?, file.removal_date?);
    if name.is_some_and(|name| name.value == replacement.value) {
        let message = format!("tool `{}` cannot replace itself", replacement.value);
        cx.error(replacement.span, message, "name another tool");
    }
    // A time of day may follow; only the date is used.
    let Some(day) = date.value.get(..10).filter(|day| is_date(day)) else {
        cx.error(
            date.span,
            format!("`{}` is not a date{}", date.value, cx.location_suffix()),
            "write it as `2027-03-31`",
        );
        return None;
    };
    Some(Deprecation { since: since.value, replacement: replacement.value, removal_date: day.to_owned() })
}

fn is_date(text: &str) -> bool {
    let number = |range: std::ops::Range<usize>| {
        text.get(range).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?.parse::<u32>().ok()
    };
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day) && &text[4..5] == "-" && &text[7..8] == "-"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_paths_stay_in_folder() {
        for good in ["a.py", "sub/a.py", "a.b.sh"] {
            assert!(relative_path(good).is_ok(), "{good}");
        }
        let long = format!("{}.py", "x".repeat(300));
        for bad in ["../../bin/sh", "a/../b", "/bin/sh", "x\0.py", "con.py ", "", ".", "./a.py", &long] {
            assert!(relative_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn dates() {
        for good in ["2027-03-31", "2028-02-29"] {
            assert!(is_date(good), "{good}");
        }
        for bad in ["2027-02-29", "2027-13-01", "2027-00-10", "2027/03/31", "soon-ish!!", "+027-01-01"] {
            assert!(!is_date(bad), "{bad}");
        }
    }
}
