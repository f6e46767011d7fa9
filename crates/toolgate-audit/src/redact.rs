//! Redaction: the one way for a text from outside into a line.
//!
//! Texts are looked at as they mean, not as JSON writes them, so an escape hides nothing. In JSON the name of
//! a member counts too: what stands under `password`, below it, or after `--password` in a list is not shown
//! whatever it looks like. Nearly every text holds nothing of all that: a quick look at how it is spelled says so, and
//! it is written as it came. Invariant: linear in the text; the result is JSON on one line, and quick or not it is the
//! same.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::packed::{self, Searcher};
use memchr::memchr;
use toolgate_types::Secret;
use toolgate_types::json::{Ends, quote};
use toolgate_types::redact::{Pattern, Sought, holds, looks_secret, mask_sought, may_hold_secret};
use toolgate_types::secret::MASK;

use crate::fields::{At, SecretFields};

/// Shorter ones are not looked for: masking every `a` would hide the record.
const SHORTEST_KNOWN: usize = 4;

/// Knows what must not be shown.
#[derive(Debug)]
pub struct Redactor {
    /// It grows: what was secret stays so.
    known: RwLock<Arc<Known>>,
    patterns: Vec<Pattern>,
}

impl Redactor {
    /// Knows these secrets, and what fits these patterns, beside the common shapes of keys.
    pub fn new(known: Vec<Secret>, patterns: Vec<Pattern>) -> Self {
        let redactor = Self { known: RwLock::default(), patterns };
        redactor.learn(&known);
        redactor
    }

    /// Knows these as well, from now on.
    pub fn learn(&self, secrets: &[Secret]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = |secret: &&Secret| {
            let text = secret.expose();
            text.len() >= SHORTEST_KNOWN && !known.secrets.iter().any(|known| known.expose() == text)
        };
        let new: Vec<Secret> = secrets.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            let spelled: Vec<_> = new.iter().flat_map(spelled).collect();
            *known = Arc::new(Known::new(known.secrets.iter().cloned().chain(new).chain(spelled).collect()));
        }
    }

    /// A JSON text that says the same and shows nothing that must not be.
    pub fn json(&self, json: &str) -> String {
        let mut out = String::with_capacity(json.len());
        self.write(&[], &mut out, |line, out| line.json(json, &SecretFields::default(), out));
        out
    }

    /// A text that shows nothing that must not be.
    pub(crate) fn masked(&self, text: &str) -> String {
        let known = self.known();
        self.with(&known, &[], false).masked(text).into_owned()
    }

    /// Adds a line, or a part of one, that shows nothing of what is known, nor of these secrets of one call. It is
    /// written as if there were no known secrets, and once more, with care, where one of them is in it.
    pub(crate) fn write<T>(
        &self,
        more: &[Secret],
        out: &mut String,
        line: impl Fn(Redaction<'_>, &mut String) -> T,
    ) -> T {
        let known = self.known();
        if more.is_empty() {
            let start = out.len();
            let written = line(self.with(&known, more, true), out);
            if !known.may_be_in(&out[start..]) {
                return written;
            }
            out.truncate(start);
        }
        line(self.with(&known, more, false), out)
    }

    /// The secrets that are known now.
    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn with<'a>(&'a self, known: &'a Known, more: &'a [Secret], quick: bool) -> Redaction<'a> {
        Redaction { known, more, patterns: &self.patterns, quick }
    }
}

/// The secrets that are known, with all their spellings.
#[derive(Default)]
pub(crate) struct Known {
    secrets: Vec<Secret>,
    /// Finds any of them; `None` where this machine has no quick way to.
    search: Option<Vec<Searcher>>,
}

/// How many texts are looked for at once.
const AT_ONCE: usize = 48;

impl Known {
    fn new(secrets: Vec<Secret>) -> Self {
        let searcher = |some: &[Secret]| {
            packed::Config::new().builder().extend(some.iter().map(|secret| secret.expose())).build()
        };
        let search = secrets.chunks(AT_ONCE).map(searcher).collect();
        Self { secrets, search }
    }

    /// Whether one of them may be in a text.
    fn may_be_in(&self, text: &str) -> bool {
        match &self.search {
            Some(search) => search.iter().any(|searcher| searcher.find(text).is_some()),
            None => !self.secrets.is_empty(),
        }
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

/// How a secret is spelled inside of an address, and in JSON that is itself a text.
fn spelled(secret: &Secret) -> impl Iterator<Item = Secret> + use<> {
    let plain = secret.expose();
    let mut address = String::with_capacity(plain.len());
    for byte in plain.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            address.push(char::from(byte));
        } else {
            address.push_str(&format!("%{byte:02X}"));
        }
    }
    let quoted = serde_json::to_string(plain).unwrap_or_default();
    let quoted = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let others = [address.as_str(), quoted].map(|text| (text != plain).then(|| Secret::new(text)));
    others.into_iter().flatten()
}

/// What must not be shown of one call.
#[derive(Clone, Copy)]
pub(crate) struct Redaction<'a> {
    known: &'a Known,
    more: &'a [Secret],
    patterns: &'a [Pattern],
    /// Known secrets are looked for in what is written, when all of it is. A text can be written as it came then,
    /// or as [`quote`] spells it; one that spells a character in another way is read and masked.
    quick: bool,
}

impl Redaction<'_> {
    /// Adds a text as a JSON string.
    pub(crate) fn text(&self, text: &str, out: &mut String) {
        if self.quick && !self.fits(text) && !may_hold_secret(text) {
            quote(text, out);
        } else {
            quote(&self.masked(text), out);
        }
    }

    fn masked<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Self { known, more, patterns, .. } = *self;
        mask_sought(text, Sought { known: &known.secrets, more, patterns })
    }

    fn fits(&self, text: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.fits(text))
    }

    /// Whether a string of JSON can be written as it came, without a look at what it says.
    fn is_clean(&self, literal: &str, spelling: Spelling) -> bool {
        let readable = match spelling {
            Spelling::Plain => !self.fits(literal),
            Spelling::Escaped => self.patterns.is_empty(),
            Spelling::Odd => false,
        };
        self.quick && readable && !may_hold_secret(literal)
    }

    /// Adds a string of JSON with its shapes masked, line by line, and says so; where more must be looked for than
    /// shapes, it adds nothing. No shape reaches over the end of a line, and most lines have none.
    fn shapes(&self, literal: &str, spelling: Spelling, out: &mut String) -> bool {
        if !self.quick
            || spelling == Spelling::Odd
            || !self.patterns.is_empty()
            || self.known.may_be_in(literal)
        {
            return false;
        }
        out.push('"');
        for line in lines(literal) {
            if !may_hold_secret(line) {
                out.push_str(line);
                continue;
            }
            match mask_sought(&unescaped(line), Sought::default()) {
                Cow::Borrowed(_) => out.push_str(line),
                Cow::Owned(masked) => {
                    let mut quoted = String::with_capacity(masked.len() + 2);
                    quote(&masked, &mut quoted);
                    out.push_str(&quoted[1..quoted.len() - 1]);
                }
            }
        }
        out.push('"');
        true
    }

    /// Whether a number is not shown.
    fn hides(&self, number: &str) -> bool {
        let holds = |secret: &Secret| holds(number, secret.expose());
        self.fits(number) || !self.quick && self.known.secrets.iter().chain(self.more).any(holds)
    }

    /// Adds a JSON value, with its strings redacted and without the space between its parts. What is not JSON
    /// is added as a string. `fields` says which parts are secret whatever they look like.
    pub(crate) fn json(&self, json: &str, fields: &SecretFields, out: &mut String) {
        let start = out.len();
        if Walk::new(*self, json, fields, out).run().is_none() {
            out.truncate(start);
            self.text(json, out);
        }
    }
}

/// The lines of a text, as JSON spells it, each with its end.
fn lines(literal: &str) -> impl Iterator<Item = &str> {
    let mut rest = literal;
    std::iter::from_fn(move || {
        let mut from = 0;
        let end = loop {
            let Some(found) = memchr(b'\\', &rest.as_bytes()[from..]) else { break rest.len() };
            from += found + 2;
            if rest.as_bytes().get(from - 1) == Some(&b'n') {
                break from;
            }
        };
        let (line, after) = rest.split_at(end);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// What a string of JSON says, given without its quotes.
fn unescaped(literal: &str) -> Cow<'_, str> {
    if !literal.contains('\\') {
        return Cow::Borrowed(literal);
    }
    // A half of a pair of surrogates has no meaning as a text; what it looks like still has.
    serde_json::from_str(&format!("\"{literal}\"")).map_or(Cow::Borrowed(literal), Cow::Owned)
}

/// How a string is written in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// As it is meant.
    Plain,
    /// With escapes, and none that could be spelled in another way or left out.
    Escaped,
    /// In one of many ways, or in none: `\u0061`, `\/`, `\x`, a control character that should be escaped.
    Odd,
}

/// An object or a list that is open.
struct Level {
    object: bool,
    /// Everything in it stands under the name of a secret.
    hidden: bool,
    /// The next string is the name of a member.
    name_next: bool,
    /// The value that follows stands under the name of a secret.
    secret_next: bool,
    /// The value that follows names something: `{"name": "Authorization", "value": …}`.
    names_next: bool,
    /// `value` in this object belongs to the name of a secret.
    named: bool,
    /// What the schema says of it, and of the value that follows.
    at: At,
    at_next: At,
}

/// How deep most values are.
const LEVELS: usize = 8;

struct Walk<'a> {
    redactor: Redaction<'a>,
    fields: &'a SecretFields,
    json: &'a str,
    ends: Ends<'a>,
    at: usize,
    out: &'a mut String,
    levels: Vec<Level>,
}

impl<'a> Walk<'a> {
    fn new(redactor: Redaction<'a>, json: &'a str, fields: &'a SecretFields, out: &'a mut String) -> Self {
        Self {
            redactor,
            fields,
            json,
            ends: Ends::new(json.as_bytes()),
            at: 0,
            out,
            levels: Vec::with_capacity(LEVELS),
        }
    }

    /// `None` when it is not JSON. What is checked is what keeps the line whole: strings end, brackets match,
    /// there is one value. The rest was checked where the text came in.
    fn run(mut self) -> Option<()> {
        let bytes = self.json.as_bytes();
        let mut values = 0;
        while let Some(&byte) = bytes.get(self.at) {
            if self.levels.is_empty() && !byte.is_ascii_whitespace() {
                values += 1;
                if values > 1 {
                    return None;
                }
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'{' | b'[' => {
                    let hidden = self.is_hidden();
                    let object = byte == b'{';
                    let at =
                        self.levels.last().map_or_else(|| self.fields.start(), |level| level.at_next.clone());
                    let at_next = if object { At::new() } else { self.fields.items(&at) };
                    self.after_value(false);
                    self.levels.push(Level {
                        object,
                        hidden,
                        name_next: object,
                        secret_next: false,
                        names_next: false,
                        named: false,
                        at,
                        at_next,
                    });
                    self.keep(byte);
                }
                b'}' | b']' => {
                    if self.levels.pop()?.object != (byte == b'}') {
                        return None;
                    }
                    self.keep(byte);
                }
                b',' => {
                    let level = self.levels.last_mut()?;
                    level.name_next = level.object;
                    self.keep(byte);
                }
                b':' => {
                    self.levels.last()?;
                    self.keep(byte);
                }
                b'"' => self.string()?,
                _ => self.scalar()?,
            }
        }
        (values == 1 && self.levels.is_empty()).then_some(())
    }

    fn keep(&mut self, byte: u8) {
        self.out.push(char::from(byte));
        self.at += 1;
    }

    #[inline]
    fn is_hidden(&self) -> bool {
        let described = |at: &At| !at.is_empty() && self.fields.is_hidden(at);
        match self.levels.last() {
            Some(level) => level.hidden || level.secret_next || described(&level.at_next),
            None => self.fields.is_hidden(&self.fields.start()),
        }
    }

    /// A value was passed; whether the next one in a list is a secret, it may have said.
    fn after_value(&mut self, secret_next: bool) {
        if let Some(level) = self.levels.last_mut() {
            level.secret_next = secret_next;
            level.names_next = false;
        }
    }

    fn string(&mut self) -> Option<()> {
        let start = self.at + 1;
        let bytes = self.json.as_bytes();
        let mut end = start;
        let mut spelling = Spelling::Plain;
        loop {
            end = self.ends.from(end);
            match bytes.get(end)? {
                b'"' => break,
                b'\\' => {
                    if !matches!(bytes.get(end + 1), Some(b'n' | b'"' | b'\\' | b't' | b'r' | b'b' | b'f')) {
                        spelling = Spelling::Odd;
                    } else if spelling == Spelling::Plain {
                        spelling = Spelling::Escaped;
                    }
                    end += 2;
                }
                _control => {
                    spelling = Spelling::Odd;
                    end += 1;
                }
            }
        }
        let literal = &self.json[start..end];
        let whole = &self.json[start - 1..=end];
        self.at = end + 1;
        let clean = self.redactor.is_clean(literal, spelling);
        // What a string with escapes says is looked at where it matters to others, and before it is masked.
        let read = spelling != Spelling::Escaped || self.reads(literal);
        let text =
            if read && spelling != Spelling::Plain { unescaped(literal) } else { Cow::Borrowed(literal) };
        let level = self.levels.last_mut();
        if let Some(level) = level.filter(|level| level.name_next) {
            level.name_next = false;
            level.secret_next = looks_secret(&text) && !names(&text) || level.named && &*text == "value";
            level.names_next = names(&text);
            level.at_next = self.fields.member(&level.at, &text);
        } else {
            let hidden = self.is_hidden();
            let level = self.levels.last_mut();
            let flag = level.as_ref().is_some_and(|level| !level.object) && text.starts_with('-');
            if let Some(level) = level.filter(|level| level.object && level.names_next) {
                level.named |= looks_secret(&text);
            }
            self.after_value(flag && !text.contains(['=', ' ']) && looks_secret(&text));
            if hidden && !text.is_empty() {
                self.out.push('"');
                self.out.push_str(MASK);
                self.out.push('"');
                return Some(());
            }
        }
        if clean {
            self.out.push_str(whole);
        } else if !self.redactor.shapes(literal, spelling, self.out) {
            let text = if read { text } else { unescaped(literal) };
            match self.redactor.masked(&text) {
                // As it came, escapes and all.
                Cow::Borrowed(_) if literal.bytes().all(|byte| byte >= 0x20) => self.out.push_str(whole),
                masked => quote(&masked, self.out),
            }
        }
        Some(())
    }

    /// Whether what the next string says matters to others.
    fn reads(&self, literal: &str) -> bool {
        let reads = |level: &Level| {
            if level.object { level.name_next || level.names_next } else { literal.starts_with('-') }
        };
        self.levels.last().is_some_and(reads)
    }

    /// A number, `true`, `false`, `null`.
    fn scalar(&mut self) -> Option<()> {
        let rest = &self.json.as_bytes()[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let text = &self.json[self.at..self.at + end];
        let word = matches!(text, "true" | "false" | "null");
        let integer =
            !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        if !word && !integer {
            serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
        }
        if !word && (self.is_hidden() || self.redactor.hides(text)) {
            self.out.push('"');
            self.out.push_str(MASK);
            self.out.push('"');
        } else {
            self.out.push_str(text);
        }
        self.at += text.len();
        self.after_value(false);
        Some(())
    }
}

/// Members that say what the `value` beside them is.
fn names(member: &str) -> bool {
    matches!(member, "name" | "key" | "header")
}

#[cfg(test)]
mod tests;
