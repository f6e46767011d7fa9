//! The contract of [`CallerStore`].

use std::time::Duration;

use jiff::Timestamp;
use toolgate_store::callers::{
    CallerStore, ChangeAuthor, FIRST_KEY, KeyError, KeyRecord, KeyRotation, NewCaller, NewKey, OwnerKey,
    parse_expiry,
};
use toolgate_types::{CallerId, KeyHash};

use crate::caller_stores::check;

pub(crate) fn id(id: &str) -> CallerId {
    id.parse().unwrap()
}

pub(crate) fn author(second: i64) -> ChangeAuthor<'static> {
    ChangeAuthor { by: "owner", now: Timestamp::from_second(second).unwrap() }
}

pub(crate) fn caller<'a>(id: &'a CallerId) -> NewCaller<'a> {
    NewCaller { id, permissions: &[], groups: &[], description: Some("Ann"), expires: None }
}

pub(crate) fn names(store: &dyn CallerStore, caller: &CallerId) -> Vec<String> {
    store.read().unwrap().keys_of(caller).map(|key| key.name.clone()).collect()
}

fn is_valid(key: &KeyRecord, second: i64) -> bool {
    key.expires.is_none_or(|expires| expires.as_second() > second)
}

#[test]
fn callers_have_several_keys() {
    check(|store| {
        let ann = &id("ann");
        let (stored, first) = store.add_caller(caller(ann), author(10)).unwrap();
        assert_eq!((stored.created.as_str(), stored.by.as_str()), ("1970-01-01T00:00:10Z", "owner"));
        assert!(matches!(store.add_caller(caller(ann), author(10)), Err(KeyError::Exists(_))));
        let stamp = store.stamp();
        let expires = Some(Timestamp::from_second(100).unwrap());
        let laptop = NewKey { caller: ann, name: "laptop", expires };
        let (record, second) = store.add_key(laptop, author(20)).unwrap();
        assert_ne!(store.stamp(), stamp, "another process sees the change");
        assert_eq!(record.sha256, KeyHash::of(second.expose()));
        assert_ne!(first.expose(), second.expose());
        assert!(is_valid(&record, 99) && !is_valid(&record, 100));
        assert!(matches!(store.add_key(laptop, author(20)), Err(KeyError::KeyExists { .. })));
        assert!(matches!(store.add_key(laptop, author(100)), Err(KeyError::Expired)));
        for name in ["", "a b", "a/b", &"x".repeat(65)] {
            let bad = NewKey { caller: ann, name, expires: None };
            assert!(matches!(store.add_key(bad, author(20)), Err(KeyError::Name(_))), "{name}");
        }
        assert_eq!(names(store, ann), ["default", "laptop"]);
        store.revoke_key(ann, "default").unwrap();
        assert!(matches!(store.revoke_key(ann, "default"), Err(KeyError::NoKey { .. })));
        assert_eq!(names(store, ann), ["laptop"]);
        for number in 0..19 {
            let name = &format!("k{number}");
            store.add_key(NewKey { caller: ann, name, expires: None }, author(20)).unwrap();
        }
        let more = NewKey { caller: ann, name: "more", expires: None };
        assert!(matches!(store.add_key(more, author(20)), Err(KeyError::TooManyKeys(_))));
        assert!(store.remove_caller(ann).unwrap() && !store.remove_caller(ann).unwrap());
        assert_eq!(names(store, ann), [""; 0], "its keys are gone");
    });
}

#[test]
fn keys_are_rotated_with_an_overlap() {
    check(|store| {
        let ci = &id("ci");
        let expires = Some(Timestamp::from_second(100).unwrap());
        let (_, old) = store.add_key(NewKey { caller: ci, name: "main", expires }, author(0)).unwrap();
        let rotate = |second: i64, overlap: u64| {
            let overlap = Duration::from_secs(overlap);
            store.rotate_key(KeyRotation { caller: ci, name: "main", expires: None, overlap }, author(second))
        };
        let rotated = rotate(50, 10).unwrap();
        assert_eq!(rotated.new.expires.unwrap().as_second(), 150, "as long as the old one");
        let kept = rotated.old.unwrap();
        assert_eq!((kept.sha256, kept.name.as_str()), (KeyHash::of(old.expose()), "main.old"));
        assert!(is_valid(&kept, 59) && !is_valid(&kept, 60));
        let again = rotate(55, 1_000).unwrap();
        assert_eq!(names(store, ci), ["main", "main.old"], "the key of the first rotation is revoked");
        assert_eq!(again.old.unwrap().expires.unwrap().as_second(), 150, "never longer than it was meant to");
        assert!(rotate(56, 0).unwrap().old.is_none());
        assert_eq!(names(store, ci), ["main"]);
        let unknown = KeyRotation { caller: ci, name: "x", expires: None, overlap: Duration::ZERO };
        assert!(matches!(store.rotate_key(unknown, author(0)), Err(KeyError::NoKey { .. })));
    });
}

/// An owner key that no one has seen is replaced; one that was used is not.
#[test]
fn the_first_key_is_never_lost() {
    check(|store| {
        let now = |second| Timestamp::from_second(second).unwrap();
        let OwnerKey { hash, generated } = store.owner_key(None, now(1)).unwrap();
        assert_eq!(hash, KeyHash::of(generated.unwrap().expose()));
        let second = store.owner_key(None, now(2)).unwrap();
        assert!(second.hash != hash && second.generated.is_some(), "it was never used");
        assert_eq!(names(store, &id("owner")), [FIRST_KEY]);
        store.record_uses(&[(second.hash, now(3))]).unwrap();
        let third = store.owner_key(None, now(4)).unwrap();
        assert!(third.hash == second.hash && third.generated.is_none());
        let given = store.owner_key(Some("one of my own"), now(5)).unwrap();
        assert!(given.hash == KeyHash::of("one of my own") && given.generated.is_none());
        for bad in ["", "changeme", "admin", "secret-api-key"] {
            assert!(matches!(store.owner_key(Some(bad), now(5)), Err(KeyError::WellKnown)), "{bad}");
        }
        // A revoked owner key is followed by a new one.
        store.revoke_key(&id("owner"), FIRST_KEY).unwrap();
        assert!(store.owner_key(None, now(6)).unwrap().generated.is_some());
    });
}

#[test]
fn keys_of_a_removed_caller_do_not_come_back() {
    check(|store| {
        let ann = &id("ann");
        // A stored key of a caller that the configuration had.
        store.add_key(NewKey { caller: ann, name: "old", expires: None }, author(1)).unwrap();
        store.add_caller(caller(ann), author(2)).unwrap();
        assert_eq!(names(store, ann), ["default"]);
    });
}

#[test]
fn a_failed_change_stores_nothing() {
    check(|store| {
        store.add_caller(caller(&id("ann")), author(1)).unwrap();
        let before = store.read().unwrap();
        let failed = store.update(&mut |records| {
            records.callers.clear();
            Err(KeyError::TooMany)
        });
        assert!(failed.is_err() && store.read().unwrap() == before);
    });
}

#[test]
fn concurrent_changes_are_all_stored() {
    check(|store| {
        std::thread::scope(|scope| {
            for number in 0..20 {
                scope.spawn(move || store.add_caller(caller(&id(&format!("c{number}"))), author(1)).unwrap());
            }
        });
        assert_eq!(store.read().unwrap().callers.len(), 20);
    });
}

#[test]
fn parses_expiry() {
    let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    for (text, expected) in [
        ("90d", Some("2027-02-13T12:00:00Z")),
        ("2027-01-31", Some("2027-01-31T00:00:00Z")),
        ("2027-01-31T08:00:00Z", Some("2027-01-31T08:00:00Z")),
        ("soon", None),
        ("", None),
    ] {
        let parsed = parse_expiry(text, now).ok().map(|time| time.to_string());
        assert_eq!(parsed.as_deref(), expected, "{text}");
    }
}
