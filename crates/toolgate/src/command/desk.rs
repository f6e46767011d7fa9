//! `toolgate questions`: what waits for a person in the running server; and the terminal as a way to a person.
//!
//! Invariant: whose words a question is made of is said, and they are cleaned before they are shown.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::{Map, Value as Json, json};
use toolgate_runtime::desk::{Answer, Kind, Posted, Question, REQUEST_HUMAN_INPUT, Reply, Way};
use toolgate_types::clean::clean;

use crate::DONE;
use crate::cli::{Answers, Project, QuestionAnswerArgs, QuestionsArgs, QuestionsCommand};
use crate::command::agent::keys;
use crate::command::questions::{AT_TERMINAL, line, somebody_is_there, typed, with_defaults};
use crate::command::socket::{encoded, request_of};
use crate::output::{BOLD, DIM, Output, hinted};

/// How often somebody who watches looks.
const LOOK: Duration = Duration::from_millis(500);
/// How often a person may try until an answer fits.
const TRIES: usize = 5;

pub(crate) fn run(args: &QuestionsArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio.block_on(async {
        match &args.command {
            Some(QuestionsCommand::Answer(args)) => answer(args, project, output).await,
            None if args.watch => watch(project, output).await,
            None => list(project, output).await,
        }
    })
}

/// All that waits, of both kinds, the oldest first.
async fn waiting(project: &Project) -> anyhow::Result<Vec<Json>> {
    let mut all = Vec::new();
    for (path, member) in [("/v1/human-input", "questions"), ("/v1/approvals", "approvals")] {
        let document = ask(project, Method::GET, path, None).await?;
        all.extend(document[member].as_array().cloned().unwrap_or_default());
    }
    all.sort_by_key(|one| one["id"].as_str().map(str::to_owned));
    Ok(all)
}

async fn ask(project: &Project, method: Method, path: &str, body: Option<&Json>) -> anyhow::Result<Json> {
    let answered = request_of(&project.folder, method, path, body).await?;
    let (status, document) = answered.ok_or_else(|| {
        hinted(
            "no server runs for this project",
            "`toolgate serve` runs one; questions of `tools call` are answered at its own terminal",
        )
    })?;
    if status.is_success() {
        return Ok(document);
    }
    let message = document["error"]["message"].as_str().map(str::to_owned);
    Err(anyhow!(message.unwrap_or_else(|| format!("the running server answers {status}"))))
}

async fn list(project: &Project, output: &Output) -> anyhow::Result<u8> {
    let all = waiting(project).await?;
    if output.json {
        output.document(&all)?;
        return Ok(DONE);
    }
    for one in &all {
        output.result(&shown(one));
    }
    if all.is_empty() {
        output.message("no question waits\n");
    } else {
        output.next("`toolgate questions answer ID ANSWER` answers one");
    }
    Ok(DONE)
}

async fn watch(project: &Project, output: &Output) -> anyhow::Result<u8> {
    let mut seen = HashSet::new();
    loop {
        let all = waiting(project).await?;
        for one in all.iter().filter(|one| !seen.contains(&one["id"])) {
            if output.json { output.line(one)? } else { output.result(&shown(one)) }
        }
        seen = all.into_iter().map(|one| one["id"].clone()).collect();
        tokio::time::sleep(LOOK).await;
    }
}

async fn answer(args: &QuestionAnswerArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let mut found = waiting(project).await?;
    found.retain(|one| one["id"].as_str().is_some_and(|id| id.starts_with(&args.id)));
    let [one] = found.as_slice() else {
        let what =
            if found.is_empty() { "there is no open question" } else { "there is more than one question" };
        return Err(hinted(format!("{what} `{}`", args.id), "`toolgate questions` lists those that wait"));
    };
    let id = encoded(one["id"].as_str().unwrap_or_default());
    let (path, body) = if one["kind"] == "approval" {
        let approve = match args.answer.as_deref() {
            Some("yes" | "y" | "true") => true,
            None | Some("no" | "n" | "false") => false,
            Some(other) => bail!("`{other}` is neither `yes` nor `no`"),
        };
        (format!("/v1/approvals/{id}"), json!({ "approve": approve }))
    } else {
        let body = match &args.answer {
            Some(text) => json!({ "answer": meant(text, one) }),
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

/// What a text means as an answer: a choice by its number, JSON where a schema is asked for.
fn meant(text: &str, question: &Json) -> Json {
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

/// A question as a person reads it.
fn shown(one: &Json) -> String {
    let text = |key: &str| clean(one[key].as_str().unwrap_or_default()).into_owned();
    let session = one["session"].as_str().map(|id| format!(", session {}", clean(id))).unwrap_or_default();
    let (id, until) = (text("id"), text("expiresAt"));
    let mut shown =
        format!("{BOLD}{id}{BOLD:#}  {}\n", text("text").lines().collect::<Vec<_>>().join("\n  "));
    if one["kind"] == "approval" {
        shown.push_str(&format!(
            "  {} wants to call {} with {}\n",
            text("caller"),
            text("tool"),
            text("arguments")
        ));
    }
    for (at, choice) in one["choices"].as_array().into_iter().flatten().enumerate() {
        shown.push_str(&format!("  {}. {}\n", at + 1, clean(choice.as_str().unwrap_or_default())));
    }
    if one["schema"].is_object() {
        shown.push_str(&format!("  an answer is JSON that fits {}\n", clean(&one["schema"].to_string())));
    }
    shown.push_str(&format!("  {DIM}asked by {}{session}, until {until}{DIM:#}\n", text("caller")));
    shown
}

/// The ways to a person that a command has.
pub(crate) fn ways(answers: Answers) -> Vec<Arc<dyn Way>> {
    match answers {
        Answers::Ask if somebody_is_there() => vec![Arc::new(Terminal)],
        Answers::Defaults => vec![Arc::new(Defaults)],
        Answers::Ask | Answers::Decline => Vec::new(),
    }
}

/// What servers give as defaults, where that is all they need. Whatever else is asked is asked of nobody.
struct Defaults;

impl Way for Defaults {
    fn ask(&self, question: Arc<Question>) -> BoxFuture<'static, Option<Reply>> {
        let Posted { tool, schema, .. } = &question.posted;
        let of_server = schema.as_ref().filter(|_| tool != REQUEST_HUMAN_INPUT);
        let content = of_server.map(with_defaults).filter(|said| said["action"] == "accept");
        let answer = content.map(|mut said| Answer::Given(said["content"].take()));
        Box::pin(async move { Some(Reply { answer: answer?, by: "its own defaults".to_owned() }) })
    }
}

/// The person at the terminal.
struct Terminal;

impl Way for Terminal {
    fn ask(&self, question: Arc<Question>) -> BoxFuture<'static, Option<Reply>> {
        Box::pin(async move {
            // Reading from a terminal blocks; nobody else should wait for it.
            let asked = tokio::task::spawn_blocking(move || at_terminal(&question)).await;
            let answer = asked.ok().flatten()?;
            Some(Reply { answer, by: AT_TERMINAL.to_owned() })
        })
    }
}

/// Asks until an answer fits. `None` where nobody is there any more.
fn at_terminal(question: &Question) -> Option<Answer> {
    let output = Output::new(false, crate::cli::ColorWhen::Auto);
    let Posted { kind, caller, text, choices, schema, .. } = &question.posted;
    if *kind == Kind::Approval {
        return Some(Answer::Given(keys::yes(text).into()));
    }
    output.message(&format!("{BOLD}{caller} asks{BOLD:#}: {text}\n"));
    for (at, choice) in choices.iter().enumerate() {
        output.message(&format!("  {}. {choice}\n", at + 1));
    }
    for _ in 0..TRIES {
        let said = match (schema, choices.as_slice()) {
            (Some(schema), _) => fields(schema, &output)?,
            (None, []) => prompt("  answer, or nothing to decline: ", &output)?.map(Json::String),
            (None, _) => prompt("  number or word, or nothing to decline: ", &output)?
                .map(|text| meant(&text, &json!({ "choices": choices }))),
        };
        let Some(said) = said else { return Some(Answer::Declined(None)) };
        let answer = Answer::Given(said);
        match question.check(&answer) {
            Ok(()) => return Some(answer),
            Err(misfit) => output.message(&format!("  {misfit}\n")),
        }
    }
    Some(Answer::Declined(None))
}

/// A line; `Some(None)` where it is empty, `None` where nobody is there.
fn prompt(text: &str, output: &Output) -> Option<Option<String>> {
    output.message(text);
    line().ok().map(|line| Some(line).filter(|line| !line.is_empty()))
}

/// The fields of a flat object one by one, with nothing for one that may be left out; anything else as JSON.
fn fields(schema: &Json, output: &Output) -> Option<Option<Json>> {
    let Some(properties) = schema["properties"].as_object().filter(|all| all.values().all(is_plain)) else {
        let said = prompt(
            &format!("  JSON that fits {}, or nothing to decline: ", clean(&schema.to_string())),
            output,
        )?;
        return Some(said.map(|text| serde_json::from_str(&text).unwrap_or(Json::String(text))));
    };
    let required =
        |name: &String| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let mut content = Map::new();
    for (name, property) in properties {
        let title = property["title"].as_str().unwrap_or(name);
        let hint = match (property.get("default"), required(name)) {
            (Some(default), _) => format!(" [{}]", clean(&default.to_string())),
            (None, true) => ", or nothing to decline".to_owned(),
            (None, false) => ", or nothing to leave it out".to_owned(),
        };
        match (prompt(&format!("  {}{hint}: ", clean(title)), output)?, property.get("default")) {
            (Some(text), _) => drop(content.insert(name.clone(), typed(&text, &property["type"]))),
            (None, Some(default)) => drop(content.insert(name.clone(), default.clone())),
            (None, None) if required(name) => return Some(None),
            (None, None) => {}
        }
    }
    Some(Some(Json::Object(content)))
}

fn is_plain(property: &Json) -> bool {
    matches!(property["type"].as_str(), Some("string" | "number" | "integer" | "boolean"))
}

#[test]
fn what_a_text_means() {
    let choices = json!({ "choices": ["red", "2", "blue"] });
    assert_eq!(meant("1", &choices), json!("red"));
    assert_eq!(meant("2", &choices), json!("2"), "a choice by its name comes before a number");
    assert_eq!(meant("3", &choices), json!("blue"));
    assert_eq!(meant("4", &choices), json!("4"));
    assert_eq!(meant("0", &choices), json!("0"));
    assert_eq!(meant("1", &json!({})), json!("1"));
    assert_eq!(meant("{\"n\":1}", &json!({ "schema": {} })), json!({ "n": 1 }));
}
