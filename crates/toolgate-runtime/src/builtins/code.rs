//! `code_execution`: runs code and returns its output and the files it wrote.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use toolgate_types::tool::Category;
use toolgate_types::{CallerId, HumanDuration};
use toolgate_upstream::builtin::{BuiltinCall, BuiltinResult};
use toolgate_upstream::code::{CodeJob, CodeOutcome, CodeRunner, OutputFile};
use toolgate_upstream::process::ChildExit;
use toolgate_upstream::{BuiltinTool, RawJson};

use crate::results::ResultStore;

pub const CODE_EXECUTION: &str = "code_execution";
/// Size limit of files returned inline. Larger ones are stored.
const MAX_INLINE_BYTES: usize = 8 << 10;
/// Size limit of inline files if results are not stored.
const MAX_INLINE_BYTES_UNSTORED: usize = 64 << 10;
/// Extra time for creating the working directory and collecting files.
const OVERHEAD_SECONDS: u64 = 15;

/// Creates the tool. Files too large to return inline go to the result store, if there is one.
pub(super) fn tool(runner: CodeRunner, results: Option<Arc<ResultStore>>) -> BuiltinTool {
    let runner = Arc::new(runner);
    let (runs, stops, programs) = (Arc::clone(&runner), Arc::clone(&runner), Arc::clone(&runner));
    let run = move |call: BuiltinCall| -> futures_util::future::BoxFuture<'static, BuiltinResult> {
        let (runner, results) = (Arc::clone(&runs), results.clone());
        Box::pin(async move {
            let job: CodeJob = call.arguments.parse().map_err(|error| error.to_string())?;
            let ran = runner.run(&job).await?;
            Ok(reply(ran, &call.caller, results.as_ref()).await)
        })
    };
    let description = format!(
        "Runs Python or shell code in a folder of its own, and returns its stdout and stderr, \
         its exit code, and the files it wrote. Use it to compute, to process data, or to create files. Every call \
         starts anew: calls share no files or state.{}",
        if runner.config().sandbox {
            " There is no network access, and only system files and the files of the call are visible."
        } else {
            ""
        }
    );
    let name = CODE_EXECUTION.parse().expect("a valid name");
    let mut tool = BuiltinTool::query(name, description, RawJson::from_value(&input_schema()), run);
    tool.output_schema = Some(RawJson::from_value(&output_schema()));
    tool.category = Category::Mutation;
    tool.idempotent = false;
    tool.timeout = Some(HumanDuration::from_secs(runner.config().timeout.get().as_secs() + OVERHEAD_SECONDS));
    tool.tags = ["code", "python", "shell", "compute"].map(str::to_owned).to_vec();
    tool.code = Some(programs);
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
            "language": { "enum": ["python", "shell"], "description": "Language of the code." },
            "code": { "type": "string", "minLength": 1, "maxLength": 200_000, "description": "The code. Its output is the result." },
            "stdin": { "type": "string", "maxLength": 1_000_000, "description": "Standard input of the code." },
            "files": { "type": "array", "maxItems": 20, "description": "Files to create in the working directory.", "items": {
                "type": "object", "required": ["path", "text"], "additionalProperties": false,
                "properties": {
                    "path": { "type": "string", "minLength": 1, "maxLength": 200, "description": "Name of the file, such as `data.csv`." },
                    "text": { "type": "string", "maxLength": 1_000_000, "description": "Content of the file." },
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
            "exitCode": { "type": ["integer", "null"], "description": "Exit code, 0 for success; null if a signal ended the code." },
            "stdout": text("Standard output."),
            "stderr": text("Last lines of standard error."),
            "files": { "type": "array", "description": "Files the code wrote.", "items": {
                "type": "object", "required": ["path", "size"],
                "properties": {
                    "path": text("Name of the file."), "size": { "type": "integer", "description": "Size in bytes." },
                    "text": text("Content, if it is text."), "base64": text("Content, if it is binary."),
                    "uri": text("URI of the stored file, for `read_result`."), "note": text("Reason why the content is missing."),
                } } },
            "filesLeftOut": { "type": "integer", "description": "Number of files left out." },
        },
    })
}

/// Converts the outcome of code.
pub(crate) async fn reply(
    ran: CodeOutcome,
    caller: &CallerId,
    results: Option<&Arc<ResultStore>>,
) -> RawJson {
    let CodeOutcome { exit, stdout, stderr, files, omitted_files: left_out } = ran;
    let mut content = vec![json!({ "type": "text", "text": output_text(exit, &stdout, &stderr) })];
    let mut entries = Vec::new();
    for file in files {
        let (entry, link) = file_entry(file, caller, results).await;
        entries.push(entry);
        content.extend(link);
    }
    let code = match exit {
        ChildExit::Code(code) => Some(code),
        ChildExit::Signal(_) | ChildExit::Unknown => None,
    };
    let mut structured = json!({ "exitCode": code, "stdout": stdout, "stderr": stderr, "files": entries });
    if left_out > 0 {
        structured["filesLeftOut"] = left_out.into();
    }
    RawJson::from_value(
        &json!({ "content": content, "structuredContent": structured, "isError": !exit.is_success() }),
    )
}

/// The output as text, for clients that ignore structured content.
fn output_text(exit: ChildExit, stdout: &str, stderr: &str) -> String {
    let (out, err) = (stdout.trim_end(), stderr.trim_end());
    let mut text = if exit.is_success() { String::new() } else { format!("the code {exit}\n") };
    // On failure stderr comes first, because previews show only the start of a text.
    let parts =
        if exit.is_success() { [("", out), ("stderr: ", err)] } else { [("", err), ("stdout: ", out)] };
    for (name, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
        text.push_str(name);
        text.push_str(part);
        text.push('\n');
    }
    if text.is_empty() { "the code printed nothing".to_owned() } else { text }
}

/// The entry of a file: small files inline, larger ones as a link to the stored result.
async fn file_entry(
    file: OutputFile,
    caller: &CallerId,
    results: Option<&Arc<ResultStore>>,
) -> (Json, Option<Json>) {
    let OutputFile { path, bytes } = file;
    let size = bytes.len();
    let mut entry = json!({ "path": path, "size": size });
    let text = String::from_utf8(bytes);
    let inline = if results.is_some() { MAX_INLINE_BYTES } else { MAX_INLINE_BYTES_UNSTORED };
    if size <= inline {
        match text {
            Ok(text) => entry["text"] = text.into(),
            Err(bytes) => entry["base64"] = STANDARD.encode(bytes.as_bytes()).into(),
        }
        return (entry, None);
    }
    let Some(results) = results else {
        entry["note"] =
            "it is too large to return inline; set `results` in toolgate.yaml to store such files".into();
        return (entry, None);
    };
    let whole = match text {
        Ok(text) => json!({ "type": "text", "text": text }),
        Err(bytes) => json!({ "type": "resource", "resource": { "uri": format!("file:///{path}"),
            "mimeType": "application/octet-stream", "blob": STANDARD.encode(bytes.as_bytes()) } }),
    };
    let whole = RawJson::from_value(&json!({ "content": [whole] }));
    match results.store(caller, CODE_EXECUTION, false, whole).await {
        Ok(uri) => {
            entry["uri"] = uri.clone().into();
            let link = json!({ "type": "resource_link", "uri": uri, "name": path, "size": size });
            (entry, Some(link))
        }
        Err(error) => {
            entry["note"] = format!("it could not be stored: {error}").into();
            (entry, None)
        }
    }
}
