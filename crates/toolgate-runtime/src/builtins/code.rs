//! `code_execution`: code that a caller brings along, what it says, and the files that it writes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use toolgate_types::tool::Category;
use toolgate_types::{CallerId, HumanDuration};
use toolgate_upstream::builtin::{Asked, Given};
use toolgate_upstream::code::{Job, Ran, Runner, Written};
use toolgate_upstream::process::Exit;
use toolgate_upstream::{Builtin, Raw};

use crate::results::Results;

/// The tool that runs code.
pub(super) const CODE_EXECUTION: &str = "code_execution";
/// Files that are given with the result; larger ones are kept.
const MOST_INLINE: usize = 8 << 10;
/// Where nothing is kept, a little more.
const MOST_INLINE_ALONE: usize = 64 << 10;
/// For what is beside the code: the folder, the files.
const SLACK: u64 = 15;

/// The tool. Files that are too large to be given are kept with the results, where results are kept.
pub(super) fn tool(runner: Runner, results: Option<Arc<Results>>) -> Builtin {
    let runner = Arc::new(runner);
    let (runs, stops) = (Arc::clone(&runner), Arc::clone(&runner));
    let run = move |asked: Asked| -> futures_util::future::BoxFuture<'static, Given> {
        let (runner, results) = (Arc::clone(&runs), results.clone());
        Box::pin(async move {
            let job: Job = asked.arguments.parse().map_err(|error| error.to_string())?;
            let ran = runner.run(&job).await?;
            Ok(reply(ran, &asked.caller, results.as_ref()).await)
        })
    };
    let described = format!(
        "Runs code in Python or for the shell, in a folder of its own, and returns what it wrote to stdout and stderr, \
         its exit code, and the files that it wrote. Use it to compute, to process data, or to make files. Every call \
         starts anew: nothing is left of the one before.{}",
        if runner.rules().sandbox {
            " There is no network, and no file but those of the system and of the call."
        } else {
            ""
        }
    );
    let name = CODE_EXECUTION.parse().expect("it is a name");
    let mut tool = Builtin::query(name, described, Raw::of(&input_schema()), run);
    tool.output_schema = Some(Raw::of(&output_schema()));
    tool.category = Category::Mutation;
    tool.idempotent = false;
    tool.timeout = Some(HumanDuration::from_secs(runner.rules().timeout.get().as_secs() + SLACK));
    tool.tags = ["code", "python", "shell", "compute"].map(str::to_owned).to_vec();
    tool.stop = Some(Box::new(move || {
        let runner = Arc::clone(&stops);
        Box::pin(async move { runner.stop().await })
    }));
    tool
}

fn input_schema() -> Json {
    json!({
        "type": "object", "required": ["language", "code"], "additionalProperties": false,
        "properties": {
            "language": { "enum": ["python", "shell"], "description": "In which language the code is written." },
            "code": { "type": "string", "minLength": 1, "maxLength": 200_000, "description": "The code. What it prints is the result." },
            "stdin": { "type": "string", "maxLength": 1_000_000, "description": "What the code can read from its stdin." },
            "files": { "type": "array", "maxItems": 20, "description": "Files that the code finds in its working folder.", "items": {
                "type": "object", "required": ["path", "text"], "additionalProperties": false,
                "properties": {
                    "path": { "type": "string", "minLength": 1, "maxLength": 200, "description": "The name of the file, such as `data.csv`." },
                    "text": { "type": "string", "maxLength": 1_000_000, "description": "What is in it." },
                } } },
        },
        "examples": [{ "language": "python", "code": "print(sum(range(10)))" }],
    })
}

fn output_schema() -> Json {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object", "required": ["exitCode", "stdout", "stderr", "files"],
        "properties": {
            "exitCode": { "type": ["integer", "null"], "description": "0 where all went well; null where a signal ended it." },
            "stdout": text("What it wrote to stdout."),
            "stderr": text("The last lines that it wrote to stderr."),
            "files": { "type": "array", "description": "The files that it wrote.", "items": {
                "type": "object", "required": ["path", "size"],
                "properties": {
                    "path": text("Its name."), "size": { "type": "integer", "description": "Its bytes." },
                    "text": text("What is in it, where that is text."), "base64": text("What is in it, where that is no text."),
                    "uri": text("Where it is kept; `read_result` reads it."), "note": text("Why it is not here."),
                } } },
            "filesLeftOut": { "type": "integer", "description": "How many more files there were." },
        },
    })
}

async fn reply(ran: Ran, caller: &CallerId, results: Option<&Arc<Results>>) -> Raw {
    let Ran { exit, stdout, stderr, files, left_out } = ran;
    let mut content = vec![json!({ "type": "text", "text": said(exit, &stdout, &stderr) })];
    let mut listed = Vec::new();
    for file in files {
        let (entry, link) = given(file, caller, results).await;
        listed.push(entry);
        content.extend(link);
    }
    let code = match exit {
        Exit::Code(code) => Some(code),
        Exit::Signal(_) | Exit::Unknown => None,
    };
    let mut structured = json!({ "exitCode": code, "stdout": stdout, "stderr": stderr, "files": listed });
    if left_out > 0 {
        structured["filesLeftOut"] = left_out.into();
    }
    Raw::of(&json!({ "content": content, "structuredContent": structured, "isError": !exit.is_success() }))
}

/// What a reader without structure is told.
fn said(exit: Exit, stdout: &str, stderr: &str) -> String {
    let (out, err) = (stdout.trim_end(), stderr.trim_end());
    let mut text = if exit.is_success() { String::new() } else { format!("the code {exit}\n") };
    // What went wrong comes first: the beginning of a text is what is shown of it.
    let parts =
        if exit.is_success() { [("", out), ("stderr: ", err)] } else { [("", err), ("stdout: ", out)] };
    for (name, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
        text.push_str(name);
        text.push_str(part);
        text.push('\n');
    }
    if text.is_empty() { "the code said nothing".to_owned() } else { text }
}

/// A file with its content where it is small, and where it is kept where it is not.
async fn given(file: Written, caller: &CallerId, results: Option<&Arc<Results>>) -> (Json, Option<Json>) {
    let Written { path, bytes } = file;
    let size = bytes.len();
    let mut entry = json!({ "path": path, "size": size });
    let text = String::from_utf8(bytes);
    let inline = if results.is_some() { MOST_INLINE } else { MOST_INLINE_ALONE };
    if size <= inline {
        match text {
            Ok(text) => entry["text"] = text.into(),
            Err(bytes) => entry["base64"] = STANDARD.encode(bytes.as_bytes()).into(),
        }
        return (entry, None);
    }
    let Some(results) = results else {
        entry["note"] =
            "it is too large to be given; `results` in toolgate.yaml lets such files be kept".into();
        return (entry, None);
    };
    let whole = match text {
        Ok(text) => json!({ "type": "text", "text": text }),
        Err(bytes) => json!({ "type": "resource", "resource": { "uri": format!("file:///{path}"),
            "mimeType": "application/octet-stream", "blob": STANDARD.encode(bytes.as_bytes()) } }),
    };
    match results.put(caller, CODE_EXECUTION, Raw::of(&json!({ "content": [whole] }))).await {
        Ok(uri) => {
            entry["uri"] = uri.clone().into();
            let link = json!({ "type": "resource_link", "uri": uri, "name": path, "size": size });
            (entry, Some(link))
        }
        Err(error) => {
            entry["note"] = format!("it cannot be kept: {error}").into();
            (entry, None)
        }
    }
}
