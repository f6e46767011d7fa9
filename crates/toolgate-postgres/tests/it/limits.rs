//! Limits that hold for all replicas together.

use std::num::NonZeroU32;
use std::time::Duration;

use toolgate_postgres::Database;
use toolgate_store::cluster::{TokenLease, TokenLeases, TokenRequest};
use toolgate_types::HumanDuration;
use toolgate_types::tool::RateLimit;

use crate::postgres::shared_server;
use crate::replicas::start;

fn limit(most: u32, seconds: u64) -> RateLimit {
    RateLimit { max_calls: NonZeroU32::new(most).unwrap(), window: HumanDuration::from_secs(seconds) }
}

async fn take(database: &Database, key: &str, want: u32, limit: RateLimit) -> TokenLease {
    database.take(TokenRequest { key, want, limit, hold: Duration::ZERO }).await.unwrap()
}

/// The limit of a row is never exceeded, at any replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_race_exceeds_a_limit() {
    let database = shared_server().create_database();
    let replicas = ["a", "b", "c"].map(|name| start(&database, name));
    for round in 0..20 {
        let key = format!("tool/{round}");
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..24 {
            let (replica, key) = (replicas[number % 3].clone(), key.clone());
            calls.spawn(async move { take(&replica, &key, 1, limit(5, 60)).await });
        }
        let granted = calls.join_all().await;
        let count = granted.iter().filter(|lease| matches!(lease, TokenLease::Granted(_))).count();
        assert_eq!(count, 5, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_come_back_after_the_window() {
    let database = shared_server().create_database();
    let one = start(&database, "a");
    assert_eq!(take(&one, "k", 10, limit(4, 1)).await, TokenLease::Granted(4), "as many as are left");
    let TokenLease::Wait(wait) = take(&one, "k", 1, limit(4, 1)).await else {
        panic!("the limit is reached")
    };
    assert!(wait <= Duration::from_secs(1) && !wait.is_zero(), "{wait:?}");
    tokio::time::sleep(wait + Duration::from_millis(50)).await;
    assert_eq!(take(&one, "k", 1, limit(4, 1)).await, TokenLease::Granted(1));
    assert_eq!(take(&one, "other", 1, limit(4, 1)).await, TokenLease::Granted(1), "keys are independent");
    // Tokens that are kept before they are used count for longer.
    let held = TokenRequest { key: "held", want: 4, limit: limit(4, 1), hold: Duration::from_secs(1) };
    assert_eq!(one.take(held).await.unwrap(), TokenLease::Granted(4));
    let TokenLease::Wait(wait) = take(&one, "held", 1, limit(4, 1)).await else { panic!("it is reached") };
    assert!(wait > Duration::from_millis(1_500), "{wait:?}");
}
