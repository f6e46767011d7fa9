//! A model of somebody else, spoken to in its protocol.
//!
//! Invariant: a request that failed for a reason that passes is made again, and no other; whoever listens hears that
//! what came before does not count.

use std::time::Duration;

use futures_util::future::BoxFuture;
use toolgate_types::Secret;
use toolgate_types::agent::{ModelProvider, ModelSpec, Prices};
use url::Url;

use super::client::{Client, Post, pause};
use super::{Draft, Heard, Message, Model, ModelError, ModelErrorKind, Reply, Request, Usage};
use super::{anthropic, gemini, names, openai};

/// A model behind an address.
pub struct Remote {
    spec: ModelSpec,
    base: Url,
    client: Client,
}

impl Remote {
    /// The way to a model. Nothing is sent yet.
    ///
    /// # Errors
    /// When there is no way, or the model wants a key and has none.
    pub fn new(spec: ModelSpec) -> Result<Self, ModelError> {
        let label = spec.provider.label();
        if let (None, Some(variable)) = (&spec.key, spec.provider.key_variable())
            && spec.provider.place() == Some(spec.url.expose())
        {
            let message = format!("the model `{}` of `{label}` needs a key", spec.name);
            return Err(ModelError::new(ModelErrorKind::Unauthorized, message)
                .hint(format!("set `{variable}`, in the environment or in `.env`, or write `model.key`")));
        }
        let base = Url::parse(spec.url.expose()).map_err(|error| {
            ModelError::new(
                ModelErrorKind::Unreachable,
                format!("the address of `{label}` cannot be used: {error}"),
            )
        })?;
        let client = Client::new(&base, spec.key.as_ref(), format!("the model `{}`", spec.name))?;
        Ok(Self { spec, base, client })
    }

    async fn attempt(
        &self,
        request: &Request,
        heard: &mut (dyn FnMut(Heard) + Send),
    ) -> Result<Reply, ModelError> {
        let post = self.post(request)?;
        let sent = post.body.len();
        let response = self.client.send(post).await?;
        let mut draft = Draft::default();
        let streams = response
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("text/event-stream")));
        let client = &self.client;
        let received = if streams {
            let take = |event| match self.spec.provider {
                ModelProvider::Anthropic => anthropic::event(&event, &mut draft, client, heard),
                ModelProvider::Gemini => gemini::piece(&event, &mut draft, client, heard),
                _ => openai::piece(&event, &mut draft, client, heard),
            };
            let size = client.events(response, take).await?;
            if draft.stop.is_none() {
                return Err(client.broken_off());
            }
            size
        } else {
            let (answer, size) = client.whole(response).await?;
            match self.spec.provider {
                ModelProvider::Anthropic => anthropic::whole(&answer, &mut draft, client, heard)?,
                ModelProvider::Gemini => drop(gemini::piece(&answer, &mut draft, client, heard)?),
                _ => openai::whole(&answer, &mut draft, client, heard)?,
            }
            size
        };
        let known = || request.tools.iter().map(|tool| tool.name.as_str()).chain(called(&request.messages));
        Ok(draft.finish(|said| names::meant(said, known()), Usage::reckon(sent, received)))
    }

    fn post(&self, request: &Request) -> Result<Post, ModelError> {
        let spec = &self.spec;
        let key = spec.key.as_ref().map(Secret::expose);
        let (path, headers, body) = match spec.provider {
            ModelProvider::Anthropic => {
                let headers = key.map(|key| ("x-api-key", Secret::new(key)));
                let version = ("anthropic-version", Secret::new("2023-06-01"));
                let headers = headers.into_iter().chain([version]).collect();
                ("v1/messages".to_owned(), headers, anthropic::body(spec, request))
            }
            ModelProvider::Gemini => {
                let headers = key.map(|key| ("x-goog-api-key", Secret::new(key))).into_iter().collect();
                let method = if spec.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
                (format!("v1beta/models/{}:{method}", spec.name), headers, gemini::body(spec, request))
            }
            ModelProvider::Azure => {
                let headers = key.map(|key| ("api-key", Secret::new(key))).into_iter().collect();
                let bare = matches!(self.base.path(), "" | "/");
                let path = if bare { "openai/v1/chat/completions" } else { "chat/completions" };
                (path.to_owned(), headers, openai::body(spec, request))
            }
            ModelProvider::Openai | ModelProvider::Ollama => {
                let bearer = key.map(|key| ("authorization", Secret::new(format!("Bearer {key}"))));
                ("chat/completions".to_owned(), bearer.into_iter().collect(), openai::body(spec, request))
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
        Ok(Post { url, headers, body })
    }
}

/// The names of tools that were called before.
fn called(messages: &[Message]) -> impl Iterator<Item = &str> {
    messages.iter().flat_map(|message| match message {
        Message::Assistant { calls, .. } => calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(),
        _ => Vec::new(),
    })
}

impl Model for Remote {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn reply<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Heard) + Send),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let within = self.spec.timeout.get();
            let mut attempt = 0;
            loop {
                let error = match tokio::time::timeout(within, self.attempt(request, heard)).await {
                    Ok(Ok(reply)) => return Ok(reply),
                    Ok(Err(error)) => error,
                    Err(_) => self.client.late(within),
                };
                let Some(wait) = pause(&error, attempt, self.spec.retries) else { return Err(error) };
                heard(Heard::Again(format!("{error}; again in {}", seconds(wait))));
                tokio::time::sleep(wait).await;
                attempt += 1;
            }
        })
    }

    fn most_result(&self) -> usize {
        self.spec.max_result
    }

    fn prices(&self) -> Option<Prices> {
        self.spec.prices
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
