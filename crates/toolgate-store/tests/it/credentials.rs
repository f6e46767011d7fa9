//! The contract of every credential store, and the guarantees of the encrypted files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use toolgate_store::credentials::{
    Credential, CredentialError, CredentialId, CredentialKind, CredentialStore, FileCredentials, KeySource,
    MAX_SECRET_BYTES, MemoryCredentials, StoreKey,
};
use toolgate_types::Secret;

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn id(caller: &str, server: &str) -> CredentialId {
    CredentialId { caller: caller.parse().unwrap(), server: server.parse().unwrap() }
}

pub(crate) fn token(secret: &str) -> Credential {
    Credential {
        kind: CredentialKind::Static,
        audience: "https://example.com/mcp".to_owned(),
        stored_at: 1,
        expires_at: Some(2),
        secret: Secret::new(secret),
    }
}

async fn secret_of(store: &dyn CredentialStore, id: &CredentialId) -> Option<String> {
    store.get(id).await.unwrap().map(|credential| credential.secret.expose().to_owned())
}

/// Opens stores that share their contents.
type Opener = Box<dyn Fn() -> Arc<dyn CredentialStore>>;

async fn credentials_are_visible_everywhere(open: Opener) {
    let (one, other) = (open(), open());
    let id = id("ann", "web");
    assert_eq!(secret_of(&*one, &id).await, None);
    one.put(&id, token("a")).await.unwrap();
    assert_eq!(other.get(&id).await.unwrap(), Some(token("a")));
    other.put(&id, token("b")).await.unwrap();
    assert_eq!(secret_of(&*one, &id).await.as_deref(), Some("b"));
    assert!(one.remove(&id).await.unwrap());
    assert!(!one.remove(&id).await.unwrap());
    assert_eq!(secret_of(&*other, &id).await, None);
}

/// Names that would be equal if they were joined, or lead elsewhere if they were paths.
async fn names_never_collide(open: Opener) {
    let store = open();
    let pairs = [
        ("a/b", "c"),
        ("a", "b/c"),
        ("a", "b"),
        ("ab", "c"),
        ("a", "bc"),
        ("..", "x"),
        ("../..", "x"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("A", "b"),
        ("a", "B"),
        ("a", "b β"),
        ("owner", "../owner"),
    ];
    for (at, (caller, server)) in pairs.iter().enumerate() {
        store.put(&id(caller, server), token(&at.to_string())).await.unwrap();
    }
    for (at, (caller, server)) in pairs.iter().enumerate() {
        assert_eq!(secret_of(&*store, &id(caller, server)).await, Some(at.to_string()), "{caller} {server}");
    }
    assert_eq!(store.list().await.unwrap().len(), pairs.len());
}

async fn lists_are_sorted_and_without_secrets(open: Opener) {
    let store = open();
    for (caller, server) in [("bob", "a"), ("ann", "b"), ("ann", "a")] {
        store.put(&id(caller, server), token("s3cret-value")).await.unwrap();
    }
    let list = store.list().await.unwrap();
    let names: Vec<_> = list.iter().map(|info| format!("{} {}", info.caller, info.server)).collect();
    assert_eq!(names, ["ann a", "ann b", "bob a"]);
    let shown = format!("{list:?} {} {:?}", serde_json::to_string(&list).unwrap(), token("s3cret-value"));
    assert!(!shown.contains("s3cret"), "{shown}");
}

async fn large_secrets_are_refused(open: Opener) {
    let store = open();
    let id = id("ann", "web");
    store.put(&id, token(&"\u{1}".repeat(MAX_SECRET_BYTES))).await.unwrap();
    assert_eq!(secret_of(&*store, &id).await.map(|secret| secret.len()), Some(MAX_SECRET_BYTES));
    store.put(&id, token(&"x".repeat(MAX_SECRET_BYTES))).await.unwrap();
    let refused = store.put(&id, token(&"x".repeat(MAX_SECRET_BYTES + 1))).await;
    assert!(matches!(refused, Err(CredentialError::TooLarge)), "{refused:?}");
    assert_eq!(secret_of(&*store, &id).await.map(|secret| secret.len()), Some(MAX_SECRET_BYTES));
}

async fn one_holder_renews(open: Opener) {
    let (one, other) = (open(), open());
    let id = id("ann", "web");
    let held = one.lock(&id).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(50), one.lock(&id)).await;
    assert!(waiting.is_err(), "two hold the lock");
    drop(held);
    assert!(tokio::time::timeout(PATIENCE, other.lock(&id)).await.unwrap().is_some());
}

async fn concurrent_changes_are_whole(open: Opener) {
    let writes = (0..24).map(|at| {
        let store = open();
        async move { store.put(&id("ann", &format!("s{}", at % 4)), token(&at.to_string())).await.unwrap() }
    });
    futures_util::future::join_all(writes).await;
    let store = open();
    for server in 0..4_usize {
        let secret = secret_of(&*store, &id("ann", &format!("s{server}"))).await.unwrap();
        assert_eq!(secret.parse::<usize>().unwrap() % 4, server);
    }
}

macro_rules! credential_contract {
    ($name:ident, $opener:expr, $($rule:ident)*) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $rule() {
                    let folder = tempfile::TempDir::new().unwrap();
                    super::$rule($opener(folder.path())).await;
                }
            )*
        }
    };
    ($name:ident, $opener:expr) => {
        credential_contract!($name, $opener,
            credentials_are_visible_everywhere names_never_collide lists_are_sorted_and_without_secrets
            large_secrets_are_refused one_holder_renews concurrent_changes_are_whole);
    };
}

fn files(folder: &Path) -> Opener {
    let folder = folder.to_owned();
    Box::new(move || Arc::new(open_files(&folder)))
}

fn memory(_: &Path) -> Opener {
    let store = Arc::new(MemoryCredentials::default());
    Box::new(move || Arc::clone(&store) as Arc<dyn CredentialStore>)
}

credential_contract!(encrypted_files, super::files);
credential_contract!(in_memory, super::memory);

/// A store with its key in a folder of its own.
pub(crate) fn open_files(folder: &Path) -> FileCredentials {
    let key = KeySource::DefaultFolder(folder.join("keys"));
    FileCredentials::open(folder.join(".toolgate/credentials"), key).unwrap()
}

/// Every file below a folder, with its contents.
fn contents(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs_err::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs_err::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn files_are_private_and_encrypted() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let store = open_files(folder.path());
    assert!(!folder.path().join("keys").exists(), "opening creates nothing");
    store.put(&id("ann", "web"), token("s3cret-value")).await.unwrap();
    for place in ["keys", ".toolgate/credentials"] {
        for (path, bytes) in contents(&folder.path().join(place)) {
            let mode = fs_err::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("s3cret") && !text.contains("ann"), "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_wrong_key_opens_nothing_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join(".toolgate/credentials");
    let (right, wrong) = (StoreKey::generate(), StoreKey::generate());
    let open = |key: &StoreKey| FileCredentials::open(place.clone(), KeySource::Given(key.clone()));
    open(&right).unwrap().put(&id("ann", "web"), token("a")).await.unwrap();
    let before = contents(&place);
    assert!(matches!(open(&wrong), Err(CredentialError::WrongKey(_))));
    let lost = FileCredentials::open(place.clone(), KeySource::DefaultFolder(folder.path().join("keys")));
    assert!(matches!(lost, Err(CredentialError::MissingKey(_))));
    assert_eq!(contents(&place), before);
    assert_eq!(secret_of(&open(&right).unwrap(), &id("ann", "web")).await.as_deref(), Some("a"));
    // Without its key ring, the store is not taken for an empty one.
    fs_err::remove_file(place.join("ring.json")).unwrap();
    assert!(matches!(open(&right), Err(CredentialError::DamagedRing(_))));
}

/// A file in the place of another one, or with a changed byte, is not accepted.
#[tokio::test]
async fn files_cannot_be_swapped() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join(".toolgate/credentials");
    let store = open_files(folder.path());
    let (ann, bob) = (id("ann", "web"), id("bob", "web"));
    store.put(&ann, token("of ann")).await.unwrap();
    let files = |place: &Path| -> Vec<_> {
        let names = contents(place).into_iter().map(|(path, _)| path);
        names.filter(|path| path.extension().is_some_and(|end| end == "cred")).collect()
    };
    let of_ann = files(&place).remove(0);
    store.put(&bob, token("of bob")).await.unwrap();
    let of_bob = files(&place).into_iter().find(|path| *path != of_ann).unwrap();
    fs_err::copy(&of_ann, &of_bob).unwrap();
    assert!(matches!(store.get(&bob).await, Err(CredentialError::DamagedCredential(_))));
    assert_eq!(secret_of(&store, &ann).await.as_deref(), Some("of ann"));
    assert_eq!(store.list().await.unwrap().len(), 1);
    store.put(&bob, token("again")).await.unwrap();
    assert_eq!(secret_of(&store, &bob).await.as_deref(), Some("again"));
}

#[tokio::test]
async fn a_new_key_replaces_the_old_one() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join(".toolgate/credentials");
    let (old, new) = (StoreKey::generate(), StoreKey::generate());
    let open = |key: &StoreKey| FileCredentials::open(place.clone(), KeySource::Given(key.clone()));
    let store = open(&old).unwrap();
    for caller in ["ann", "bob"] {
        store.put(&id(caller, "web"), token(caller)).await.unwrap();
    }
    let copy = TempDir::new().unwrap();
    for (path, bytes) in contents(&place) {
        fs_err::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    assert!(matches!(store.rekey(None), Err(CredentialError::KeyNotInFile)));
    assert_eq!(store.rekey(Some(new.clone())).unwrap(), 2);
    assert!(matches!(open(&old), Err(CredentialError::WrongKey(_))));
    assert!(matches!(store.get(&id("ann", "web")).await, Err(CredentialError::WrongKey(_))));
    assert_eq!(secret_of(&open(&new).unwrap(), &id("bob", "web")).await.as_deref(), Some("bob"));
    // The old ring and the old key open no new file: the data keys were replaced, too.
    fs_err::copy(copy.path().join("ring.json"), place.join("ring.json")).unwrap();
    let old_ring = open(&old).unwrap();
    assert!(matches!(old_ring.get(&id("ann", "web")).await, Err(CredentialError::DamagedCredential(_))));
}

/// A store that is open sees the new key in its file.
#[tokio::test]
async fn open_stores_follow_a_key_file() {
    let folder = TempDir::new().unwrap();
    let (gateway, command) = (open_files(folder.path()), open_files(folder.path()));
    gateway.put(&id("ann", "web"), token("a")).await.unwrap();
    let key = contents(&folder.path().join("keys"));
    assert_eq!(command.rekey(None).unwrap(), 1);
    assert_ne!(contents(&folder.path().join("keys")), key);
    assert_eq!(secret_of(&gateway, &id("ann", "web")).await.as_deref(), Some("a"));
    gateway.put(&id("ann", "web"), token("b")).await.unwrap();
    assert_eq!(secret_of(&command, &id("ann", "web")).await.as_deref(), Some("b"));
}
