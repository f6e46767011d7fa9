//! The servers: their list, one server, the form of a new one, and the content of a resource.

use http::Method;
use serde_json::{Map, Value as Json, json};
use toolgate_console::frame::{Notice, Section};
use toolgate_console::pages::{NewServerPage, ResourcePage, ServerPage, ServersPage};
use toolgate_console::rest::{Figures, Imported, Items, Server, Servers, Stderr, TestedServer, Waiting};
use toolgate_console::text::url;

use super::super::form::{self, parse_json};
use super::super::visit::{Visit, notice_of, problems_of, target};
use crate::auth::HttpError;
use crate::response::Response;

/// Prompts and resources of a server on its page.
const MAX_ITEMS: usize = 200;

pub(crate) async fn list(visit: Visit) -> Result<Response, HttpError> {
    let listed: Servers = visit.get("/v1/servers").await?;
    let commands = ["toolgate servers".to_owned()];
    let frame = visit.frame(Section::Servers, "Servers", &commands, "server definition").await;
    Ok(visit.render(&ServersPage { frame, servers: listed.servers }))
}

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let name = visit.parameter().to_owned();
    let path = format!("/v1/servers/{}", url(&name));
    let server: Server = visit.get(&path).await?;
    let figures: Option<Figures> =
        visit.get_if("figures", &target("/v1/figures", [("server", name.as_str()), ("since", "6h")])).await;
    let waiting: Waiting = visit.get_if("listWaiting", &format!("{path}/waiting")).await.unwrap_or_default();
    let stderr: Option<Stderr> = visit.get_if("serverStderr", &format!("{path}/stderr")).await;
    let of_server = [("server", name.as_str())];
    let prompts: Items =
        visit.get_if("listPrompts", &target("/v1/prompts", of_server)).await.unwrap_or_default();
    let resources: Items =
        visit.get_if("listResources", &target("/v1/resources", of_server)).await.unwrap_or_default();
    let commands = [format!("toolgate servers {name}"), format!("toolgate servers reconnect {name}")];
    let frame = visit.frame(Section::Servers, &name, &commands, "server definition").await;
    Ok(visit.render(&ServerPage {
        frame,
        server,
        figures,
        waiting: waiting.waiting,
        rejected: waiting.rejected,
        stderr: stderr.map(|stderr| stderr.lines),
        prompts: prompts.prompts.into_iter().take(MAX_ITEMS).collect(),
        resources: resources.resources.into_iter().take(MAX_ITEMS).collect(),
    }))
}

pub(crate) async fn new(visit: Visit) -> Result<Response, HttpError> {
    let page = empty_form(&visit).await;
    Ok(visit.render(&page))
}

/// The form, with the entered text.
async fn empty_form(visit: &Visit) -> NewServerPage {
    let exists = visit.form.get("exists").is_some();
    let name = visit.form.text("name").to_owned();
    let title = if exists { format!("Change {name}") } else { "Add a server".to_owned() };
    let commands = ["toolgate servers add NAME -- COMMAND".to_owned(), "toolgate import --all".to_owned()];
    let entered = |field: &str| visit.form.text(field).to_owned();
    NewServerPage {
        frame: visit.frame(Section::Servers, title, &commands, "").await,
        exists,
        name,
        command: entered("command"),
        env: entered("env"),
        url: entered("url"),
        headers: entered("headers"),
        text: entered("text"),
        entry: entered("entry"),
        failure: None,
        problems: Vec::new(),
        test: None,
        imported: None,
    }
}

/// Tests or registers the entered server, or reads the configuration of a client.
pub(crate) async fn submit(visit: Visit) -> Result<Response, HttpError> {
    let outcome = match visit.form.text("do") {
        "preview" | "import" => import(&visit).await,
        _ => register(&visit).await,
    };
    match outcome {
        Ok(Submitted::Registered(name)) => {
            let notice = form::Notice { failed: false, text: format!("`{name}` was saved."), hint: None };
            Ok(visit.redirect_with(&format!("/servers/{}", url(&name)), &notice))
        }
        Ok(Submitted::Tested(test)) => {
            let page = NewServerPage { test: Some(*test), ..empty_form(&visit).await };
            Ok(visit.render(&page))
        }
        Ok(Submitted::Imported(imported)) => {
            let page = NewServerPage { imported: Some(imported), ..empty_form(&visit).await };
            Ok(visit.render(&page))
        }
        Err(error) => {
            let failure: Option<Notice> = Some(notice_of(&error));
            let page = NewServerPage { failure, problems: problems_of(&error), ..empty_form(&visit).await };
            Ok(visit.render_with(error.status, &page))
        }
    }
}

enum Submitted {
    Registered(String),
    Tested(Box<TestedServer>),
    Imported(Imported),
}

async fn register(visit: &Visit) -> Result<Submitted, HttpError> {
    let name = visit.form.text("name").trim().to_owned();
    let mut entry = entry(visit)?;
    match visit.form.text("do") {
        "replace" => {
            let path = format!("/v1/servers/{}", url(&name));
            let _: Json = visit.request(Method::PUT, &path, Some(&entry)).await?;
        }
        chosen => {
            entry["name"] = name.as_str().into();
            if chosen == "test" {
                return visit
                    .post("/v1/servers/test", &entry)
                    .await
                    .map(|test| Submitted::Tested(Box::new(test)));
            }
            let _: Json = visit.post("/v1/servers", &entry).await?;
        }
    }
    Ok(Submitted::Registered(name))
}

/// The entry of the registry that the fields describe.
fn entry(visit: &Visit) -> Result<Json, HttpError> {
    let fields = &visit.form;
    if let Some(entry) = fields.get("entry") {
        let entry = parse_json("entry", entry)?;
        return if entry.is_object() {
            Ok(entry)
        } else {
            Err(HttpError::invalid("the entry is not an object"))
        };
    }
    if let Some(address) = fields.get("url") {
        let headers = pairs("headers", fields.text("headers"), ':')?;
        let mut entry = json!({ "url": address.trim() });
        if !headers.is_empty() {
            entry["headers"] = Json::Object(headers);
        }
        return Ok(entry);
    }
    let mut words = split_words(fields.text("command"))?.into_iter();
    let command = words.next().ok_or_else(|| HttpError::invalid("the command is empty"))?;
    let mut entry = json!({ "command": command, "args": words.collect::<Vec<_>>() });
    let env = pairs("env", fields.text("env"), '=')?;
    if !env.is_empty() {
        entry["env"] = Json::Object(env);
    }
    Ok(entry)
}

/// Lines with a name and a value.
fn pairs(field: &str, text: &str, separator: char) -> Result<Map<String, Json>, HttpError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let pair = |line: &str| {
        let (name, value) = line
            .split_once(separator)
            .ok_or_else(|| HttpError::invalid(format!("a line of `{field}` has no `{separator}`")))?;
        Ok((name.trim().to_owned(), Json::from(value.trim())))
    };
    lines.map(pair).collect()
}

/// Splits a command into words. Quotes keep spaces, as in a shell; nothing is expanded.
fn split_words(text: &str) -> Result<Vec<String>, HttpError> {
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for character in text.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => word.push(character),
            (None, '"' | '\'') => (quote, is_word) = (Some(character), true),
            (None, space) if space.is_whitespace() => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (None, _) => {
                word.push(character);
                is_word = true;
            }
        }
    }
    if quote.is_some() {
        return Err(HttpError::invalid("a quote in the command is not closed"));
    }
    words.extend(is_word.then_some(word));
    Ok(words)
}

async fn import(visit: &Visit) -> Result<Submitted, HttpError> {
    let add = visit.form.text("do") == "import";
    let body = json!({ "text": visit.form.text("text"), "add": add });
    visit.post("/v1/servers/import", &body).await.map(Submitted::Imported)
}

/// The content of a resource.
pub(crate) async fn resource(visit: Visit) -> Result<Response, HttpError> {
    let (uri, server) =
        (visit.query_value("uri").unwrap_or_default(), visit.query_value("server").unwrap_or_default());
    let query = [("uri", uri.as_str()), ("server", server.as_str())];
    let outcome = visit.get(&target("/v1/resources/read", query)).await?;
    let frame = visit.frame(Section::Servers, "Resource", &[], "").await;
    Ok(visit.render(&ResourcePage { frame, server, uri, outcome }))
}

#[test]
fn commands_are_split_like_in_a_shell() {
    let split = |text: &str| split_words(text).map_err(|error| error.message);
    assert_eq!(split(" npx  -y 'a b' \"c'd\" e''f \"\" ").unwrap(), ["npx", "-y", "a b", "c'd", "ef", ""]);
    assert_eq!(split("a 'b"), Err("a quote in the command is not closed".to_owned()));
}
