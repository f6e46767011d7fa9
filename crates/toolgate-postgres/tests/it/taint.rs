//! Taint is seen at every replica as soon as it is stored.

use std::time::Duration;

use toolgate_store::cluster::TaintStore;

use crate::postgres::shared_server;
use crate::replicas::start;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taint_belongs_to_one_session_of_one_caller() {
    let database = shared_server().create_database();
    let (one, two) = (start(&database, "a"), start(&database, "b"));
    let day = Duration::from_secs(86_400);
    for round in 0..50 {
        let session = format!("s{round}");
        one.insert("ann", Some(&session), day).await.unwrap();
        assert!(two.contains("ann", Some(&session)).await.unwrap());
        assert!(!two.contains("bob", Some(&session)).await.unwrap());
    }
    assert!(!two.contains("ann", Some("other")).await.unwrap() && !two.contains("ann", None).await.unwrap());
    one.insert("ann", Some("*"), day).await.unwrap();
    assert!(two.contains("ann", Some("other")).await.unwrap() && two.contains("ann", None).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_a_session_is_tainted_for_a_time() {
    let database = shared_server().create_database();
    let one = start(&database, "a");
    one.insert("ann", None, Duration::from_millis(300)).await.unwrap();
    assert!(one.contains("ann", None).await.unwrap());
    tokio::time::sleep(Duration::from_millis(350)).await;
    assert!(!one.contains("ann", None).await.unwrap());
    one.insert("ann", None, Duration::from_secs(60)).await.unwrap();
    one.insert("ann", None, Duration::from_millis(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(one.contains("ann", None).await.unwrap(), "a later end stays");
}
