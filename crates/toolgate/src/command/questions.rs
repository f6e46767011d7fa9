//! `toolgate questions`: lists and answers questions of the running gateway. Also prompts for answers at the terminal.
//!
//! Invariant: text of a question is sanitised, and its author is named.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde_json::{Value as Json, json};
use toolgate_app::socket::{Method, encode_segment, send_request};
use toolgate_redact::printable;
use toolgate_runtime::questions::{Answer, InputQuestion, Question};

use crate::DONE;
use crate::cli::{ProjectArgs, QuestionAnswerArgs, QuestionsArgs, QuestionsCommand};
use crate::command::agent::keys;
use crate::command::form;
use crate::output::{BOLD, DIM, Output, error_with_hint, quoted_lines};

/// Poll interval of `--watch`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Attempts of a person to give a valid answer.
const MAX_ATTEMPTS: usize = 5;

pub(crate) fn run(args: &QuestionsArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio.block_on(async {
        match &args.command {
            Some(QuestionsCommand::Answer(args)) => answer(args, project, output).await,
            None if args.watch => watch(project, output).await,
            None => list(project, output).await,
        }
    })
}

/// Returns open questions and approvals, oldest first.
async fn open_questions(project: &ProjectArgs) -> anyhow::Result<Vec<Json>> {
    let mut all = Vec::new();
    for (path, member) in [("/v1/human-input", "questions"), ("/v1/approvals", "approvals")] {
        let document = ask(project, Method::GET, path, None).await?;
        all.extend(document[member].as_array().cloned().unwrap_or_default());
    }
    all.sort_by_key(|one| one["id"].as_str().map(str::to_owned));
    Ok(all)
}

async fn ask(project: &ProjectArgs, method: Method, path: &str, body: Option<&Json>) -> anyhow::Result<Json> {
    let answered = send_request(&project.state_folder(), method, path, body).await?;
    let (status, document) = answered.ok_or_else(|| {
        error_with_hint(
            "no gateway is running for this project",
            "start one with `toolgate serve`; `tools call` asks its questions at its own terminal",
        )
    })?;
    if status.is_success() {
        return Ok(document);
    }
    let message = document["error"]["message"].as_str().map(str::to_owned);
    Err(anyhow!(message.unwrap_or_else(|| format!("the gateway responded with {status}"))))
}

async fn list(project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let all = open_questions(project).await?;
    if output.json {
        output.document(&all)?;
        return Ok(DONE);
    }
    for one in &all {
        output.result(&question_text(one));
    }
    if all.is_empty() {
        output.message("no open questions\n");
    } else {
        output.next_step("answer one with `toolgate questions answer ID ANSWER`");
    }
    Ok(DONE)
}

async fn watch(project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let mut seen = HashSet::new();
    loop {
        let all = open_questions(project).await?;
        for one in all.iter().filter(|one| !seen.contains(&one["id"])) {
            if output.json { output.json_line(one)? } else { output.result(&question_text(one)) }
        }
        seen = all.into_iter().map(|one| one["id"].clone()).collect();
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn answer(args: &QuestionAnswerArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let mut found = open_questions(project).await?;
    found.retain(|one| one["id"].as_str().is_some_and(|id| id.starts_with(&args.id)));
    let [one] = found.as_slice() else {
        let what =
            if found.is_empty() { "no open question has the id" } else { "several questions have the id" };
        return Err(error_with_hint(format!("{what} `{}`", args.id), "list them with `toolgate questions`"));
    };
    let id = encode_segment(one["id"].as_str().unwrap_or_default());
    let (path, body) = if one["kind"] == "approval" {
        let approve = match args.answer.as_deref() {
            Some("yes" | "y" | "true") => true,
            None | Some("no" | "n" | "false") => false,
            Some(other) => bail!("`{other}` is neither `yes` nor `no`"),
        };
        (format!("/v1/approvals/{id}"), json!({ "approve": approve }))
    } else {
        let body = match &args.answer {
            Some(text) => json!({ "answer": parse_answer(text, one) }),
            None => json!({ "decline": true, "reason": args.reason }),
        };
        (format!("/v1/human-input/{id}"), body)
    };
    let answered = ask(project, Method::POST, &path, Some(&body)).await?;
    if output.json {
        output.document(&answered)?;
    } else {
        output.message("answered\n");
    }
    Ok(DONE)
}

/// Parses an answer: a choice by name or number, JSON if there is a schema.
fn parse_answer(text: &str, question: &Json) -> Json {
    if question["schema"].is_object() {
        return serde_json::from_str(text).unwrap_or_else(|_| text.into());
    }
    let choices = question["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
    if choices.iter().any(|choice| choice == text) {
        return text.into();
    }
    let numbered = text.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    numbered.cloned().unwrap_or_else(|| text.into())
}

/// Formats a question.
fn question_text(one: &Json) -> String {
    let text = |key: &str| printable(one[key].as_str().unwrap_or_default());
    let session =
        one["session"].as_str().map(|id| format!(", session {}", printable(id))).unwrap_or_default();
    let (id, until) = (text("id"), text("expiresAt"));
    let mut shown =
        format!("{BOLD}{id}{BOLD:#}  {}\n", quoted_lines(one["text"].as_str().unwrap_or_default()));
    if one["kind"] == "approval" {
        shown.push_str(&format!(
            "  {} wants to call {} with {}\n",
            text("caller"),
            text("tool"),
            text("arguments")
        ));
        if one["shortened"] == true {
            let id = encode_segment(one["id"].as_str().unwrap_or_default());
            let note = format!(
                "long strings are shortened; GET /v1/approvals/{id} has all {} bytes",
                one["argumentsBytes"]
            );
            shown.push_str(&format!("  {note}\n"));
        }
        for part in one["masked"].as_array().into_iter().flatten() {
            let path = printable(part["path"].as_str().unwrap_or_default());
            shown.push_str(&format!("  masked: `{path}`, {} bytes\n", part["bytes"]));
        }
    }
    for (at, choice) in one["choices"].as_array().into_iter().flatten().enumerate() {
        shown.push_str(&format!("  {}. {}\n", at + 1, printable(choice.as_str().unwrap_or_default())));
    }
    if one["schema"].is_object() {
        shown.push_str(&format!(
            "  the answer must be JSON that matches {}\n",
            printable(&one["schema"].to_string())
        ));
    }
    shown.push_str(&format!("  {DIM}asked by {}{session}, until {until}{DIM:#}\n", text("caller")));
    shown
}

/// Asks for input until the answer is valid. `None` if stdin is closed.
pub(crate) fn prompt_input(question: &Question, input: &InputQuestion) -> Option<Answer> {
    let output = Output::new(false, crate::cli::ColorMode::Auto);
    let InputQuestion { caller, text, choices, schema, .. } = input;
    output.message(&format!("{BOLD}{caller} asks{BOLD:#}: {}\n", quoted_lines(text)));
    for (at, choice) in choices.iter().enumerate() {
        output.message(&format!("  {}. {}\n", at + 1, printable(choice)));
    }
    for _ in 0..MAX_ATTEMPTS {
        let value = match (schema, choices.as_slice()) {
            (Some(schema), _) => form::prompt_form(&schema.json, &output)?,
            (None, []) => prompt("  answer (empty to decline): ", &output)?.map(Json::String),
            (None, _) => prompt("  number or name (empty to decline): ", &output)?
                .map(|text| parse_answer(&text, &json!({ "choices": choices }))),
        };
        let Some(value) = value else { return Some(Answer::Declined(None)) };
        let answer = Answer::Value(value);
        match question.check(&answer) {
            Ok(()) => return Some(answer),
            Err(misfit) => output.message(&format!("  {}\n", printable(&misfit.to_string()))),
        }
    }
    Some(Answer::Declined(None))
}

/// Reads a line; `Some(None)` if it is empty, `None` if stdin is closed.
fn prompt(text: &str, output: &Output) -> Option<Option<String>> {
    output.message(text);
    keys::read_line().map(|line| Some(line).filter(|line| !line.is_empty()))
}

#[test]
fn parses_answers() {
    let choices = json!({ "choices": ["red", "2", "blue"] });
    assert_eq!(parse_answer("1", &choices), json!("red"));
    assert_eq!(parse_answer("2", &choices), json!("2"), "a choice by its name comes before a number");
    assert_eq!(parse_answer("3", &choices), json!("blue"));
    assert_eq!(parse_answer("4", &choices), json!("4"));
    assert_eq!(parse_answer("0", &choices), json!("0"));
    assert_eq!(parse_answer("1", &json!({})), json!("1"));
    assert_eq!(parse_answer("{\"n\":1}", &json!({ "schema": {} })), json!({ "n": 1 }));
}
