//! A connection to a server, the same for every transport: one outgoing and one incoming queue.
//!
//! The transport tasks end when the link is dropped. Invariant: both queues are bounded, messages keep their
//! order, and a transport parses no more than it needs to find message boundaries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::list_size::PendingLists;
#[cfg(feature = "client")]
use toolgate_json::MemberName;

use crate::message::MethodName;
use crate::network::BlockedAddress;
#[cfg(feature = "client")]
use crate::oauth::{LoginDemand, LoginError};
use crate::trace::TraceContext;
#[cfg(feature = "client")]
use crate::transport::http::HttpChannel;

/// Capacity of each queue. A server that stops reading blocks only its own callers.
pub const QUEUE_CAPACITY: usize = 256;

pub struct Link {
    pub outbox: mpsc::Sender<LinkCommand>,
    /// Messages from the server, in order. The last one is [`LinkEvent::Closed`].
    pub inbox: mpsc::Receiver<LinkEvent>,
    /// HTTP only: lets a request bypass the queues.
    #[cfg(feature = "client")]
    pub(crate) channel: Option<Arc<HttpChannel>>,
    /// List requests in progress. Their responses may be larger than other messages.
    pub(crate) lists: Arc<PendingLists>,
    /// Transport tasks; aborted with the link.
    pub tasks: JoinSet<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// Creates a link on which all messages go through the queues.
    pub fn new(
        outbox: mpsc::Sender<LinkCommand>,
        inbox: mpsc::Receiver<LinkEvent>,
        tasks: JoinSet<()>,
    ) -> Self {
        Self {
            outbox,
            inbox,
            #[cfg(feature = "client")]
            channel: None,
            lists: Arc::default(),
            tasks,
        }
    }
}

/// Request to the server, with the parts of it that HTTP repeats in headers.
#[derive(Debug, Clone)]
pub struct OutgoingRequest {
    pub id: i64,
    /// Sent as `Mcp-Method` in the newest revision.
    pub method: MethodName,
    /// Tool, prompt or resource, sent as `Mcp-Name` in the newest revision.
    pub name: Option<MemberName>,
    /// Headers that mirror arguments, in the newest revision.
    pub mirror_headers: Vec<(String, String)>,
    /// Sent as trace headers in every revision.
    pub trace: TraceContext,
    pub bytes: Bytes,
}

/// Command for a transport.
#[derive(Debug, Clone)]
pub enum LinkCommand {
    /// Sends a request. HTTP transports send each one as its own POST, so they need to tell it apart.
    Request(OutgoingRequest),
    /// Sends a notification or a response.
    Message(Bytes),
    /// Aborts a request whose caller is gone.
    Cancel(i64),
    /// Sets the negotiated revision; HTTP transports send it in a header.
    Revision(crate::Revision),
    /// Ends the session on the server if there is one, then reports [`LinkEvent::Closed`]. Dropping the link
    /// closes the connection too, but leaves the session open on the server.
    Close,
}

/// Event from a transport.
#[derive(Debug)]
pub enum LinkEvent {
    /// Message or batch.
    Message(Bytes),
    /// Message or batch on the response stream of a request, so it belongs to that request.
    StreamMessage(i64, Bytes),
    /// Start of a line or frame that is not a message; the rest was skipped.
    Noise(Bytes),
    /// The transport could not complete a request; the connection stays open.
    Failed(i64, LinkError),
    /// End of the connection.
    Closed(LinkError),
}

/// Failure of a connection or of one request on it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    #[error("the server closed the connection")]
    Closed,
    /// No connection was made, so nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// The address is not allowed, so nothing was sent.
    #[cfg(feature = "client")]
    #[error("cannot connect to `{url}`: {blocked}")]
    Blocked { url: String, blocked: BlockedAddress },
    /// TLS failed: a certificate was rejected, or the peer does not speak TLS.
    #[error("TLS with `{url}` failed: {reason}")]
    Tls { url: String, reason: String, hint: Option<&'static str> },
    #[error("{0}")]
    Io(String),
    #[error("the server answered {status}{}", body.as_deref().map(|body| format!(": {body}")).unwrap_or_default())]
    Status {
        status: u16,
        /// Start of the response body.
        body: Option<String>,
        /// `WWW-Authenticate` header.
        challenge: Option<String>,
        /// `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// The server rejected a request because it no longer knows the session: it was restarted, or the session expired.
    /// The request was not executed.
    #[error("the server answered {status}: it no longer knows the session")]
    SessionLost { status: u16 },
    /// The server requires a login in a browser.
    #[cfg(feature = "client")]
    #[error("{0}")]
    LoginRequired(LoginDemand),
    #[cfg(feature = "client")]
    #[error("the login failed")]
    LoginFailed(#[source] Arc<LoginError>),
    #[error("the server sent more than {0} bytes in one message")]
    TooLarge(usize),
    #[error("the server sent nothing for too long")]
    IdleTimeout,
    /// The response has a content encoding that was not offered, or more than one.
    #[error("the server used content encoding `{0}`, which was not offered")]
    Encoding(String),
    /// Redirects to another origin are not followed: they could carry credentials to another host.
    #[error("the server redirects{}, which is not followed", .0.as_deref().map(|to| format!(" to `{to}`")).unwrap_or_default())]
    Redirect(Option<String>),
}
