//! `testkit bench sessions`: many clients that are there and do nothing, until stdin ends.
//!
//! Keys: `port=`, `path=`, `key=`, `count=`, and `kind=`: `legacy` clients made their handshake and listen to the
//! stream of their session; `modern` ones made one call and keep their connection.

use serde_json::json;
use tokio::io::AsyncReadExt;

use super::wire::{Connection, Target};
use super::{Keys, tell};

pub(super) async fn run(keys: &Keys) -> Result<(), String> {
    let (target, count) = (Target::of(keys)?, keys.number("count", 1_000)?);
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
    tell(&json!({ "open": open.len() }).to_string())?;
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await.map_err(|error| error.to_string())?;
    Ok(())
}

/// The handshake, and then the stream of the session, on the same connection.
async fn listen(target: &Target, connection: &mut Connection) -> Result<(), String> {
    let lines = connection.handshake(target).await?;
    let head = connection.begin(&target.get(&lines)).await?;
    match head.status {
        200 => Ok(()),
        status => Err(format!("status {status} in place of a stream")),
    }
}
