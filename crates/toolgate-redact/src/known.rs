//! Known secrets, in every encoding: as they are, in JSON, in a URL, as hexadecimal digits, and
//! in base64, also in the middle of a longer base64 text.
//!
//! One vectorised search shows that a text contains none of them, as in nearly all cases. Invariant: linear in the
//! text, for a given set of secrets.

use std::fmt;
use std::ops::Range;

use aho_corasick::packed::{self, Searcher};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use memchr::memchr_iter;

use toolgate_types::Secret;

use crate::{apply_mask, merge_ranges, occurrences};

/// Known secrets shorter than this are ignored: masking every `a` would make the text unreadable.
pub(crate) const MIN_KNOWN_LENGTH: usize = 4;
/// Shorter secrets are not searched for in base64: a few characters occur by chance.
const MIN_BASE64_LENGTH: usize = 6;
/// Number of strings per searcher.
const FORMS_PER_SEARCHER: usize = 64;

/// Known secrets, prepared for searching.
#[derive(Clone, Default)]
pub struct KnownSecrets {
    secrets: Vec<Secret>,
    /// The secrets and their encodings.
    forms: Vec<Secret>,
    /// Searches for all forms; `None` if this CPU has no vectorised search.
    search: Option<Vec<Searcher>>,
}

impl KnownSecrets {
    /// Prepares secrets. Very short ones are ignored, as are duplicates.
    pub fn new(secrets: &[Secret]) -> Self {
        Self::default().with(secrets).unwrap_or_default()
    }

    /// Returns these secrets together with more of them. `None` if all of them are known already.
    pub fn with(&self, more: &[Secret]) -> Option<Self> {
        if more.is_empty() {
            return None;
        }
        let mut secrets = self.secrets.clone();
        for secret in more {
            let text = secret.expose();
            if text.len() >= MIN_KNOWN_LENGTH && !secrets.iter().any(|known| known.expose() == text) {
                secrets.push(secret.clone());
            }
        }
        if secrets.len() == self.secrets.len() {
            return None;
        }
        let new = secrets[self.secrets.len()..].iter().flat_map(forms);
        let forms: Vec<Secret> = self.forms.iter().cloned().chain(new).collect();
        let searcher =
            |some: &[Secret]| packed::Config::new().builder().extend(some.iter().map(Secret::expose)).build();
        let search = forms.chunks(FORMS_PER_SEARCHER).map(searcher).collect();
        Some(Self { secrets, forms, search })
    }

    /// Returns these secrets together with others. `None` if all of them are known already.
    pub fn union(&self, others: &Self) -> Option<Self> {
        self.with(&others.secrets)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Returns an upper bound of the length of a secret in a JSON string: in any encoding, percent-encoded, and with
    /// every character of that escaped.
    pub fn max_encoded_length(&self) -> usize {
        const PERCENT_ENCODED: usize = "%41".len();
        const ESCAPED: usize = "\\u0025".len();
        let longest = self.forms.iter().map(|form| form.expose().len()).max().unwrap_or_default();
        longest.saturating_mul(PERCENT_ENCODED * ESCAPED)
    }

    /// Returns true if the text may contain one of the secrets.
    pub fn may_be_in(&self, text: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let is_in = |text: &[u8]| match &self.search {
            Some(search) => search.iter().any(|searcher| searcher.find(text).is_some()),
            None => true,
        };
        is_in(text.as_bytes()) || PercentDecoded::new(text).is_some_and(|decoded| is_in(&decoded.bytes))
    }

    /// Returns true if the text contains one of the secrets.
    pub fn is_in(&self, text: &str) -> bool {
        let mut ranges = Vec::new();
        self.find_in(text, &mut ranges);
        !ranges.is_empty()
    }

    /// Replaces these secrets with `***`, and nothing else.
    pub fn mask(&self, text: &str) -> String {
        let mut ranges = Vec::new();
        self.find_in(text, &mut ranges);
        apply_mask(text, &merge_ranges(ranges))
    }

    /// Adds the places of all secrets in the text.
    pub fn find_in(&self, text: &str, ranges: &mut Vec<Range<usize>>) {
        if self.may_be_in(text) {
            find_forms(text, &self.forms, ranges);
        }
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownSecrets").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

/// Finds secrets that were not prepared.
pub(crate) fn find_unprepared(text: &str, secrets: &[Secret], ranges: &mut Vec<Range<usize>>) {
    let long = |secret: &&Secret| secret.expose().len() >= MIN_KNOWN_LENGTH;
    let forms: Vec<Secret> = secrets.iter().filter(long).flat_map(forms).collect();
    find_forms(text, &forms, ranges);
}

fn find_forms(text: &str, forms: &[Secret], ranges: &mut Vec<Range<usize>>) {
    let decoded = if forms.is_empty() { None } else { PercentDecoded::new(text) };
    for form in forms {
        let form = form.expose();
        ranges.extend(occurrences(text.as_bytes(), form.as_bytes()).map(|start| start..start + form.len()));
        if let Some(decoded) = &decoded {
            let found = occurrences(&decoded.bytes, form.as_bytes());
            ranges.extend(found.map(|start| decoded.starts[start]..decoded.starts[start + form.len()]));
        }
    }
}

/// Returns a secret and its encodings. Percent-encoding is not among them: it has too many variants, so the text is
/// decoded instead.
fn forms(secret: &Secret) -> Vec<Secret> {
    let plain = secret.expose();
    let mut forms = vec![plain.to_owned()];
    let quoted = serde_json::to_string(plain).unwrap_or_default();
    forms.push(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned());
    // A space in the query of a URL.
    forms.push(plain.replace(' ', "+"));
    forms.push(plain.bytes().map(|byte| format!("{byte:02x}")).collect());
    forms.push(plain.bytes().map(|byte| format!("{byte:02X}")).collect());
    if plain.len() >= MIN_BASE64_LENGTH {
        // Three bytes are four characters, so the encoding depends on the number of bytes before the secret. Characters
        // that also encode bytes before or after it are left out.
        for before in 0..3 {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(plain.as_bytes());
            let inner = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
            forms.push(BASE64_STANDARD_NO_PAD.encode(&bytes)[inner.clone()].to_owned());
            forms.push(BASE64_URL_SAFE_NO_PAD.encode(&bytes)[inner].to_owned());
        }
    }
    forms.sort_unstable();
    forms.dedup();
    forms.into_iter().map(Secret::new).collect()
}

/// A text with `%41` decoded.
struct PercentDecoded {
    bytes: Vec<u8>,
    /// Start of each byte in the text, and the end of the text.
    starts: Vec<usize>,
}

impl PercentDecoded {
    /// Returns `None` if nothing is encoded.
    fn new(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let value = |at: usize| Some((digit(at + 1)? * 16 + digit(at + 2)?).try_into().unwrap_or_default());
        memchr_iter(b'%', text).find_map(value)?;
        let mut decoded =
            Self { bytes: Vec::with_capacity(text.len()), starts: Vec::with_capacity(text.len() + 1) };
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            decoded.starts.push(at);
            let encoded = if byte == b'%' { value(at) } else { None };
            decoded.bytes.push(encoded.unwrap_or(byte));
            at += if encoded.is_some() { 3 } else { 1 };
        }
        decoded.starts.push(text.len());
        Some(decoded)
    }
}
