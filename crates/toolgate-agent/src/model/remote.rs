//! A model behind an HTTP API.
//!
//! Invariant: a request is retried only after an error that may pass; the observer is notified that the text streamed
//! so far is void.

use std::time::Duration;

use futures_util::future::BoxFuture;
use toolgate_types::Secret;
use toolgate_types::agent::{ModelProvider, ModelSpec, TokenPrices};
use url::Url;

use super::adapt::AdaptedTools;
use super::client::{HttpRequest, ModelClient, backoff};
use super::{
    Message, Model, ModelError, ModelErrorKind, ModelReply, ModelRequest, ReplyBuilder, StreamEvent,
    TokenUsage, ToolSpec,
};
use super::{anthropic, gemini, names, openai};

/// A model behind an HTTP API.
pub struct RemoteModel {
    spec: ModelSpec,
    base: Url,
    client: ModelClient,
}

impl RemoteModel {
    /// Creates the client of a model. Nothing is sent yet.
    ///
    /// # Errors
    /// If the URL is invalid, or the provider requires a key and none is configured.
    pub fn new(spec: ModelSpec) -> Result<Self, ModelError> {
        let label = spec.provider.label();
        if let (None, Some(variable)) = (&spec.key, spec.provider.key_variable())
            && spec.provider.default_url() == Some(spec.url.expose())
        {
            let message = format!("the model `{}` of `{label}` needs a key", spec.name);
            return Err(ModelError::new(ModelErrorKind::Unauthorized, message)
                .with_hint(format!("set `{variable}` in the environment or in `.env`, or set `model.key`")));
        }
        let base = Url::parse(spec.url.expose()).map_err(|error| {
            ModelError::new(
                ModelErrorKind::Unreachable,
                format!("invalid URL of `{label}` in `model.url`: {error}"),
            )
        })?;
        let client = ModelClient::new(&base, spec.key.as_ref(), format!("the model `{}`", spec.name))?;
        Ok(Self { spec, base, client })
    }

    async fn attempt(
        &self,
        request: &ModelRequest,
        tools: &AdaptedTools,
        on_event: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<ModelReply, ModelError> {
        let http_request = self.http_request(request, &tools.specs)?;
        let sent = http_request.body.len();
        let response = self.client.send(http_request).await?;
        let mut reply = ReplyBuilder::default();
        let streams = response
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("text/event-stream")));
        let client = &self.client;
        let received = if streams {
            let take = |event| match self.spec.provider {
                ModelProvider::Anthropic => anthropic::read_event(&event, &mut reply, client, on_event),
                ModelProvider::Gemini => gemini::read_response(&event, &mut reply, client, on_event),
                _ => openai::read_event(&event, &mut reply, client, on_event),
            };
            let size = client.read_events(response, take).await?;
            if reply.stop.is_none() {
                return Err(client.incomplete());
            }
            size
        } else {
            let (answer, size) = client.read_json(response).await?;
            match self.spec.provider {
                ModelProvider::Anthropic => anthropic::read_response(&answer, &mut reply, client, on_event)?,
                ModelProvider::Gemini => drop(gemini::read_response(&answer, &mut reply, client, on_event)?),
                _ => openai::read_response(&answer, &mut reply, client, on_event)?,
            }
            size
        };
        let known =
            || request.tools.iter().map(|tool| tool.name.as_str()).chain(called_tools(&request.messages));
        let reply =
            reply.finish(|name| names::catalog_name(name, known()), TokenUsage::estimate(sent, received));
        Ok(tools.restore(reply))
    }

    fn http_request(&self, request: &ModelRequest, tools: &[ToolSpec]) -> Result<HttpRequest, ModelError> {
        let spec = &self.spec;
        let key = spec.key.as_ref().map(Secret::expose);
        let (path, headers, body) = match spec.provider {
            ModelProvider::Anthropic => {
                let headers = key.map(|key| ("x-api-key", Secret::new(key)));
                let version = ("anthropic-version", Secret::new("2023-06-01"));
                let headers = headers.into_iter().chain([version]).collect();
                ("v1/messages".to_owned(), headers, anthropic::body(spec, request, tools))
            }
            ModelProvider::Gemini => {
                let headers = key.map(|key| ("x-goog-api-key", Secret::new(key))).into_iter().collect();
                let method = if spec.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
                (format!("v1beta/models/{}:{method}", spec.name), headers, gemini::body(spec, request, tools))
            }
            ModelProvider::Azure => {
                let headers = key.map(|key| ("api-key", Secret::new(key))).into_iter().collect();
                let bare = matches!(self.base.path(), "" | "/");
                let path = if bare { "openai/v1/chat/completions" } else { "chat/completions" };
                (path.to_owned(), headers, openai::body(spec, request, tools))
            }
            ModelProvider::Openai | ModelProvider::Ollama => {
                let bearer = key.map(|key| ("authorization", Secret::new(format!("Bearer {key}"))));
                (
                    "chat/completions".to_owned(),
                    bearer.into_iter().collect(),
                    openai::body(spec, request, tools),
                )
            }
        };
        let (path, query) =
            path.split_once('?').map_or((path.as_str(), None), |(path, query)| (path, Some(query)));
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        if query.is_some() {
            url.set_query(query);
        }
        let body = serde_json::to_vec(&body).expect("our own values have a JSON form");
        Ok(HttpRequest { url, headers, body })
    }
}

/// Names of the tools called earlier in the conversation.
fn called_tools(messages: &[Message]) -> impl Iterator<Item = &str> {
    messages.iter().flat_map(|message| match message {
        Message::Assistant { calls, .. } => calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(),
        _ => Vec::new(),
    })
}

impl Model for RemoteModel {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn reply<'a>(
        &'a self,
        request: &'a ModelRequest,
        on_event: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let within = self.spec.timeout.get();
            let tools = AdaptedTools::new(self.spec.provider, &request.tools);
            let mut attempt = 0;
            loop {
                let error = match tokio::time::timeout(within, self.attempt(request, &tools, on_event)).await
                {
                    Ok(Ok(reply)) => return Ok(reply),
                    Ok(Err(error)) => error,
                    Err(_) => self.client.timed_out(within),
                };
                let Some(wait) = backoff(&error, attempt, self.spec.retries) else { return Err(error) };
                on_event(StreamEvent::Retry(format!("{error}; retrying in {}", format_seconds(wait))));
                tokio::time::sleep(wait).await;
                attempt += 1;
            }
        })
    }

    fn max_result_bytes(&self) -> usize {
        self.spec.max_result
    }

    fn prices(&self) -> Option<TokenPrices> {
        self.spec.prices
    }
}

fn format_seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
