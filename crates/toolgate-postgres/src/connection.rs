//! One connection to the database: reconnects with backoff, and carries the statements of many callers at once.
//!
//! Statements are pipelined, so waiting ones share the connection. Each is a transaction of its own: work in several
//! steps is a function of the schema. Invariant: a statement ends within a bounded time; if it does not, its connection is
//! replaced, and the statement counts as not acknowledged.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};

use crate::database::DatabaseError;
use crate::tls::MakeTls;

/// Time to connect to one host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time to connect to any host, with authentication.
const TOTAL_CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
/// Bounds of the pause between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(1_000);
/// Attempts of a statement that lost against a concurrent one.
const MAX_ATTEMPTS: usize = 5;

/// Parameters of a statement, with their types: a typed statement needs one round trip and no prepared statement.
pub(crate) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// The hosts of the database, with credentials.
#[derive(Clone)]
pub(crate) struct ConnectTarget {
    config: Config,
    tls: MakeTls,
}

impl ConnectTarget {
    /// Reads a connection string. TLS is required unless the string says otherwise, or the database is on this machine.
    pub(crate) fn new(url: &str, application: &str, tls: MakeTls) -> Result<Self, DatabaseError> {
        let invalid = |error: tokio_postgres::Error| {
            // The error of the driver quotes no part of the string.
            DatabaseError::Url(
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
            )
        };
        let mut config: Config = url.parse().map_err(invalid)?;
        let is_local = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
        };
        if config.get_hosts().is_empty() {
            return Err(DatabaseError::Url("it names no host".to_owned()));
        }
        if !url.contains("sslmode") {
            let local = config.get_hosts().iter().all(is_local);
            config.ssl_mode(if local { SslMode::Prefer } else { SslMode::Require });
        }
        if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
            config.ssl_mode(SslMode::Disable);
        }
        config
            .application_name(application)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(Duration::from_secs(5))
            .keepalives_idle(Duration::from_secs(5))
            // A server that was demoted still answers; it must not be used.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self { config, tls })
    }
}

/// A connection that is replaced when it ends.
pub(crate) struct Connection {
    client: ArcSwapOption<Client>,
    /// Set while connected.
    connected: watch::Sender<bool>,
    /// Asks for a new connection.
    replace: Notify,
    last_error: Mutex<Option<String>>,
    statement_timeout: Duration,
}

impl Connection {
    pub(crate) fn new(statement_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            client: ArcSwapOption::empty(),
            connected: watch::Sender::new(false),
            replace: Notify::new(),
            last_error: Mutex::default(),
            statement_timeout,
        })
    }

    /// Connects, and again whenever the connection ends. Calls `on_notice` for each notification.
    pub(crate) async fn run(&self, target: ConnectTarget, listen: bool, on_notice: impl Fn()) -> Infallible {
        let mut pause = FIRST_PAUSE;
        loop {
            match timeout(TOTAL_CONNECT_TIMEOUT, target.config.connect(target.tls.clone())).await {
                Ok(Ok((client, mut connection))) => {
                    pause = FIRST_PAUSE;
                    // It was meant for an earlier connection.
                    let _ = self.replace.notified().now_or_never();
                    *self.last_error.lock() = None;
                    let client = Arc::new(client);
                    self.client.store(Some(Arc::clone(&client)));
                    self.connected.send_replace(true);
                    let messages = async {
                        loop {
                            match poll_fn(|cx| connection.poll_message(cx)).await {
                                Some(Ok(AsyncMessage::Notification(_))) => on_notice(),
                                Some(Ok(_)) => {}
                                Some(Err(error)) => return Some(describe(&error)),
                                None => return None,
                            }
                        }
                    };
                    let listening = async {
                        if listen {
                            // Behind a pooler it may fail or do nothing: then polling is enough.
                            let _ = client.batch_execute("LISTEN toolgate").await;
                        }
                        std::future::pending::<Option<String>>().await
                    };
                    let ended = tokio::select! {
                        ended = messages => ended,
                        ended = listening => ended,
                        () = self.replace.notified() => Some("a statement did not end in time".to_owned()),
                    };
                    self.connected.send_replace(false);
                    self.client.store(None);
                    self.set_error(ended.unwrap_or_else(|| "the connection ended".to_owned()));
                }
                Ok(Err(error)) => self.set_error(describe(&error)),
                Err(_) => self.set_error("no answer in time".to_owned()),
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn set_error(&self, error: String) {
        *self.last_error.lock() = Some(error);
    }

    /// Waits until it is connected, up to a limit.
    pub(crate) async fn wait(&self, limit: Duration) -> Result<(), DatabaseError> {
        let mut connected = self.connected.subscribe();
        let waited = timeout(limit, connected.wait_for(|connected| *connected)).await;
        if waited.is_ok() { Ok(()) } else { Err(self.unavailable()) }
    }

    pub(crate) fn unavailable(&self) -> DatabaseError {
        let error = self.last_error.lock().clone();
        DatabaseError::Unavailable(error.unwrap_or_else(|| "it is not connected".to_owned()))
    }

    pub(crate) fn client(&self) -> Result<Arc<Client>, DatabaseError> {
        self.client.load_full().ok_or_else(|| self.unavailable())
    }

    /// Runs a statement. Statements that lost against a concurrent one are repeated.
    pub(crate) async fn query(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, DatabaseError> {
        let mut attempt = 1;
        loop {
            let client = self.client()?;
            let Ok(ended) = timeout(self.statement_timeout, client.query_typed(sql, parameters)).await else {
                // Its outcome is unknown, and every statement behind it waits too.
                self.replace.notify_one();
                return Err(DatabaseError::Unavailable("a statement did not end in time".to_owned()));
            };
            let error = match ended {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            };
            let Some(code) = error.code() else {
                return Err(DatabaseError::Unavailable(describe(&error)));
            };
            let has_lost =
                [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED].contains(&code);
            if has_lost && attempt < MAX_ATTEMPTS {
                attempt += 1;
                continue;
            }
            return Err(match code.code() {
                CONFLICT => DatabaseError::Conflict,
                // Shutting down, starting up, or demoted: another server may be writable.
                code if code.starts_with("57P") || code == "25006" || code.starts_with("08") => {
                    self.replace.notify_one();
                    DatabaseError::Unavailable(describe(&error))
                }
                // Out of disk, memory or connections.
                code if code.starts_with("53") || code.starts_with("58") => {
                    DatabaseError::Unavailable(describe(&error))
                }
                _ => DatabaseError::Statement(describe(&error)),
            });
        }
    }
}

/// Code that functions of the schema raise if the state is not the expected one.
pub(crate) const CONFLICT: &str = "TG001";

/// Describes an error with its cause. Messages of the server do not quote parameters.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(error), _) => format!("{} ({})", error.message(), error.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
