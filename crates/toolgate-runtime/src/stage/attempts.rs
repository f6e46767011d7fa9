//! Attempts: retries a call as often as is safe, within one deadline.
//!
//! A request that was not sent can always be retried. A request that may have reached the server is retried only if the
//! tool is idempotent; otherwise the caller gets an error with an unknown outcome. The circuit breaker is part of the
//! server connection: a server that is down fails at once.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use toolgate_types::call::ToolCode;
use toolgate_types::{CallError, ErrorCode, ExecutionState, Stage};
use toolgate_upstream::builtin::BuiltinError;
use toolgate_upstream::invoke::InvokeError;
use toolgate_upstream::openapi::{ApiError, SendError};
use toolgate_upstream::script::ScriptError;
use toolgate_upstream::{
    Forwarded, LinkError, OutageKind, RequestError, RpcError, ServerUnavailable, with_jitter,
};

use super::content::quote;

/// Attempts after the first.
const MAX_RETRIES: u32 = 3;
/// Delay before the first retry. Each later delay doubles; all have up to 50 % jitter.
const BASE_BACKOFF: Duration = Duration::from_millis(100);

/// Returns true if the server cannot have received the request.
fn was_not_sent(failure: &InvokeError) -> bool {
    matches!(
        failure,
        InvokeError::Unavailable(_)
            | InvokeError::Script(ScriptError::Unusable { .. })
            | InvokeError::Request(RequestError::Link(
                LinkError::Unreachable(_)
                    | LinkError::Blocked { .. }
                    | LinkError::SessionLost { .. }
                    | LinkError::LoginRequired(_)
                    | LinkError::LoginFailed(_)
                    | LinkError::Status { status: 401 | 403 | 404 | 429, .. }
            ))
            | InvokeError::Api(
                ApiError::Encode(_)
                    | ApiError::Header(_)
                    | ApiError::Send(SendError::Blocked(_) | SendError::Unreachable(_))
                    | ApiError::Status { status: 401 | 403 | 429, .. }
            )
    )
}

/// Returns true if another attempt may succeed.
fn is_retryable(failure: &InvokeError) -> bool {
    match failure {
        // The connector has retried already, and reports when to try again.
        InvokeError::Unavailable(_) | InvokeError::Builtin(_) => false,
        InvokeError::Ended(_) | InvokeError::Script(ScriptError::Died(_)) => true,
        InvokeError::Script(_) => false,
        InvokeError::Api(ApiError::Send(error)) => {
            matches!(error, SendError::Unreachable(_) | SendError::Broken(_))
        }
        // A server that sends `Retry-After` must not be called again before.
        InvokeError::Api(ApiError::Status { status, retry_after, .. }) => {
            matches!(status, 502..=504) && retry_after.is_none()
        }
        InvokeError::Api(_) => false,
        InvokeError::Request(RequestError::Link(LinkError::Status { status, retry_after, .. })) => {
            *status >= 500 && retry_after.is_none()
        }
        InvokeError::Request(RequestError::Link(error)) => {
            matches!(
                error,
                LinkError::Unreachable(_)
                    | LinkError::SessionLost { .. }
                    | LinkError::Io(_)
                    | LinkError::Closed
                    | LinkError::IdleTimeout
            )
        }
        InvokeError::Request(_) => false,
    }
}

/// Reasons why all attempts failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    TimedOut,
    /// The last attempt failed.
    Failed(InvokeError),
}

/// Deadline of a call. The time that the client's user needs to answer the server's questions does not count.
#[derive(Clone, Copy)]
pub(crate) struct CallDeadline<'a> {
    pub(crate) at: Instant,
    pub(crate) forwarded: &'a Forwarded,
}

impl CallDeadline<'_> {
    fn now(&self) -> Instant {
        self.at + self.forwarded.user_wait()
    }
}

/// Retries until success, a final error, or the deadline. Returns the number of attempts as well.
pub(crate) async fn with_retries<T, F: Future<Output = Result<T, InvokeError>>>(
    idempotent: bool,
    deadline: CallDeadline<'_>,
    mut attempt: impl FnMut() -> F,
) -> (Result<T, AttemptError>, u32) {
    let mut tried = 0;
    let all = async {
        loop {
            tried += 1;
            let failure = match attempt().await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let safe = idempotent || was_not_sent(&failure);
            if !safe || !is_retryable(&failure) || tried > MAX_RETRIES {
                return Err(AttemptError::Failed(failure));
            }
            tracing::debug!(%failure, tried, "retrying");
            sleep(with_jitter(BASE_BACKOFF * (1 << (tried - 1)))).await;
        }
    };
    let outcome = {
        let mut all = pin!(all);
        loop {
            // The deadline moves while the user answers questions.
            let end = deadline.now();
            match timeout_at(end, &mut all).await {
                Ok(outcome) => break outcome,
                Err(_) if deadline.now() > end => {}
                Err(_) => break Err(AttemptError::TimedOut),
            }
        }
    };
    (outcome, tried)
}

impl AttemptError {
    /// The error for the caller. `upstream_name` names the server or tool.
    pub(crate) fn into_call_error(self, upstream_name: &str, timeout: Duration) -> CallError {
        let error = |code, message: String| CallError::new(code, Stage::Invoke, message);
        let failure = match self {
            Self::TimedOut | Self::Failed(InvokeError::Request(RequestError::TimedOut(_))) => {
                return error(ErrorCode::Timeout, format!("{upstream_name}: no answer within {timeout:?}"))
                    .with_hint("raise `timeout` of the tool to allow more time")
                    .with_outcome(ExecutionState::Unknown);
            }
            Self::Failed(failure) => failure,
        };
        match failure {
            InvokeError::Unavailable(unavailable) => unavailable_call_error(&unavailable),
            InvokeError::Builtin(BuiltinError { code, message, hint, retry_after, is_permanent }) => {
                let outcome = if is_permanent { ExecutionState::Finished } else { builtin_outcome(code) };
                let mut error = error(code, message).with_outcome(outcome);
                (error.hint, error.retry_after) = (hint, retry_after);
                error
            }
            InvokeError::Script(failure) => script_call_error(failure),
            InvokeError::Api(failure) => api_call_error(failure, upstream_name),
            InvokeError::Ended(how) => {
                error(ErrorCode::ProviderFailure, format!("{upstream_name} ended before it answered: {how}"))
                    .with_outcome(ExecutionState::Unknown)
            }
            InvokeError::Request(why) => request_call_error(&why, upstream_name),
        }
    }
}

fn unavailable_call_error(unavailable: &ServerUnavailable) -> CallError {
    let (code, retry_after) = match unavailable.kind {
        OutageKind::Unreachable => (ErrorCode::ServiceUnavailable, Some(Duration::from_secs(1))),
        OutageKind::Unauthorized => (ErrorCode::Unauthorized, None),
        OutageKind::RateLimited(wait) => (ErrorCode::RateLimited, wait),
        OutageKind::Busy => (ErrorCode::Overloaded, Some(Duration::from_secs(1))),
    };
    let mut error = CallError::new(code, Stage::Invoke, unavailable.to_string());
    error.hint = unavailable.hint.as_deref().map(str::to_owned);
    error.retry_after = retry_after;
    error
}

/// The outcome of a failed built-in tool. Built-in tools report the first group before they do anything.
fn builtin_outcome(code: ErrorCode) -> ExecutionState {
    match code {
        ErrorCode::InvalidArguments
        | ErrorCode::Unauthorized
        | ErrorCode::RateLimited
        | ErrorCode::Overloaded
        | ErrorCode::ServiceUnavailable
        | ErrorCode::StorageUnavailable => ExecutionState::NotStarted,
        ErrorCode::Timeout => ExecutionState::Unknown,
        _ => ExecutionState::Finished,
    }
}

fn request_call_error(why: &RequestError, upstream_name: &str) -> CallError {
    use ExecutionState::{Finished, NotStarted, Unknown};
    let (code, outcome) = match why {
        // The server has processed the request and rejected it.
        RequestError::Rpc(error) if names_unknown_tool(error) => (ErrorCode::ToolNotFound, NotStarted),
        RequestError::Rpc(error) if error.code == RpcError::INVALID_PARAMS => {
            (ErrorCode::InvalidArguments, Finished)
        }
        RequestError::Rpc(_) => (ErrorCode::ProviderFailure, Finished),
        RequestError::Link(LinkError::TooLarge(_)) => (ErrorCode::OutputTooLarge, Unknown),
        RequestError::Link(error) => match (OutageKind::from(error), error) {
            (OutageKind::Unauthorized, _) => (ErrorCode::Unauthorized, NotStarted),
            (OutageKind::RateLimited(_), _) => (ErrorCode::RateLimited, NotStarted),
            // Without a session, 404 means that there is no MCP endpoint, and so no such tool.
            (_, LinkError::Status { status: 404, .. }) => (ErrorCode::ToolNotFound, NotStarted),
            (_, LinkError::Blocked { .. }) => (ErrorCode::Unauthorized, NotStarted),
            (_, LinkError::Unreachable(_) | LinkError::SessionLost { .. }) => {
                (ErrorCode::ServiceUnavailable, NotStarted)
            }
            (_, LinkError::Status { status: 503, .. }) => (ErrorCode::ServiceUnavailable, Unknown),
            (_, LinkError::Status { status: 400..=499, .. }) => (ErrorCode::ProviderFailure, Finished),
            _ => (ErrorCode::ProviderFailure, Unknown),
        },
        // The server answered, but not with a valid result.
        RequestError::InvalidResponse(_) => (ErrorCode::InvalidOutput, Finished),
        RequestError::TimedOut(_) | RequestError::Unanswered(_) | RequestError::Malformed { .. } => {
            (ErrorCode::ProviderFailure, Unknown)
        }
    };
    let message = format!("{upstream_name}: {}", quote(&why.to_string()));
    let mut error = CallError::new(code, Stage::Invoke, message).with_outcome(outcome);
    match why {
        RequestError::Link(LinkError::Status { status: 401 | 403, .. }) => {
            error.hint = Some("check `headers` of the server: it rejects the credential".to_owned());
        }
        RequestError::Link(LinkError::Status { retry_after, .. }) => error.retry_after = *retry_after,
        _ => {}
    }
    error
}

/// Returns true if a JSON-RPC error says that the server has no such tool. The protocol uses the code of invalid
/// arguments for this, so the message has to tell.
fn names_unknown_tool(error: &RpcError) -> bool {
    let message = error.message.to_ascii_lowercase();
    match error.code {
        RpcError::METHOD_NOT_FOUND => true,
        RpcError::INVALID_PARAMS => {
            message.contains("unknown tool")
                || (message.contains("tool") && message.contains("not found"))
                || message.contains("no such tool")
        }
        _ => false,
    }
}

fn api_call_error(failure: ApiError, upstream_name: &str) -> CallError {
    let (code, outcome) = match &failure {
        ApiError::Encode(_) => (ErrorCode::InvalidArguments, ExecutionState::NotStarted),
        ApiError::Header(_) => (ErrorCode::ToolExecutionError, ExecutionState::NotStarted),
        ApiError::Send(SendError::Blocked(_)) => (ErrorCode::Unauthorized, ExecutionState::NotStarted),
        ApiError::Send(SendError::Unreachable(_)) => {
            (ErrorCode::ServiceUnavailable, ExecutionState::NotStarted)
        }
        ApiError::Send(SendError::Broken(_)) => (ErrorCode::ProviderFailure, ExecutionState::Unknown),
        ApiError::Send(SendError::TooLarge(_)) => (ErrorCode::OutputTooLarge, ExecutionState::Unknown),
        ApiError::Send(SendError::Redirect(_)) => (ErrorCode::ProviderFailure, ExecutionState::Finished),
        ApiError::Status { status: 401 | 403, .. } => (ErrorCode::Unauthorized, ExecutionState::NotStarted),
        ApiError::Status { status: 429, .. } => (ErrorCode::RateLimited, ExecutionState::NotStarted),
        ApiError::Status { status: 503, .. } => (ErrorCode::ServiceUnavailable, ExecutionState::Unknown),
        ApiError::Status { status: 500.., .. } => (ErrorCode::ToolExecutionError, ExecutionState::Unknown),
        ApiError::Status { .. } => (ErrorCode::ToolExecutionError, ExecutionState::Finished),
        ApiError::Unreadable(_) => (ErrorCode::InvalidOutput, ExecutionState::Finished),
    };
    let hint = match &failure {
        ApiError::Send(SendError::Blocked(_)) => Some("add its network to `allow_networks` of the API"),
        ApiError::Send(SendError::TooLarge(_)) => Some("raise `max_output` in `toolbox`"),
        ApiError::Send(SendError::Redirect(_)) => {
            Some("set `base_url` of the API to the URL after the redirect")
        }
        ApiError::Status { status: 401 | 403, .. } => Some("check `auth` and `headers` of the API"),
        _ => None,
    };
    let message = match &failure {
        ApiError::Encode(_) => failure.to_string(),
        _ => format!("{upstream_name}: {}", quote(&failure.to_string())),
    };
    let mut error = CallError::new(code, Stage::Invoke, message).with_outcome(outcome);
    error.hint = hint.map(str::to_owned);
    if let ApiError::Status { retry_after, .. } = failure {
        error.retry_after = retry_after;
    }
    error
}

fn script_call_error(mut failure: ScriptError) -> CallError {
    let (code, outcome) = match failure {
        ScriptError::Unusable { .. } => (ErrorCode::ToolUnusable, ExecutionState::NotStarted),
        ScriptError::Failed { .. } => (ErrorCode::ToolExecutionError, ExecutionState::Finished),
        ScriptError::WrongArgument(_) => (ErrorCode::InvalidArguments, ExecutionState::NotStarted),
        ScriptError::Died(_) => (ErrorCode::ToolExecutionError, ExecutionState::Unknown),
        ScriptError::TooLarge { .. } => (ErrorCode::OutputTooLarge, ExecutionState::Unknown),
    };
    let mut error = CallError::new(code, Stage::Invoke, failure.to_string()).with_outcome(outcome);
    error.hint = failure.hint().map(str::to_owned);
    error.tool_code = failure.take_code().map(|code| Box::new(ToolCode(code)));
    match failure.take_cause() {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn tried(idempotent: bool, failure: impl Fn() -> InvokeError) -> (ErrorCode, ExecutionState, u32) {
        let forwarded = Forwarded::default();
        let deadline = CallDeadline { at: Instant::now() + Duration::from_secs(60), forwarded: &forwarded };
        let (outcome, tried) = with_retries(idempotent, deadline, async || Err::<(), _>(failure())).await;
        let error = outcome.unwrap_err().into_call_error("it", Duration::ZERO);
        (error.code, error.outcome, tried)
    }

    fn link(error: LinkError) -> InvokeError {
        InvokeError::Request(RequestError::Link(error))
    }

    #[tokio::test(start_paused = true)]
    async fn retries_only_safe_failures() {
        use ErrorCode::{ProviderFailure, ServiceUnavailable};
        let closed = || InvokeError::Ended("it exited with code 3".to_owned());
        assert_eq!(tried(false, closed).await, (ProviderFailure, ExecutionState::Unknown, 1));
        assert_eq!(tried(true, closed).await, (ProviderFailure, ExecutionState::Unknown, 4));
        let died = || InvokeError::Script(ScriptError::Died("it was killed".to_owned()));
        assert_eq!(tried(false, died).await, (ErrorCode::ToolExecutionError, ExecutionState::Unknown, 1));
        assert_eq!(tried(true, died).await, (ErrorCode::ToolExecutionError, ExecutionState::Unknown, 4));
        let missing = || {
            let (message, hint, cause) = ("it is not there".to_owned(), None, None);
            InvokeError::Script(ScriptError::Unusable { message, hint, cause })
        };
        assert_eq!(tried(true, missing).await, (ErrorCode::ToolUnusable, ExecutionState::NotStarted, 1));
        let unreachable = || link(LinkError::Unreachable("refused".to_owned()));
        assert_eq!(tried(false, unreachable).await, (ServiceUnavailable, ExecutionState::NotStarted, 4));
        let status = |status, seconds: Option<u64>| {
            move || {
                let retry_after = seconds.map(Duration::from_secs);
                InvokeError::Api(ApiError::Status { status, reason: "", excerpt: String::new(), retry_after })
            }
        };
        assert_eq!(
            tried(true, status(502, None)).await,
            (ErrorCode::ToolExecutionError, ExecutionState::Unknown, 4)
        );
        assert_eq!(
            tried(false, status(502, None)).await,
            (ErrorCode::ToolExecutionError, ExecutionState::Unknown, 1)
        );
        assert_eq!(tried(true, status(503, Some(9))).await, (ServiceUnavailable, ExecutionState::Unknown, 1));
        assert_eq!(
            tried(true, status(429, None)).await,
            (ErrorCode::RateLimited, ExecutionState::NotStarted, 1)
        );
        assert_eq!(
            tried(true, status(404, None)).await,
            (ErrorCode::ToolExecutionError, ExecutionState::Finished, 1)
        );
        let broken = || InvokeError::Api(ApiError::Send(SendError::Broken("reset".to_owned())));
        assert_eq!(tried(true, broken).await, (ProviderFailure, ExecutionState::Unknown, 4));
        assert_eq!(tried(false, broken).await, (ProviderFailure, ExecutionState::Unknown, 1));
        let refused = || link(LinkError::Redirect(None));
        assert_eq!(tried(true, refused).await, (ProviderFailure, ExecutionState::Unknown, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn retries_within_one_deadline() {
        let count = Cell::new(0);
        let forwarded = Forwarded::default();
        let deadline = CallDeadline { at: Instant::now() + Duration::from_secs(60), forwarded: &forwarded };
        let second = async || {
            count.set(count.get() + 1);
            if count.get() < 2 { Err(link(LinkError::Closed)) } else { Ok(7) }
        };
        let (outcome, tried) = with_retries(true, deadline, second).await;
        assert_eq!((outcome.unwrap(), tried), (7, 2));
        let start = Instant::now();
        let never = async || std::future::pending::<Result<(), InvokeError>>().await;
        let (outcome, _) = with_retries(
            true,
            CallDeadline { at: start + Duration::from_secs(5), forwarded: &forwarded },
            never,
        )
        .await;
        assert!(matches!(outcome, Err(AttemptError::TimedOut)));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }
}
