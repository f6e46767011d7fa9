//! A connection to a server, as every transport gives it: one queue out, one queue in.
//!
//! The tasks behind it end when the link is dropped. Invariant: both queues are bounded, messages
//! keep their order, and a transport never parses more than it must to find where a message ends.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::oauth::{Demand, LoginError};
use crate::trace::Trace;
use crate::transport::http::Wire;

/// Messages that wait in either queue. A server that does not read fails its own callers only.
pub const QUEUE: usize = 256;

/// A connection.
pub struct Link {
    /// Messages for the server.
    pub outbox: mpsc::Sender<Outgoing>,
    /// Messages from the server, in their order. Ends with [`Incoming::Closed`].
    pub inbox: mpsc::Receiver<Incoming>,
    /// Where whoever asks can do so without the queues.
    pub(crate) wire: Option<Arc<Wire>>,
    /// What moves the bytes; aborted with the link.
    pub tasks: JoinSet<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// A link whose messages all go by its queues.
    pub fn new(outbox: mpsc::Sender<Outgoing>, inbox: mpsc::Receiver<Incoming>, tasks: JoinSet<()>) -> Self {
        Self { outbox, inbox, wire: None, tasks }
    }
}

/// A request of ours.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its id.
    pub id: i64,
    /// Its method, for the headers of the newest revision.
    pub method: Box<str>,
    /// The tool, prompt or resource it names, for the same.
    pub name: Option<Box<str>>,
    /// Headers with the arguments that it mirrors, for the same.
    pub mirrored: Vec<(String, String)>,
    /// The call it belongs to, for the headers of every revision.
    pub trace: Trace,
    /// The message.
    pub bytes: Bytes,
}

/// Something for the server.
#[derive(Debug, Clone)]
pub enum Outgoing {
    /// A request of ours. Transports over HTTP need to know which, to send it on its own.
    Request(Request),
    /// A notification, or an answer of ours.
    Other(Bytes),
    /// Nobody waits for this request any more.
    Cancel(i64),
    /// From now on the server speaks this revision; transports over HTTP say so in a header.
    Revision(crate::Revision),
    /// We are done: end the session on the server where there is one, then answer with
    /// [`Incoming::Closed`]. Dropping the link ends it as well, but without a farewell.
    Close,
}

/// Something from the server.
#[derive(Debug)]
pub enum Incoming {
    /// A message, or a batch.
    Message(Bytes),
    /// The same on the stream of a request of ours, so it is about that request.
    During(i64, Bytes),
    /// Something that is no message, passed over: its start.
    Noise(Bytes),
    /// A request of ours was refused by the transport; the connection goes on.
    Failed(i64, LinkError),
    /// The end.
    Closed(LinkError),
}

/// Why a connection, or a request on it, came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The other side ended it.
    #[error("the server closed the connection")]
    Closed,
    /// It could not be reached: nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// One side does not take the other's certificate, or does not speak TLS.
    #[error("TLS with `{place}` failed: {what}")]
    Tls {
        /// The address.
        place: String,
        /// Why.
        what: String,
        /// The way out, where there is one to name.
        hint: Option<&'static str>,
    },
    /// It broke.
    #[error("{0}")]
    Io(String),
    /// It answered with an HTTP status that is no success.
    #[error("the server answered {status}{}", body.as_deref().map(|body| format!(": {body}")).unwrap_or_default())]
    Status {
        /// The status.
        status: u16,
        /// The start of what it said.
        body: Option<String>,
        /// What it asks for, where it wants a login.
        challenge: Option<String>,
    },
    /// It wants a login, which takes a person.
    #[error("{0}")]
    Login(Demand),
    /// It wants a login, which came to nothing.
    #[error("the login failed")]
    LoginFailed(#[source] Arc<LoginError>),
    /// It sent more than it may.
    #[error("the server sent more than {0} bytes in one message")]
    TooLarge(usize),
    /// It was silent for too long.
    #[error("the server was silent for too long")]
    Silent,
    /// It compressed its answer in a way that we did not offer, or more than once.
    #[error("the server answers in the encoding `{0}`, which it was not offered")]
    Encoding(String),
    /// It sent us elsewhere, which could carry our credentials to somebody else.
    #[error("the server redirects{}, which is not followed", .0.as_deref().map(|to| format!(" to `{to}`")).unwrap_or_default())]
    Redirect(Option<String>),
}
