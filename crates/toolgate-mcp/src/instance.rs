//! The identity of a gateway on the wire: with it, a gateway recognises itself among its own servers, even behind a proxy
//! or a bridge.
//!
//! Invariant: the identity is that of the process, and nothing but the comparison depends on it.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::value::RawValue;

/// Member of `_meta` in the result of the handshake.
pub(crate) const MEMBER: &str = "toolgate/gateway";

/// The identity of this process.
pub(crate) fn id() -> &'static str {
    static ID: LazyLock<String> = LazyLock::new(|| format!("{:032x}", fastrand::u128(..)));
    &ID
}

/// Returns true if the `_meta` of a handshake is that of a gateway in this process.
pub(crate) fn is_own(meta: Option<&RawValue>) -> bool {
    let members: Option<HashMap<&str, &RawValue>> =
        meta.and_then(|meta| serde_json::from_str(meta.get()).ok());
    let id_of =
        |members: HashMap<&str, &RawValue>| serde_json::from_str::<String>(members.get(MEMBER)?.get()).ok();
    members.and_then(id_of).is_some_and(|found| found == id())
}
