//! `testkit bench sessions`: holds many idle clients until stdin ends.
//!
//! Keys: `port=`, `path=`, `key=`, `count=`, and `kind=`: `legacy` clients make the handshake and listen to the stream
//! of their session; `modern` ones make one call and keep their connection open.

use serde_json::json;
use tokio::io::AsyncReadExt;

use super::wire::{Connection, RequestTarget};
use super::{BenchOptions, print_line};

pub(super) async fn run(keys: &BenchOptions) -> Result<(), String> {
    let (target, count) = (RequestTarget::from_options(keys)?, keys.number("count", 1_000)?);
    let legacy = match keys.text("kind")? {
        "legacy" => true,
        "modern" => false,
        other => return Err(format!("`kind={other}` is neither `legacy` nor `modern`")),
    };
    let mut open = Vec::new();
    for number in 0..count {
        let mut connection = Connection::open(target.port).await?;
        if legacy {
            listen(&target, &mut connection).await?;
        } else {
            let call = target.call(number, "small", &json!({ "query": "something" }));
            connection.exchange(&call, &mut Vec::new()).await?;
        }
        open.push(connection);
    }
    print_line(&json!({ "open": open.len() }).to_string())?;
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await.map_err(|error| error.to_string())?;
    Ok(())
}

/// Makes the handshake and opens the stream of the session, on the same connection.
async fn listen(target: &RequestTarget, connection: &mut Connection) -> Result<(), String> {
    let lines = connection.handshake(target).await?;
    let head = connection.begin(&target.get(&lines)).await?;
    match head.status {
        200 => Ok(()),
        status => Err(format!("status {status} instead of a stream")),
    }
}
