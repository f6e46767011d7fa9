//! The examples hold, and the tool does what it should.

use say_hello::{Output, Params, tools};
use toolgate_sdk::testing::{Harness, check_examples};

#[tokio::test]
async fn every_example_holds() {
    check_examples(|| tools().expect("the tools keep the contract")).await;
}

#[tokio::test]
async fn a_call() {
    let harness = Harness::new(tools().expect("the tools keep the contract"));
    let called = harness.call("say-hello", Params { text: "ünï".to_owned() }).await;
    assert_eq!(called.data::<Output>().length, 3);
}
