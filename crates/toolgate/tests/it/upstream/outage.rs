//! An outage of a server, seen by a long-lived process.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use toolgate_config::Environment;
use toolgate_upstream::connect::ConnectionLimits;
use toolgate_upstream::{ClientFeatures, LoginOptions, NoResponder, Server};
use tracing_subscriber::layer::{self, Layer, SubscriberExt};

use crate::support::program::HANG_TIMEOUT;
use crate::support::test_server::{TestServer, project};

#[test]
#[expect(clippy::disallowed_methods, reason = "the outage is real, and so is its time")]
fn an_outage_gets_four_attempts_and_then_probes() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.expect("a port is free").port();
    let program = project(json!({ "gone": { "url": format!("http://127.0.0.1:{port}/mcp") } }));
    let config = toolgate_config::load(&program.project, None, &Environment::default()).config;
    let spec = config.expect("the project is good").servers.remove(0);
    let attempts = Attempts::default();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(attempts.clone()));
    tokio.block_on(async {
        let server = Server::new(
            spec,
            ConnectionLimits::default(),
            &LoginOptions::default(),
            ClientFeatures::Responder(Arc::new(NoResponder)),
        );
        // An attempt is in progress; a request must not cause a fifth one.
        tokio::task::yield_now().await;
        let error = server.connection().await.map(drop).expect_err("the port is closed").to_string();
        assert!(error.contains("MCP server `gone` is not available: cannot connect to"), "{error}");
        let times = attempts.times();
        let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        assert_eq!(gaps.len(), 3, "one attempt and three more: {gaps:?}");
        for (gap, pause) in gaps.iter().zip([500, 1_000, 2_000]) {
            // A busy machine makes the backoff longer, never shorter.
            assert!((pause / 2..pause * 3 / 2 + 10_000).contains(gap), "{gaps:?}");
        }
        let mut fastest = Duration::MAX;
        // A busy machine may delay one of them, not all.
        for _ in 0..5 {
            let again = Instant::now();
            assert!(server.connection().await.is_err());
            fastest = fastest.min(again.elapsed());
        }
        assert!(fastest <= Duration::from_millis(200), "{fastest:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(
            attempts.times().len(),
            4,
            "a request during the outage fails at once and causes no attempt"
        );

        let kit = TestServer::start(&format!("good port={port}"));
        let back = Instant::now();
        while server.connection().await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(back.elapsed() < HANG_TIMEOUT, "{:?}", back.elapsed());
        assert!(kit.count("request") > 0);
        server.stop().await;
    });
}

/// Times of failed connection attempts, from the log.
#[derive(Clone, Default)]
struct Attempts(Arc<Mutex<Vec<Instant>>>);

impl Attempts {
    fn times(&self) -> Vec<Instant> {
        self.0.lock().expect("the lock is not poisoned").clone()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Attempts {
    #[expect(clippy::disallowed_methods, reason = "the outage is real, and so is its time")]
    fn on_event(&self, event: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        if event.metadata().fields().field("attempt").is_some() {
            self.0.lock().expect("the lock is not poisoned").push(Instant::now());
        }
    }
}
