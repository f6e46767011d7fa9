//! Entries of `tools.json` become tools.

use std::path::{Component, Path, PathBuf};

use toolgate_types::hints::Severity;
use toolgate_types::tool::{
    Category, Deprecation, Example, FollowUp, Level, RateLimit, ResponseTime, Script,
};
use toolgate_types::{ByteSize, ToolDefinition, ToolLimits, ToolName};

use crate::context::Context;
use crate::file::{
    CategoryName, ContractName, DeprecationFile, ExampleFile, FollowUpFile, PriorityName, RateLimitFile,
    ResponseTimeName, ToolFile, ToolKindName,
};
use crate::keys::At;
use crate::problem::Problem;
use crate::settle::caching::Caching;
use crate::settle::server::environment;
use crate::settle::{Draft, Drafted, json_schema, value, values};

/// The longest name of a file on the systems we know.
const LONGEST_FILE_NAME: usize = 255;
/// Below this no interpreter starts.
const LEAST_MEMORY: ByteSize = ByteSize::from_mib(32);

impl Draft {
    /// Takes one tool over, or tells what is wrong with it. `folder` is where its script is.
    pub(crate) fn tool(&mut self, file: ToolFile, folder: &Path, cx: &mut Context<'_>) {
        let label =
            file.name.as_ref().map_or_else(|| "tool".to_owned(), |name| format!("tool `{}`", name.value));
        cx.labels.push(label);
        self.tool_within(file, folder, cx);
        cx.labels.pop();
    }

    fn tool_within(&mut self, mut file: ToolFile, folder: &Path, cx: &mut Context<'_>) {
        let written = file.written();
        let (name, description) = (file.name.take(), file.description.take());
        let input = file.input_schema.take();
        let script = name.as_ref().and_then(|name| script(&mut file, name, folder, cx));
        if let Some(input) = &input {
            json_schema::check(&input.value.0, true, cx);
        }
        if let Some(output) = &file.output_schema {
            json_schema::check(&output.value.0, false, cx);
        }
        let caching = Caching {
            ttl_told: file.cache_ttl.is_none() && file.given.contains(&"cache_ttl"),
            cacheable: file.cacheable.take(),
            category: file.category.take(),
            ttl: file.cache_ttl.take(),
        };
        let cache_ttl = caching.ttl(cx);
        let deprecated = file.deprecated.take().and_then(|at| deprecation(at.value, name.as_ref(), cx));
        // Without these there is no tool to speak of; what is missing or wrong was told.
        let (Some(name), Some(description), Some(input), Some(script)) = (name, description, input, script)
        else {
            return;
        };
        if let Some(first) = self.tool_at.insert(name.value.clone(), self.tools.len()) {
            let hint =
                format!("the other is at {}; rename or remove one", cx.sources.place(self.tools[first].span));
            cx.error(name.span, format!("tool `{}` is defined twice", name.value), hint);
        }
        self.origins(&format!("tools.{}", name.value), written);
        let full = matches!(&file.contract, Some(at) if matches!(at.value, ContractName::Full));
        if full {
            self.full.push((name.value.clone(), name.span));
        }
        let limits = ToolLimits {
            max_instances: value(file.max_instances),
            timeout: value(file.timeout),
            parallel_capable: value(file.parallel_capable),
        };
        let tool = ToolDefinition {
            description: description.value,
            contract: if full { Level::Full } else { Level::Standard },
            version: value(file.version).unwrap_or_else(|| "1.0.0".to_owned()),
            input_schema: input.value.0.to_json(),
            output_schema: file.output_schema.map(|at| at.value.0.to_json()),
            script,
            limits,
            permissions: values(file.permissions).unwrap_or_default(),
            category: caching.category.as_ref().map(|at| at.value.into()),
            response_time: file.response_time.map(|at| match at.value {
                ResponseTimeName::Fast => ResponseTime::Fast,
                ResponseTimeName::Medium => ResponseTime::Medium,
                ResponseTimeName::Slow => ResponseTime::Slow,
            }),
            cache_ttl,
            idempotent: value(file.idempotent).unwrap_or(false),
            examples: values(file.examples).into_iter().flatten().filter_map(example).collect(),
            tags: values(file.tags).unwrap_or_default(),
            rate_limit: file.rate_limit.and_then(|at| rate_limit(at.value)),
            deprecated,
            follow_ups: follow_ups(file.follow_ups),
            name: name.value,
        };
        self.tools.push(Drafted { value: tool, caching, span: name.span });
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

fn script(file: &mut ToolFile, name: &At<ToolName>, folder: &Path, cx: &mut Context<'_>) -> Option<Script> {
    // There is one kind of tool; the next one makes this a choice.
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
                        format!("`{key}` is given inside and outside of `config`{}", cx.whereabouts());
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
    let script_path = match inside(&written)
        .map(|path| folder.join(path))
        .and_then(|path| stays(path, folder))
    {
        Ok(path) => path,
        Err(why) => {
            let message = format!("`{written}` cannot be the script{}: {why}", cx.whereabouts());
            cx.error(span, message, "scripts are files in the folder of the registry, or in a folder there");
            return None;
        }
    };
    let (env, max_memory) = (environment(file.env.take(), cx), memory(file.max_memory.take(), cx));
    if !script_path.is_file() {
        // Not an error: the tool exists, and a call of it says that its script is missing.
        let message = format!("the script `{written}` of tool `{}` does not exist", name.value);
        let hint = "write it, or correct `script_path`; until then calls fail with `tool_execution_error`";
        cx.push(Problem::warning(span, message).hint(hint));
    }
    let (folder, project) = (folder.to_owned(), cx.project.to_owned());
    Some(Script { script_path, entrypoint, env, max_memory, folder, project })
}

/// What a script may use: an interpreter cannot start with less than some.
fn memory(file: Option<At<ByteSize>>, cx: &mut Context<'_>) -> ByteSize {
    let Some(at) = file else { return Script::MEMORY };
    if at.value < LEAST_MEMORY {
        let message = format!("`{}` is too little memory{}", at.value, cx.whereabouts());
        cx.error(at.span, message, format!("programs need `{LEAST_MEMORY}` to start"));
    }
    at.value
}

/// A path that cannot leave the folder it is joined to.
fn inside(written: &str) -> Result<PathBuf, &'static str> {
    let path = Path::new(written);
    if written.is_empty() || written.contains('\0') {
        return Err("it is not the name of a file");
    }
    if written.trim() != written || written.split('/').any(|part| part.trim() != part) {
        return Err("it has white space at an end");
    }
    if written.split('/').any(|part| part.len() > LONGEST_FILE_NAME) {
        return Err("it is too long");
    }
    if path.components().all(|part| matches!(part, Component::Normal(_))) && !written.contains("/./") {
        Ok(path.to_owned())
    } else {
        Err("it leads out of the folder")
    }
}

/// The path, unless a symbolic link in it leads out of the folder. One that leads nowhere is not there.
fn stays(path: PathBuf, folder: &Path) -> Result<PathBuf, &'static str> {
    let below = path.ancestors().take_while(|part| *part != folder);
    if !below.into_iter().any(Path::is_symlink) {
        return Ok(path);
    }
    match (fs_err::canonicalize(&path), fs_err::canonicalize(folder)) {
        (Ok(real), Ok(folder)) if !real.starts_with(&folder) => Err("a link in it leads out of the folder"),
        _ => Ok(path),
    }
}

fn example(file: ExampleFile) -> Option<Example> {
    Some(Example {
        description: file.description?.value,
        params: file.params?.value.0.to_json(),
        expected_result: file.expected_result.map(|at| at.value.0.to_json()),
    })
}

pub(super) fn rate_limit(file: RateLimitFile) -> Option<RateLimit> {
    let milliseconds = file.window_ms?.value;
    let window =
        format!("{milliseconds}ms").parse().expect("a positive number of milliseconds is a duration");
    Some(RateLimit { max_calls: file.max_calls?.value, window })
}

pub(super) fn follow_ups(files: Option<At<Vec<At<FollowUpFile>>>>) -> Vec<FollowUp> {
    let follow_up = |file: FollowUpFile| {
        Some(FollowUp {
            action: file.action?.value,
            priority: file.priority.map_or(Severity::Medium, |at| match at.value {
                PriorityName::Critical => Severity::Critical,
                PriorityName::High => Severity::High,
                PriorityName::Medium => Severity::Medium,
                PriorityName::Low => Severity::Low,
            }),
            description: value(file.description),
            after: values(file.after).unwrap_or_default(),
        })
    };
    values(files).into_iter().flatten().filter_map(follow_up).collect()
}

fn deprecation(
    file: DeprecationFile,
    name: Option<&At<ToolName>>,
    cx: &mut Context<'_>,
) -> Option<Deprecation> {
    let (since, replacement, date) = (file.since?, file.replacement?, file.removal_date?);
    if name.is_some_and(|name| name.value == replacement.value) {
        let message = format!("tool `{}` cannot replace itself", replacement.value);
        cx.error(replacement.span, message, "name another tool");
    }
    // A time of day may follow; the day is what counts.
    let Some(day) = date.value.get(..10).filter(|day| is_day(day)) else {
        cx.error(
            date.span,
            format!("`{}` is not a date{}", date.value, cx.whereabouts()),
            "write it as `2027-03-31`",
        );
        return None;
    };
    Some(Deprecation { since: since.value, replacement: replacement.value, removal_date: day.to_owned() })
}

fn is_day(text: &str) -> bool {
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
    fn scripts_stay_in_their_folder() {
        for good in ["a.py", "sub/a.py", "a.b.sh"] {
            assert!(inside(good).is_ok(), "{good}");
        }
        let long = format!("{}.py", "x".repeat(300));
        for bad in ["../../bin/sh", "a/../b", "/bin/sh", "x\0.py", "con.py ", "", ".", "./a.py", &long] {
            assert!(inside(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn days() {
        for good in ["2027-03-31", "2028-02-29"] {
            assert!(is_day(good), "{good}");
        }
        for bad in ["2027-02-29", "2027-13-01", "2027-00-10", "2027/03/31", "soon-ish!!", "+027-01-01"] {
            assert!(!is_day(bad), "{bad}");
        }
    }
}
