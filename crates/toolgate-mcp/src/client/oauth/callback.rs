//! Loopback listener for the OAuth redirect.
//!
//! Any process on the machine can connect. Invariant: only a request with the state of this login ends the wait;
//! everything else is rejected and the wait continues.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Url;

const CALLBACK_PATH: &str = "/callback";
/// Limits of one request.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent connections; browsers open some speculatively.
const MAX_CONNECTIONS: usize = 32;

/// Listener for one redirect.
pub(super) struct CallbackListener {
    listener: TcpListener,
    port: u16,
}

/// Response of an authorization server, in the query of its redirect.
#[derive(Clone, PartialEq, Eq)]
pub struct CallbackResponse {
    /// `iss` parameter.
    pub(super) issuer: Option<String>,
    /// Authorization code, or the error.
    pub(super) outcome: Result<String, String>,
}

/// The code is a credential until it is used.
impl std::fmt::Debug for CallbackResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallbackResponse").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// A response, and the login that it is for.
#[derive(Debug)]
pub struct CallbackQuery {
    /// `state` parameter.
    pub state: String,
    /// `None` if it contains neither a code nor an error.
    pub response: Option<CallbackResponse>,
}

impl CallbackQuery {
    /// Parses the query of a redirect.
    pub fn parse(query: &str) -> Self {
        let pairs = || url::form_urlencoded::parse(query.as_bytes());
        let parameter =
            |name: &str| pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        let outcome = match (parameter("code"), parameter("error")) {
            (Some(code), None) => Some(Ok(code)),
            (_, Some(error)) => {
                let more = parameter("error_description").map(|text| format!(": {text}")).unwrap_or_default();
                Some(Err(format!("{error}{more}")))
            }
            (None, None) => None,
        };
        let issuer = parameter("iss");
        let response = outcome.map(|outcome| CallbackResponse { issuer, outcome });
        Self { state: parameter("state").unwrap_or_default(), response }
    }
}

impl CallbackListener {
    pub(super) async fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{CALLBACK_PATH}", self.port)
    }

    /// Waits for the redirect with this state; `None` on timeout.
    pub(super) async fn wait(
        self,
        state: &str,
        time_limit: Duration,
    ) -> io::Result<Option<CallbackResponse>> {
        let end = sleep(time_limit);
        tokio::pin!(end);
        let mut connections: JoinSet<Option<CallbackResponse>> = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut end => return Ok(None),
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    let (stream, state) = (accepted?.0, state.to_owned());
                    connections.spawn(async move {
                        timeout(REQUEST_TIMEOUT, serve(stream, &state)).await.ok()?.ok()?
                    });
                }
                Some(served) = connections.join_next() => {
                    if let Ok(Some(response)) = served {
                        return Ok(Some(response));
                    }
                }
            }
        }
    }
}

/// Handles one connection.
async fn serve(mut stream: TcpStream, state: &str) -> io::Result<Option<CallbackResponse>> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        let length = stream.read(&mut chunk).await?;
        if length == 0 || request.len() + length > MAX_REQUEST_BYTES {
            return Ok(None);
        }
        request.extend_from_slice(&chunk[..length]);
    }
    let response = parse_request(&request, state);
    let (status, text) = match &response {
        Ok(CallbackResponse { outcome: Ok(_), .. }) => {
            ("200 OK", "Login complete. You can close this window and return to the terminal.")
        }
        Ok(CallbackResponse { outcome: Err(_), .. }) => {
            ("200 OK", "The login was rejected. See the terminal for details.")
        }
        Err(error) => *error,
    };
    let body = format!("<!doctype html><meta charset=utf-8><title>Toolgate</title><p>{text}\n");
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {length}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(response.ok())
}

type ErrorReply = (&'static str, &'static str);

/// Parses a request; the error is the status and text of the response.
fn parse_request(request: &[u8], state: &str) -> Result<CallbackResponse, ErrorReply> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target) = (parts.next(), parts.next().and_then(|target| std::str::from_utf8(target).ok()));
    if method != Some(b"GET".as_slice()) {
        return Err(("405 Method Not Allowed", "Only GET is supported."));
    }
    let base = Url::parse("http://127.0.0.1").expect("a valid URL");
    let url = target.and_then(|target| base.join(target).ok()).filter(|url| url.path() == CALLBACK_PATH);
    let Some(url) = url else { return Err(("404 Not Found", "Not found.")) };
    let query = CallbackQuery::parse(url.query().unwrap_or_default());
    if query.state != state {
        return Err(("400 Bad Request", "This response does not belong to the current login."));
    }
    query.response.ok_or(("400 Bad Request", "The parameter `code` is missing."))
}
