//! The other end of the browser's way back: a listener on this machine for one answer.
//!
//! Anyone on the machine can connect. Invariant: only an answer with the state of this login ends
//! the wait; whatever else comes is refused and the wait goes on, to its end.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Url;

const PATH: &str = "/callback";
/// What one request may hold, and how long it may take.
const REQUEST_BYTES: usize = 16 << 10;
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Browsers open a few connections ahead of need.
const CONNECTIONS: usize = 32;

/// A listener for one answer.
pub(super) struct Callback {
    listener: TcpListener,
    port: u16,
}

/// What the authorization server sent with the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) state: String,
    /// Who sent it, where it says so.
    pub(super) issuer: Option<String>,
    /// The code, or what went wrong.
    pub(super) outcome: Result<String, String>,
}

impl Callback {
    pub(super) async fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the answer with this state; `None` when it does not come in time.
    pub(super) async fn wait(self, state: &str, patience: Duration) -> io::Result<Option<Answer>> {
        let end = sleep(patience);
        tokio::pin!(end);
        let mut connections: JoinSet<Option<Answer>> = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut end => return Ok(None),
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => {
                    let (stream, state) = (accepted?.0, state.to_owned());
                    connections.spawn(async move {
                        timeout(REQUEST_TIME, serve(stream, &state)).await.ok()?.ok()?
                    });
                }
                Some(served) = connections.join_next() => {
                    if let Ok(Some(answer)) = served {
                        return Ok(Some(answer));
                    }
                }
            }
        }
    }
}

/// Reads one request and answers it.
async fn serve(mut stream: TcpStream, state: &str) -> io::Result<Option<Answer>> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        let length = stream.read(&mut chunk).await?;
        if length == 0 || request.len() + length > REQUEST_BYTES {
            return Ok(None);
        }
        request.extend_from_slice(&chunk[..length]);
    }
    let answer = read(&request, state);
    let (status, text) = match &answer {
        Ok(Answer { outcome: Ok(_), .. }) => {
            ("200 OK", "You can close this window: Toolgate goes on in the terminal.")
        }
        Ok(Answer { outcome: Err(_), .. }) => {
            ("200 OK", "The login was refused. Toolgate says more in the terminal.")
        }
        Err(refusal) => *refusal,
    };
    let body = format!("<!doctype html><meta charset=utf-8><title>Toolgate</title><p>{text}\n");
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {length}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(answer.ok())
}

type Refusal = (&'static str, &'static str);

/// The answer in a request, or the status with which it is refused.
fn read(request: &[u8], state: &str) -> Result<Answer, Refusal> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next(), words.next().and_then(|target| std::str::from_utf8(target).ok()));
    if method != Some(b"GET".as_slice()) {
        return Err(("405 Method Not Allowed", "Only GET is understood here."));
    }
    let base = Url::parse("http://127.0.0.1").expect("it is a whole address");
    let url = target.and_then(|target| base.join(target).ok()).filter(|url| url.path() == PATH);
    let Some(url) = url else { return Err(("404 Not Found", "There is nothing here.")) };
    let member =
        |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    if member("state").as_deref() != Some(state) {
        return Err(("400 Bad Request", "This is not the login that Toolgate waits for."));
    }
    let outcome = match (member("code"), member("error")) {
        (Some(code), None) => Ok(code),
        (_, Some(error)) => {
            let more = member("error_description").map(|text| format!(": {text}")).unwrap_or_default();
            Err(format!("{error}{more}"))
        }
        (None, None) => return Err(("400 Bad Request", "The code is missing.")),
    };
    Ok(Answer { state: state.to_owned(), issuer: member("iss"), outcome })
}
