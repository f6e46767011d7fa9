//! Tests of the examples and of a call.

use say_hello::{Output, Params, tools};
use toolgate_sdk::testing::{Harness, check_examples};

#[tokio::test]
async fn examples_pass() {
    check_examples(|| tools().expect("the tools fulfil the contract")).await;
}

#[tokio::test]
async fn counts_characters() {
    let harness = Harness::new(tools().expect("the tools fulfil the contract"));
    let called = harness.call("say-hello", Params { text: "ünï".to_owned() }).await;
    assert_eq!(called.data::<Output>().length, 3);
}
