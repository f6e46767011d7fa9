//! The agent: the real executable with real tools and a scripted model.

mod agent_yaml;
mod chat_screen;
mod code_mode;
mod exposure_costs;
mod http_runs;
mod planner;
mod questions;
mod runs;
mod scenarios;
mod terminal;

use std::io::{Read as _, Write as _};

use serde_json::{Value as Json, json};

pub(crate) use crate::scripted::ScriptedModel;
use crate::support::gateway::{Gateway, request};
use crate::support::program::{Program, RunOutput};

/// API key of the model; it must not appear in any output or file.
pub(crate) const KEY: &str = "sk-the-key-of-a-model-0123456789";

impl ScriptedModel {
    /// Returns the bodies of the requests it received.
    pub(crate) fn seen(&self) -> Vec<Json> {
        self.requests().into_iter().map(|mut request| request["body"].take()).collect()
    }

    /// Returns the configuration of the model.
    pub(crate) fn model(&self) -> Json {
        json!({ "provider": "openai", "name": "scripted", "key": KEY, "url": format!("http://127.0.0.1:{}/v1", self.port) })
    }
}

/// Creates a project with this model and more keys.
pub(crate) fn project(model: &ScriptedModel, more: &Json) -> Program {
    let mut config = json!({ "name": "helper", "agent": { "model": model.model() } });
    for (key, value) in more.as_object().into_iter().flatten() {
        for (inner, value) in value.as_object().into_iter().flatten() {
            config[key][inner] = value.clone();
        }
    }
    Program::new(&[("toolgate.yaml", &config.to_string())])
}

pub(crate) fn call(id: &str, name: &str, arguments: Json) -> Json {
    json!({ "id": id, "name": name, "arguments": arguments })
}

/// Returns the events of a run.
pub(crate) fn events(run: &RunOutput) -> Vec<Json> {
    run.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no event: {run}")))
        .collect()
}

/// Returns the results of the tools, in order.
pub(crate) fn results(run: &RunOutput) -> Vec<String> {
    assert_eq!(run.code, 0, "{run}");
    let results = events(run).into_iter().filter(|event| event["event"] == "result");
    results.map(|event| event["text"].as_str().unwrap_or_default().to_owned()).collect()
}

pub(crate) fn run(program: &Program, task: &str) -> RunOutput {
    program.run_list(&["run", "--json", task])
}

/// Starts a run over HTTP and reads the response to its end.
pub(crate) fn stream(gateway: &Gateway, key: &str, task: &Json) -> String {
    let key = format!("X-API-Key: {key}");
    let request = request("POST /v1/runs", &[&key, "Content-Type: application/json"], &task.to_string());
    let mut connection = gateway.connect();
    connection.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it ends");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.replace("\r\n", "\n")
}
