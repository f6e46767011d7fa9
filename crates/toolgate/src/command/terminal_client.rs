//! The person at the terminal, as the client of a call: sees its progress, and answers questions of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use toolgate_redact::printable;
use toolgate_runtime::questions::{QuestionKind, Responder};
use toolgate_upstream::{ClientFeatures, DownstreamClient, RawJson, RpcError, UserWait};

use crate::output::{DIM, Output};

/// Client numbers of commands. Clients of the MCP endpoint count from 1, runs of agents from 2⁶³.
static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1 << 62);
/// Moves to the start of the line and erases it.
const ERASE_LINE: &str = "\r\u{1b}[K";
/// Longest line of progress.
const MAX_LINE_CHARS: usize = 76;

/// The client of one call.
pub(crate) struct TerminalClient {
    identity: u64,
    /// Name of the server, or of the caller for other tools.
    asks: String,
    capabilities: Json,
    responder: Arc<dyn Responder>,
    user_wait: Arc<UserWait>,
    progress: Arc<ProgressLine>,
}

/// The line with the progress of a call, redrawn in place. It exists only on a terminal.
struct ProgressLine {
    output: Output,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    is_shown: bool,
    /// The call has ended: later progress is not shown.
    is_over: bool,
}

/// Ends the progress line when dropped, so that the result can be printed.
pub(crate) struct ProgressGuard(Arc<ProgressLine>);

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.0.erase();
        self.0.state.lock().is_over = true;
    }
}

impl ProgressLine {
    fn is_wanted(&self) -> bool {
        self.output.terminal().is_stderr && !self.output.json
    }

    fn show(&self, params: &Json) {
        let text = progress_text(params);
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        self.output.control(ERASE_LINE);
        self.output.message(&format!("{DIM}{text}{DIM:#}"));
        state.is_shown = true;
    }

    /// Erases the line, so that other output can follow.
    fn erase(&self) {
        if std::mem::take(&mut self.state.lock().is_shown) {
            self.output.control(ERASE_LINE);
        }
    }
}

/// Formats a progress notification on one line.
fn progress_text(params: &Json) -> String {
    let number = |key: &str| params[key].as_f64();
    let amount = match (number("progress"), number("total")) {
        (Some(done), Some(total)) if total > 0.0 => {
            format!("{:.0} % ({done}/{total})", (done / total * 100.0).clamp(0.0, 100.0))
        }
        (Some(done), _) => format!("{done}"),
        _ => "working".to_owned(),
    };
    let message = params["message"].as_str().map(printable).filter(|message| !message.is_empty());
    let text = message.map_or(amount.clone(), |message| format!("{amount}  {message}"));
    text.chars().take(MAX_LINE_CHARS).collect()
}

impl TerminalClient {
    pub(crate) fn new(asks: &str, responder: Arc<dyn Responder>, output: &Output) -> Self {
        let can_ask = responder.can_ask(QuestionKind::Elicitation);
        let capabilities = if can_ask { json!({ "elicitation": {} }) } else { json!({}) };
        Self {
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
            asks: asks.to_owned(),
            capabilities,
            responder,
            user_wait: Arc::default(),
            progress: Arc::new(ProgressLine { output: output.clone(), state: Mutex::default() }),
        }
    }

    /// Returns true if the person can see progress.
    pub(crate) fn shows_progress(&self) -> bool {
        self.progress.is_wanted()
    }

    /// Returns the guard to drop when the call has ended.
    pub(crate) fn progress_guard(&self) -> ProgressGuard {
        ProgressGuard(Arc::clone(&self.progress))
    }
}

impl DownstreamClient for TerminalClient {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn capabilities(&self) -> &Json {
        &self.capabilities
    }

    fn wants_progress(&self) -> bool {
        self.progress.is_wanted()
    }

    fn log_level(&self) -> Option<Box<str>> {
        None
    }

    fn notify(&self, method: &str, params: Option<&RawJson>) {
        if method == "notifications/progress"
            && self.progress.is_wanted()
            && let Some(params) = params.and_then(|params| params.parse::<Json>().ok())
        {
            self.progress.show(&params);
        }
    }

    fn ask(&self, method: &str, params: Option<RawJson>) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        self.progress.erase();
        let features = ClientFeatures::Responder(Arc::clone(&self.responder));
        let (wait, server, method) = (Arc::clone(&self.user_wait), self.asks.clone(), method.to_owned());
        Box::pin(async move {
            let _open = wait.start();
            features.answer(server, method, params).await
        })
    }

    fn accepts_input_requests(&self) -> bool {
        false
    }

    fn user_wait(&self) -> Duration {
        self.user_wait.total()
    }
}

#[test]
fn progress_fits_on_one_line() {
    for (params, expected) in [
        (json!({ "progress": 3, "total": 12, "message": "reading\nfiles" }), "25 % (3/12)  reading files"),
        (json!({ "progress": 7 }), "7"),
        (json!({ "progress": 2, "total": 0 }), "2"),
        (json!({ "progress": 9, "total": 3 }), "100 % (9/3)"),
        (json!({}), "working"),
    ] {
        assert_eq!(progress_text(&params), expected, "{params}");
    }
    assert_eq!(progress_text(&json!({ "progress": 1, "message": "x".repeat(200) })).chars().count(), 76);
}
