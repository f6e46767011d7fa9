//! The keys that sign MCP session ids, kept in `.toolgate/sessions.json` so that sessions survive a restart.
//!
//! Several gateways may use one folder: each reads and changes the file under a lock. Invariant: only the owner can read
//! the file, and a key signs new ids for thirty days at most.

use std::fs::Permissions;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};
use toolgate_mcp::server::SessionKeys;
use toolgate_state::{FileAccess, StateDir};

use crate::project::StateFolder;

/// Name of the file, and its maximum size.
const FILE: &str = "sessions.json";
const MAX_BYTES: u64 = 4 << 10;
/// Lifetime of a key, in hours. The key before it still verifies ids.
const ROTATION_HOURS: i64 = 30 * 24;

/// Contents of the file: keys in hexadecimal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    current: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    /// Creation of the current key.
    created: Timestamp,
}

impl KeyFile {
    fn new(keys: &SessionKeys, created: Timestamp) -> Self {
        Self { current: to_hex(&keys.current), previous: keys.previous.as_ref().map(to_hex), created }
    }

    /// Returns the keys; `None` if one is malformed.
    fn keys(&self) -> Option<SessionKeys> {
        let previous = match &self.previous {
            Some(previous) => Some(from_hex(previous)?),
            None => None,
        };
        Some(SessionKeys { current: from_hex(&self.current)?, previous })
    }
}

/// Reads the keys of a project. Creates them if there are none, and rotates them if they are old.
///
/// # Errors
/// If the file cannot be read or written.
pub(crate) fn load(state: &StateFolder, now: Timestamp) -> io::Result<SessionKeys> {
    let folder = StateDir::create(state.path())?;
    let mut file = folder.open_file(FILE, FileAccess::Create)?;
    file.file().lock()?;
    // A copy from a backup may be readable by others.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let mut text = String::new();
    // A file that is not ours to understand is replaced: its sessions end.
    let _ = (&mut file).take(MAX_BYTES).read_to_string(&mut text);
    let stored: Option<KeyFile> = serde_json::from_str(&text).ok();
    let keys = match stored.and_then(|stored| Some((stored.keys()?, stored.created))) {
        Some((keys, created)) if !is_old(created, now) => return Ok(keys),
        Some((keys, _)) => keys.rotated(),
        None => SessionKeys::random(),
    };
    let text = serde_json::to_vec(&KeyFile::new(&keys, now))?;
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(&text)?;
    file.sync_all()?;
    Ok(keys)
}

/// Returns true if a key has to be replaced.
pub(crate) fn is_old(created: Timestamp, now: Timestamp) -> bool {
    created.checked_add(ROTATION_HOURS.hours()).is_ok_and(|due| due <= now)
}

fn to_hex(key: &[u8; SessionKeys::BYTES]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; SessionKeys::BYTES]> {
    let mut key = [0; SessionKeys::BYTES];
    if text.len() != 2 * key.len() || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_private_and_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::of(folder.path());
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let day = |number: i64| start.checked_add((24 * number).hours()).unwrap();
        let first = load(&state, start).unwrap();
        let same = load(&state, day(29)).unwrap();
        assert_eq!((same.current, same.previous), (first.current, None));
        let second = load(&state, day(30)).unwrap();
        assert_ne!(second.current, first.current);
        assert_eq!(second.previous, Some(first.current));
        let path = state.path().join(FILE);
        fs_err::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(load(&state, day(31)).unwrap().current, second.current, "the rotation was stored");
        assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let third = load(&state, day(61)).unwrap();
        assert_eq!(third.previous, Some(second.current));
        for damaged in ["", "{", r#"{"current":"ff","created":"2026-01-01T00:00:00Z"}"#] {
            fs_err::write(&path, damaged).unwrap();
            let new = load(&state, day(62)).unwrap();
            assert!(new.current != third.current && new.previous.is_none(), "{damaged}");
        }
    }
}
