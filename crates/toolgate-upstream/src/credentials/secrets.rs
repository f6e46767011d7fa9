//! Secrets of credentials in use, to mask them in the records of calls: a server may echo the credential that it got.
//!
//! Invariant: the secret of one caller masks nothing in the records of another. Otherwise a caller with a common word as
//! its secret could make the records of all callers unreadable.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use toolgate_mcp::oauth::TokenSource;
use toolgate_redact::KnownSecrets;
use toolgate_types::{CallerId, Secret, ServerName};

/// Holders that are remembered, before those without a secret are forgotten.
const MAX_HOLDERS: usize = 10_000;

/// The holder of a credential: a caller, or `None` for a credential that all callers share.
pub(super) type Holder = Option<CallerId>;

/// Secrets of all holders.
#[derive(Default)]
pub struct CredentialSecrets(Mutex<HashMap<Holder, HolderSecrets>>);

#[derive(Default)]
struct HolderSecrets {
    /// Static credentials; `None` if the store has none.
    stored: HashMap<ServerName, Option<Secret>>,
    logins: HashMap<ServerName, Weak<TokenSource>>,
    /// The last secrets that were asked for, prepared for searching.
    prepared: Option<(Vec<Secret>, Arc<KnownSecrets>)>,
}

impl HolderSecrets {
    fn add_to(&self, secrets: &mut Vec<Secret>) {
        secrets.extend(self.stored.values().flatten().cloned());
        secrets.extend(self.logins.values().filter_map(Weak::upgrade).flat_map(|tokens| tokens.secrets()));
    }

    fn is_empty(&self) -> bool {
        self.stored.values().all(Option::is_none)
            && self.logins.values().all(|tokens| tokens.strong_count() == 0)
    }
}

impl CredentialSecrets {
    /// Notes the static credential of a holder, as the store has it.
    pub(super) fn note_stored(&self, holder: Holder, server: &ServerName, secret: Option<&Secret>) {
        let mut all = self.0.lock();
        if all.len() >= MAX_HOLDERS {
            all.retain(|_, secrets| !secrets.is_empty());
        }
        all.entry(holder).or_default().stored.insert(server.clone(), secret.cloned());
    }

    /// Notes the login of a holder.
    pub(super) fn note_login(&self, holder: Holder, server: &ServerName, tokens: &Arc<TokenSource>) {
        let mut all = self.0.lock();
        all.entry(holder).or_default().logins.insert(server.clone(), Arc::downgrade(tokens));
    }

    /// Returns true if the static credential of a holder was read from the store.
    pub(super) fn has_read(&self, holder: &Holder, server: &ServerName) -> bool {
        self.0.lock().get(holder).is_some_and(|secrets| secrets.stored.contains_key(server))
    }

    /// Returns true if a holder has a static credential for a server.
    pub(super) fn has_stored(&self, holder: &Holder, server: &ServerName) -> bool {
        let all = self.0.lock();
        all.get(holder).is_some_and(|secrets| matches!(secrets.stored.get(server), Some(Some(_))))
    }

    /// Returns the secrets to mask in the records of a caller: its own, and those that all callers share.
    pub fn of(&self, caller: &CallerId) -> Option<Arc<KnownSecrets>> {
        let mut all = self.0.lock();
        if all.is_empty() {
            return None;
        }
        let own = Some(caller.clone());
        let mut secrets = Vec::new();
        for holder in [&None, &own] {
            if let Some(held) = all.get(holder) {
                held.add_to(&mut secrets);
            }
        }
        if secrets.is_empty() {
            return None;
        }
        let holder = if all.contains_key(&own) { own } else { None };
        let held = all.get_mut(&holder)?;
        if let Some((known, prepared)) = &held.prepared
            && *known == secrets
        {
            return Some(Arc::clone(prepared));
        }
        let prepared = Arc::new(KnownSecrets::new(&secrets));
        held.prepared = Some((secrets, Arc::clone(&prepared)));
        Some(prepared)
    }
}

#[test]
fn secrets_are_those_of_one_caller() {
    let secrets = CredentialSecrets::default();
    let caller = |id: &str| id.parse::<CallerId>().unwrap();
    let (ann, bob, web) = (caller("ann"), caller("bob"), "web".parse().unwrap());
    assert!(secrets.of(&ann).is_none());
    let masked = |caller: &CallerId| {
        let known = secrets.of(caller);
        known.map_or_else(|| "tulip rose lily".to_owned(), |known| known.mask("tulip rose lily"))
    };
    secrets.note_stored(Some(ann.clone()), &web, Some(&Secret::new("tulip")));
    secrets.note_stored(Some(bob.clone()), &web, Some(&Secret::new("rose")));
    assert_eq!([masked(&ann), masked(&bob)], ["*** rose lily", "tulip *** lily"]);
    secrets.note_stored(None, &web, Some(&Secret::new("lily")));
    assert_eq!(
        [masked(&ann), masked(&bob), masked(&caller("eve"))],
        ["*** rose ***", "tulip *** ***", "tulip rose ***"]
    );
    secrets.note_stored(Some(ann.clone()), &web, Some(&Secret::new("rose")));
    assert_eq!(masked(&ann), "tulip *** ***", "it was replaced");
    secrets.note_stored(Some(ann.clone()), &web, None);
    assert_eq!(masked(&ann), "tulip rose ***");
    assert!(secrets.has_read(&Some(ann.clone()), &web) && !secrets.has_stored(&Some(ann), &web));
    for number in 0..2 * MAX_HOLDERS {
        secrets.note_stored(Some(caller(&format!("c{number}"))), &web, None);
    }
    assert!(secrets.0.lock().len() <= MAX_HOLDERS + 1, "holders without a secret are forgotten");
    assert_eq!(masked(&bob), "tulip *** ***");
}
