//! Attempts: one call, tried as often as is safe, within one deadline.
//!
//! A request that was not sent may be sent again. One that may have reached the server is sent again only
//! where doing it twice is as good as doing it once; for any other tool the outcome is then unknown, and
//! that is what the caller is told. The breaker is the server's own: one that is down refuses at once.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use toolgate_types::{CallError, ErrorCode, Outcome, Stage};
use toolgate_upstream::builtin::Fault;
use toolgate_upstream::invoke::InvokeError;
use toolgate_upstream::openapi::{ApiError, SendError};
use toolgate_upstream::script::ScriptError;
use toolgate_upstream::{Along, LinkError, RequestError};

use super::content::quoted;

/// Attempts beyond the first.
const RETRIES: u32 = 3;
/// The pause before the first of them; each later one is twice as long, with up to half more or less.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the server cannot have seen the request.
fn was_not_sent(failure: &InvokeError) -> bool {
    matches!(
        failure,
        InvokeError::Unavailable(_)
            | InvokeError::Script(ScriptError::Unusable { .. })
            | InvokeError::Request(RequestError::Link(LinkError::Unreachable(_)))
            | InvokeError::Api(
                ApiError::Unsendable(_)
                    | ApiError::Header(_)
                    | ApiError::Send(SendError::Blocked(_) | SendError::Unreachable(_))
                    | ApiError::Status { status: 429, .. }
            )
    )
}

/// Whether another attempt has a chance.
fn may_pass(failure: &InvokeError) -> bool {
    match failure {
        // The connector has tried already, and says when it may be asked again.
        InvokeError::Unavailable(_) | InvokeError::Builtin(_) => false,
        InvokeError::Ended(_) | InvokeError::Script(ScriptError::Died(_)) => true,
        InvokeError::Script(_) => false,
        InvokeError::Api(ApiError::Send(error)) => {
            matches!(error, SendError::Unreachable(_) | SendError::Broken(_))
        }
        // Who says how long to wait is not asked again before.
        InvokeError::Api(ApiError::Status { status, retry_after, .. }) => {
            matches!(status, 502..=504) && retry_after.is_none()
        }
        InvokeError::Api(_) => false,
        InvokeError::Request(RequestError::Link(LinkError::Status { status, .. })) => *status >= 500,
        InvokeError::Request(RequestError::Link(error)) => {
            matches!(
                error,
                LinkError::Unreachable(_) | LinkError::Io(_) | LinkError::Closed | LinkError::Silent
            )
        }
        InvokeError::Request(_) => false,
    }
}

/// Why all attempts came to nothing.
#[derive(Debug)]
pub(crate) enum GaveUp {
    /// The deadline came.
    Late,
    /// The last of them failed.
    Failed(InvokeError),
}

/// When a call must have ended: the time that its client thinks about questions is not the server's.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a> {
    pub(crate) at: Instant,
    pub(crate) along: &'a Along,
}

impl Deadline<'_> {
    fn now(&self) -> Instant {
        self.at + self.along.thought()
    }
}

/// Tries until it works, must not be tried again, or the deadline has come. Says how often it was tried.
pub(crate) async fn attempts<T, F: Future<Output = Result<T, InvokeError>>>(
    idempotent: bool,
    deadline: Deadline<'_>,
    mut attempt: impl FnMut() -> F,
) -> (Result<T, GaveUp>, u32) {
    let mut tried = 0;
    let all = async {
        loop {
            tried += 1;
            let failure = match attempt().await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let safe = idempotent || was_not_sent(&failure);
            if !safe || !may_pass(&failure) || tried > RETRIES {
                return Err(GaveUp::Failed(failure));
            }
            tracing::debug!(%failure, tried, "trying again");
            sleep(PAUSE.mul_f64(f64::from(1 << (tried - 1)) * (0.5 + fastrand::f64()))).await;
        }
    };
    let outcome = {
        let mut all = pin!(all);
        loop {
            let end = deadline.now();
            match timeout_at(end, &mut all).await {
                Ok(outcome) => break outcome,
                Err(_) if deadline.now() > end => {}
                Err(_) => break Err(GaveUp::Late),
            }
        }
    };
    (outcome, tried)
}

impl GaveUp {
    /// What the caller is told: `whom` was asked, and had so much time.
    pub(crate) fn told(self, whom: &str, within: Duration) -> CallError {
        let error = |code, message: String| CallError::new(code, Stage::Invoke, message);
        let failure = match self {
            Self::Late | Self::Failed(InvokeError::Request(RequestError::TimedOut(_))) => {
                return error(ErrorCode::Timeout, format!("{whom}: no answer within {within:?}"))
                    .hint("a larger `timeout` of the tool gives it more time")
                    .with_outcome(Outcome::Unknown);
            }
            Self::Failed(failure) => failure,
        };
        let not_sent = was_not_sent(&failure);
        match failure {
            InvokeError::Unavailable(unavailable) => {
                let mut error = error(ErrorCode::ServiceUnavailable, unavailable.to_string());
                error.hint = unavailable.hint.as_deref().map(str::to_owned);
                error.retry_after = Some(Duration::from_secs(1));
                error
            }
            InvokeError::Builtin(Fault { code, message, hint, retry_after }) => {
                let mut error = error(code, message).with_outcome(Outcome::Finished);
                (error.hint, error.retry_after) = (hint, retry_after);
                error
            }
            InvokeError::Script(failure) => told_of_script(failure),
            InvokeError::Api(failure) => told_of_api(failure, whom),
            InvokeError::Ended(how) => {
                error(ErrorCode::ProviderFailure, format!("{whom} ended before it answered: {how}"))
                    .with_outcome(Outcome::Unknown)
            }
            InvokeError::Request(why) => {
                let (code, outcome) = match &why {
                    // The server has looked at it and said no.
                    RequestError::Rpc(error) if error.code == INVALID_PARAMS => {
                        (ErrorCode::InvalidArguments, Outcome::Finished)
                    }
                    RequestError::Rpc(_) => (ErrorCode::ProviderFailure, Outcome::Finished),
                    RequestError::Link(LinkError::TooLarge(_)) => {
                        (ErrorCode::OutputTooLarge, Outcome::Unknown)
                    }
                    // It has answered, with something that is no result.
                    RequestError::Refused(_) => (ErrorCode::InvalidOutput, Outcome::Finished),
                    _ if not_sent => (ErrorCode::ServiceUnavailable, Outcome::NotStarted),
                    _ => (ErrorCode::ProviderFailure, Outcome::Unknown),
                };
                error(code, format!("{whom}: {}", quoted(&why.to_string()))).with_outcome(outcome)
            }
        }
    }
}

fn told_of_api(failure: ApiError, whom: &str) -> CallError {
    let (code, outcome) = match &failure {
        ApiError::Unsendable(_) => (ErrorCode::InvalidArguments, Outcome::NotStarted),
        ApiError::Header(_) => (ErrorCode::ToolExecutionError, Outcome::NotStarted),
        ApiError::Send(SendError::Blocked(_)) => (ErrorCode::Unauthorized, Outcome::NotStarted),
        ApiError::Send(SendError::Unreachable(_)) => (ErrorCode::ServiceUnavailable, Outcome::NotStarted),
        ApiError::Send(SendError::Broken(_)) => (ErrorCode::ProviderFailure, Outcome::Unknown),
        ApiError::Send(SendError::TooLarge(_)) => (ErrorCode::OutputTooLarge, Outcome::Unknown),
        ApiError::Send(SendError::Redirect(_)) => (ErrorCode::ProviderFailure, Outcome::Finished),
        ApiError::Status { status: 429, .. } => (ErrorCode::RateLimited, Outcome::NotStarted),
        ApiError::Status { status: 503, .. } => (ErrorCode::ServiceUnavailable, Outcome::Unknown),
        ApiError::Status { status: 500.., .. } => (ErrorCode::ToolExecutionError, Outcome::Unknown),
        ApiError::Status { .. } => (ErrorCode::ToolExecutionError, Outcome::Finished),
        ApiError::Unreadable(_) => (ErrorCode::InvalidOutput, Outcome::Finished),
    };
    let hint = match &failure {
        ApiError::Send(SendError::Blocked(_)) => {
            Some("`allow_networks` of the API names networks that it may be in")
        }
        ApiError::Send(SendError::TooLarge(_)) => {
            Some("`max_output` in `toolbox` says how much a result may be")
        }
        ApiError::Send(SendError::Redirect(_)) => Some("`base_url` of the API says where it is"),
        ApiError::Status { status: 401 | 403, .. } => {
            Some("`auth` or `headers` of the API say as whom it is called")
        }
        _ => None,
    };
    let message = match &failure {
        ApiError::Unsendable(_) => failure.to_string(),
        _ => format!("{whom}: {}", quoted(&failure.to_string())),
    };
    let mut error = CallError::new(code, Stage::Invoke, message).with_outcome(outcome);
    error.hint = hint.map(str::to_owned);
    if let ApiError::Status { retry_after, .. } = failure {
        error.retry_after = retry_after;
    }
    error
}

fn told_of_script(mut failure: ScriptError) -> CallError {
    let (code, outcome) = match failure {
        ScriptError::Unusable { .. } => (ErrorCode::ToolExecutionError, Outcome::NotStarted),
        ScriptError::Failed { .. } => (ErrorCode::ToolExecutionError, Outcome::Finished),
        ScriptError::Died(_) => (ErrorCode::ToolExecutionError, Outcome::Unknown),
        ScriptError::TooLarge { .. } => (ErrorCode::OutputTooLarge, Outcome::Unknown),
    };
    let mut error = CallError::new(code, Stage::Invoke, failure.to_string()).with_outcome(outcome);
    error.hint = failure.hint().map(str::to_owned);
    match failure.take_cause() {
        Some(cause) => error.because(cause),
        None => error,
    }
}

/// The code with which a server refuses arguments.
const INVALID_PARAMS: i64 = -32602;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn tried(idempotent: bool, failure: impl Fn() -> InvokeError) -> (ErrorCode, Outcome, u32) {
        let along = Along::default();
        let deadline = Deadline { at: Instant::now() + Duration::from_secs(60), along: &along };
        let (outcome, tried) = attempts(idempotent, deadline, async || Err::<(), _>(failure())).await;
        let error = outcome.unwrap_err().told("it", Duration::ZERO);
        (error.code, error.outcome, tried)
    }

    fn link(error: LinkError) -> InvokeError {
        InvokeError::Request(RequestError::Link(error))
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_be_repeated_is_repeated() {
        use ErrorCode::{ProviderFailure, ServiceUnavailable};
        let closed = || InvokeError::Ended("it exited with code 3".to_owned());
        assert_eq!(tried(false, closed).await, (ProviderFailure, Outcome::Unknown, 1));
        assert_eq!(tried(true, closed).await, (ProviderFailure, Outcome::Unknown, 4));
        let died = || InvokeError::Script(ScriptError::Died("it was killed".to_owned()));
        assert_eq!(tried(false, died).await, (ErrorCode::ToolExecutionError, Outcome::Unknown, 1));
        assert_eq!(tried(true, died).await, (ErrorCode::ToolExecutionError, Outcome::Unknown, 4));
        let missing = || {
            let (message, hint, cause) = ("it is not there".to_owned(), None, None);
            InvokeError::Script(ScriptError::Unusable { message, hint, cause })
        };
        assert_eq!(tried(true, missing).await, (ErrorCode::ToolExecutionError, Outcome::NotStarted, 1));
        let unreachable = || link(LinkError::Unreachable("refused".to_owned()));
        assert_eq!(tried(false, unreachable).await, (ServiceUnavailable, Outcome::NotStarted, 4));
        let status = |status, seconds: Option<u64>| {
            move || {
                let retry_after = seconds.map(Duration::from_secs);
                InvokeError::Api(ApiError::Status { status, reason: "", said: String::new(), retry_after })
            }
        };
        assert_eq!(
            tried(true, status(502, None)).await,
            (ErrorCode::ToolExecutionError, Outcome::Unknown, 4)
        );
        assert_eq!(
            tried(false, status(502, None)).await,
            (ErrorCode::ToolExecutionError, Outcome::Unknown, 1)
        );
        assert_eq!(tried(true, status(503, Some(9))).await, (ServiceUnavailable, Outcome::Unknown, 1));
        assert_eq!(tried(true, status(429, None)).await, (ErrorCode::RateLimited, Outcome::NotStarted, 1));
        assert_eq!(
            tried(true, status(404, None)).await,
            (ErrorCode::ToolExecutionError, Outcome::Finished, 1)
        );
        let broken = || InvokeError::Api(ApiError::Send(SendError::Broken("reset".to_owned())));
        assert_eq!(tried(true, broken).await, (ProviderFailure, Outcome::Unknown, 4));
        assert_eq!(tried(false, broken).await, (ProviderFailure, Outcome::Unknown, 1));
        let refused = || link(LinkError::Redirect(None));
        assert_eq!(tried(true, refused).await, (ProviderFailure, Outcome::Unknown, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_attempt_may_work_and_the_deadline_is_one_for_all() {
        let count = Cell::new(0);
        let along = Along::default();
        let deadline = Deadline { at: Instant::now() + Duration::from_secs(60), along: &along };
        let second = async || {
            count.set(count.get() + 1);
            if count.get() < 2 { Err(link(LinkError::Closed)) } else { Ok(7) }
        };
        let (outcome, tried) = attempts(true, deadline, second).await;
        assert_eq!((outcome.unwrap(), tried), (7, 2));
        let start = Instant::now();
        let never = async || std::future::pending::<Result<(), InvokeError>>().await;
        let (outcome, _) =
            attempts(true, Deadline { at: start + Duration::from_secs(5), along: &along }, never).await;
        assert!(matches!(outcome, Err(GaveUp::Late)));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }
}
