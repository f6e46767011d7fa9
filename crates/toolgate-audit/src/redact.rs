//! Redaction of secrets: the only way for a string from outside into a record.
//!
//! Strings are checked unescaped, so JSON escapes cannot hide a secret. In JSON the member name counts too: a value
//! under `password`, nested below it, or after `--password` in an array is masked whatever it looks like. Nearly every
//! string holds no secret: a fast check of its raw form shows that, and it is copied unchanged. Invariant: time is
//! linear in the length; the result is JSON on one line, and the fast and the thorough path give the same result.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;
use parking_lot::RwLock;
use toolgate_json::{LongStrings, StringEnds, StringEscapes, quote};
use toolgate_redact::{
    KnownSecrets, SecretSources, contains, is_distinctive, looks_secret, mask_all, may_contain_secret,
};
use toolgate_types::Secret;
use toolgate_types::SecretPattern;
use toolgate_types::secret::MASK;

use crate::fields::{NodeSet, SecretFields};
use crate::part_buffer::MIN_SHARED_BYTES;

mod plain;

use plain::copy_plain;

/// Shorter numbers under the name of a secret are not searched for elsewhere: they may be counts or times.
const MIN_NUMBER_LENGTH: usize = 6;

/// Bytes of a string that are searched beyond the place where it is truncated: a secret that straddles that place is
/// recognised as a whole, and so is a name that gives a value away. Longer than any well-known shape that can be
/// recognised only at its end.
const CONTEXT: usize = 8 << 10;
/// Room for a character or an escape at the end of a truncated string.
const MAX_ESCAPE: usize = 16;
/// Length of the longest escape, that of a surrogate pair.
const MAX_ESCAPE_LENGTH: usize = 12;

/// Masks secrets in strings and JSON.
#[derive(Debug)]
pub struct Redactor {
    /// Only grows: a secret stays secret.
    known: RwLock<KnownSecrets>,
    patterns: Vec<SecretPattern>,
}

impl Redactor {
    /// Creates a redactor for these secrets and patterns, in addition to the well-known shapes of keys.
    pub fn new(known: Vec<Secret>, patterns: Vec<SecretPattern>) -> Self {
        let redactor = Self { known: RwLock::default(), patterns };
        redactor.add_secrets(&known);
        redactor
    }

    /// Masks these secrets too from now on.
    pub fn add_secrets(&self, secrets: &[Secret]) {
        let mut known = self.known.write();
        if let Some(more) = known.with(secrets) {
            *known = more;
        }
    }

    /// Masks all secrets in a JSON value.
    pub fn json(&self, json: &str) -> String {
        let mut out = String::with_capacity(json.len());
        self.write(&KnownSecrets::default(), &mut out, |line, out| {
            line.json(json, &SecretFields::default(), out)
        });
        out
    }

    /// Appends a value of at most `max` bytes if it evidently holds no secret but a known one. Otherwise returns false
    /// and appends nothing.
    pub(crate) fn copy_plain(&self, json: &str, fields: &SecretFields, max: usize, out: &mut String) -> bool {
        copy_plain_within(json, &self.patterns, fields, max, out)
    }

    /// Masks all secrets in a string.
    pub(crate) fn mask(&self, text: &str) -> String {
        let known = self.known.read();
        self.call_redaction(&known, &KnownSecrets::default(), false).mask(text).into_owned()
    }

    /// Appends a record, or a part of one, with the known secrets and the secrets of one call masked. First renders on
    /// the fast path as if there were no known secrets, and again on the thorough path only if one of them occurs.
    pub(crate) fn write<T>(
        &self,
        more: &KnownSecrets,
        out: &mut String,
        line: impl Fn(CallRedaction<'_>, &mut String) -> T,
    ) -> T {
        let known = self.known.read();
        let start = out.len();
        let written = line(self.call_redaction(&known, more, true), out);
        if !known.may_be_in(&out[start..]) && !more.may_be_in(&out[start..]) {
            return written;
        }
        out.truncate(start);
        line(self.call_redaction(&known, more, false), out)
    }

    fn call_redaction<'a>(
        &'a self,
        known: &'a KnownSecrets,
        more: &'a KnownSecrets,
        fast: bool,
    ) -> CallRedaction<'a> {
        CallRedaction { known, more, patterns: &self.patterns, fast }
    }
}

/// A long string that a redacted value contains as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnchangedString {
    /// Length of the redacted text before it.
    pub(crate) after: usize,
    /// Range of the received value, with quotes.
    pub(crate) range: Range<usize>,
}

/// The redaction rules for one call.
#[derive(Clone, Copy)]
pub(crate) struct CallRedaction<'a> {
    known: &'a KnownSecrets,
    more: &'a KnownSecrets,
    patterns: &'a [SecretPattern],
    /// Fast path: known secrets are searched for in the rendered text at the end. A string may therefore be copied
    /// unchanged, or as [`quote`] escapes it; one with unusual escapes is decoded and masked.
    fast: bool,
}

impl CallRedaction<'_> {
    /// Returns true if known secrets are searched for in the rendered text.
    pub(crate) fn is_fast(&self) -> bool {
        self.fast
    }

    /// Appends a string as JSON.
    pub(crate) fn write_string(&self, text: &str, out: &mut String) {
        if self.fast && !self.matches_pattern(text) && !may_contain_secret(text) {
            quote(text, out);
        } else {
            quote(&self.mask(text), out);
        }
    }

    fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Self { known, more, patterns, .. } = *self;
        mask_all(text, SecretSources { known: Some(known), more: Some(more), patterns })
    }

    fn matches_pattern(&self, text: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_match(text))
    }

    /// Returns true if a JSON string can be copied unchanged without decoding it.
    fn is_clean(&self, literal: &str, escaping: StringEscaping) -> bool {
        let readable = match escaping {
            StringEscaping::Plain => !self.matches_pattern(literal),
            StringEscaping::Escaped => self.patterns.is_empty(),
            StringEscaping::Odd => false,
        };
        self.fast && readable && !may_contain_secret(literal)
    }

    /// Appends a JSON string with its well-known shapes masked, line by line. Returns false and appends nothing if
    /// more than shapes must be searched for. Most lines contain none.
    fn write_masked_lines(&self, literal: &str, escaping: StringEscaping, out: &mut String) -> bool {
        if !self.fast
            || escaping == StringEscaping::Odd
            || !self.patterns.is_empty()
            || self.known.may_be_in(literal)
            || self.more.may_be_in(literal)
            // The only shape that spans lines.
            || literal.contains("-----BEGIN ")
        {
            return false;
        }
        out.push('"');
        for line in lines(literal) {
            if !may_contain_secret(line) {
                out.push_str(line);
                continue;
            }
            match mask_all(&unescape(line), SecretSources::default()) {
                Cow::Borrowed(_) => out.push_str(line),
                Cow::Owned(mask) => {
                    let mut quoted = String::with_capacity(mask.len() + 2);
                    quote(&mask, &mut quoted);
                    out.push_str(&quoted[1..quoted.len() - 1]);
                }
            }
        }
        out.push('"');
        true
    }

    /// Returns true if a number must be masked.
    fn is_secret_number(&self, number: &str) -> bool {
        self.matches_pattern(number) || !self.fast && (self.known.is_in(number) || self.more.is_in(number))
    }

    /// Appends a JSON value, with its strings redacted and whitespace removed. Text that is not JSON is appended as a
    /// string. `fields` are secret whatever they look like.
    pub(crate) fn json(&self, json: &str, fields: &SecretFields, out: &mut String) {
        self.json_head((json, LongStrings::default()), fields, usize::MAX, None, out);
    }

    /// Like [`Self::json`], but redacts only as much as the first `max` bytes of the result need. If the value is longer,
    /// returns the length of `out` to use. The rest of `out` is not safe to show: a secret may be cut in half at its end.
    /// The search for known secrets needs that rest; the caller removes it afterwards.
    ///
    /// With `unchanged`, long strings without secrets are not appended: they are listed there as ranges of `json`. The
    /// returned length counts them.
    pub(crate) fn json_head(
        &self,
        (json, long_strings): (&str, LongStrings<'_>),
        fields: &SecretFields,
        max: usize,
        mut unchanged: Option<&mut Vec<UnchangedString>>,
        out: &mut String,
    ) -> Option<usize> {
        if self.fast && copy_plain_within(json, self.patterns, fields, max, out) {
            return None;
        }
        let start = out.len();
        let limit = start.saturating_add(max);
        let mut walk = JsonWalk::new(*self, json, fields, out);
        walk.limit = limit;
        if json.len() > max {
            walk.context = self.context();
        }
        walk.long_strings = long_strings;
        walk.unchanged = unchanged.as_deref_mut();
        if let Some(cut) = walk.run() {
            return cut;
        }
        if let Some(unchanged) = unchanged {
            unchanged.clear();
        }
        out.truncate(start);
        self.write_string(json, out);
        (out.len() > limit).then_some(limit)
    }

    /// Returns how far a secret can reach beyond the place where a string is truncated. A pattern of the user can match
    /// any length.
    fn context(&self) -> usize {
        if !self.patterns.is_empty() {
            return usize::MAX;
        }
        CONTEXT.max(self.known.max_encoded_length()).max(self.more.max_encoded_length())
    }
}

/// Copies a short value if nothing but its text decides about its secrets. Long strings are not copied but shared, so
/// they need the walk.
fn copy_plain_within(
    json: &str,
    patterns: &[SecretPattern],
    fields: &SecretFields,
    max: usize,
    out: &mut String,
) -> bool {
    let may_be_plain = patterns.is_empty() && fields.is_empty() && json.len() < MIN_SHARED_BYTES.min(max);
    may_be_plain && copy_plain(json, out)
}

/// Returns the values under names of secrets, to be masked elsewhere too: a tool may echo its arguments.
pub(crate) fn named_secrets(json: &str) -> Vec<Secret> {
    // A name may be spelled with `\u`, or be the value of a member: `{"name": "Authorization", "value": …}`. The search
    // is for `value"` because a `v` is rarer than a quote.
    let may_be_named = may_contain_secret(json) || contains(json, "\\u") || contains(json, "value\"");
    let mut found = Vec::new();
    if may_be_named {
        let (known, fields, mut out) = (KnownSecrets::default(), SecretFields::default(), String::new());
        let redactor = CallRedaction { known: &known, more: &known, patterns: &[], fast: true };
        let mut walk = JsonWalk::new(redactor, json, &fields, &mut out);
        walk.hidden_values = Some(&mut found);
        if walk.run().is_none() {
            found.clear();
        }
    }
    found
}

/// Splits the raw form of a JSON string into lines, each with its line break.
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

/// Decodes the raw form of a JSON string, given without its quotes.
fn unescape(literal: &str) -> Cow<'_, str> {
    if !literal.contains('\\') {
        return Cow::Borrowed(literal);
    }
    // An unpaired surrogate cannot be decoded; the raw form is checked instead.
    serde_json::from_str(&format!("\"{literal}\"")).map_or(Cow::Borrowed(literal), Cow::Owned)
}

/// Escape sequences in the raw form of a JSON string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StringEscaping {
    /// No escapes.
    Plain,
    /// Canonical escapes only.
    Escaped,
    /// Escapes with an alternative form, or invalid ones: `\u0061`, `\/`, `\x`, an unescaped control character.
    Odd,
}

/// A string in the raw form, from its opening quote on.
struct StringSpan {
    /// Offset of the closing quote, or of the place where the string is truncated.
    end: usize,
    escaping: StringEscaping,
    truncated: bool,
}

/// An open object or array.
struct JsonLevel {
    object: bool,
    /// Everything in it is under a secret name.
    hidden: bool,
    /// The next string is a member name.
    name_next: bool,
    /// The next value is under a secret name.
    secret_next: bool,
    /// The next value is itself a name: `{"name": "Authorization", "value": …}`.
    names_next: bool,
    /// The member `value` of this object belongs to a secret name.
    named: bool,
    /// Schema nodes of the object or array, and of the next value.
    at: NodeSet,
    at_next: NodeSet,
}

/// Depth of most values.
const TYPICAL_DEPTH: usize = 8;

struct JsonWalk<'a> {
    redactor: CallRedaction<'a>,
    fields: &'a SecretFields,
    json: &'a str,
    ends: StringEnds<'a>,
    /// Long strings of `json`, if they are known.
    long_strings: LongStrings<'a>,
    at: usize,
    out: &'a mut String,
    /// Lists long strings that are not appended to `out`.
    unchanged: Option<&'a mut Vec<UnchangedString>>,
    /// Total length of those.
    unchanged_bytes: usize,
    levels: Vec<JsonLevel>,
    /// Collects the values that are hidden because of their names.
    hidden_values: Option<&'a mut Vec<Secret>>,
    /// Length of `out` that is enough.
    limit: usize,
    /// Bytes of a string to read beyond that.
    context: usize,
    /// Length of `out` that can be used after the walk stopped in a string.
    cut: Option<usize>,
}

impl<'a> JsonWalk<'a> {
    fn new(
        redactor: CallRedaction<'a>,
        json: &'a str,
        fields: &'a SecretFields,
        out: &'a mut String,
    ) -> Self {
        Self {
            redactor,
            fields,
            json,
            ends: StringEnds::new(json.as_bytes()),
            long_strings: LongStrings::default(),
            at: 0,
            out,
            unchanged: None,
            unchanged_bytes: 0,
            levels: Vec::with_capacity(TYPICAL_DEPTH),
            hidden_values: None,
            limit: usize::MAX,
            context: usize::MAX,
            cut: None,
        }
    }

    /// Returns `None` if the text is not JSON. Checks only what keeps the line intact: strings are closed, brackets
    /// match, and there is exactly one value. The rest was checked when the value was received. Otherwise returns the
    /// length of `out` to use if there is more than that, see [`CallRedaction::json_head`].
    fn run(mut self) -> Option<Option<usize>> {
        let bytes = self.json.as_bytes();
        let mut values = 0;
        while let Some(&byte) = bytes.get(self.at) {
            if self.written() > self.limit {
                return Some(Some(self.limit));
            }
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
                        self.levels.last().map_or_else(|| self.fields.root(), |level| level.at_next.clone());
                    let at_next = if object { NodeSet::new() } else { self.fields.items(&at) };
                    self.after_value(false);
                    self.levels.push(JsonLevel {
                        object,
                        hidden,
                        name_next: object,
                        secret_next: false,
                        names_next: false,
                        named: false,
                        at,
                        at_next,
                    });
                    self.copy_byte(byte);
                }
                b'}' | b']' => {
                    if self.levels.pop()?.object != (byte == b'}') {
                        return None;
                    }
                    self.copy_byte(byte);
                }
                b',' => {
                    let level = self.levels.last_mut()?;
                    level.name_next = level.object;
                    self.copy_byte(byte);
                }
                b':' => {
                    self.levels.last()?;
                    self.copy_byte(byte);
                }
                b'"' => {
                    self.string()?;
                    if let Some(cut) = self.cut {
                        return Some(Some(cut));
                    }
                }
                _ => self.scalar()?,
            }
        }
        let cut = (self.written() > self.limit).then_some(self.limit);
        (values == 1 && self.levels.is_empty()).then_some(cut)
    }

    /// Length of the redacted text so far.
    fn written(&self) -> usize {
        self.out.len() + self.unchanged_bytes
    }

    fn copy_byte(&mut self, byte: u8) {
        self.out.push(char::from(byte));
        self.at += 1;
    }

    #[inline]
    fn is_hidden(&self) -> bool {
        let described = |at: &NodeSet| !at.is_empty() && self.fields.is_hidden(at);
        match self.levels.last() {
            Some(level) => level.hidden || level.secret_next || described(&level.at_next),
            None => self.fields.is_hidden(&self.fields.root()),
        }
    }

    /// Moves past a value. `secret_next` is set by an array item such as `--token`, whose successor is a secret.
    fn after_value(&mut self, secret_next: bool) {
        if let Some(level) = self.levels.last_mut() {
            level.secret_next = secret_next;
            level.names_next = false;
        }
    }

    fn string(&mut self) -> Option<()> {
        let start = self.at + 1;
        let context = self.context;
        let room = self.limit.saturating_sub(self.written());
        let enough = start.saturating_add(room).saturating_add(context).saturating_add(MAX_ESCAPE);
        let StringSpan { end, escaping, truncated } = match self.known_span(enough) {
            Some(span) => span,
            None => self.find_span(enough)?,
        };
        let literal = &self.json[start..end];
        let before = self.written();
        self.at = if truncated { end } else { end + 1 };
        let whole = &self.json[start - 1..self.at];
        self.write_literal(literal, whole, escaping)?;
        if truncated {
            // Masks make the text shorter, so at least the context is removed.
            let safe = self.written().saturating_sub(context.saturating_add(1)).max(before);
            self.cut = Some(self.limit.min(safe));
        }
        Some(())
    }

    /// Returns the end of a string that the scan has found. Its content is not read again.
    fn known_span(&self, enough: usize) -> Option<StringSpan> {
        let (after, escapes) = self.long_strings.find(self.json, self.at)?;
        let escaping = match escapes {
            StringEscapes::None => StringEscaping::Plain,
            StringEscapes::Canonical => StringEscaping::Escaped,
            StringEscapes::Other => StringEscaping::Odd,
        };
        if after - 1 <= enough {
            return Some(StringSpan { end: after - 1, escaping, truncated: false });
        }
        // A place that no escape and no surrogate pair can straddle, near enough not to shorten the result.
        let bytes = self.json.as_bytes();
        let is_between = |end: &usize| {
            let before = end.checked_sub(MAX_ESCAPE_LENGTH).filter(|before| *before > self.at);
            self.json.is_char_boundary(*end)
                && before.is_some_and(|before| memchr(b'\\', &bytes[before..*end]).is_none())
        };
        let end = (enough - (MAX_ESCAPE - 2)..=enough).rev().find(is_between)?;
        Some(StringSpan { end, escaping, truncated: true })
    }

    /// Searches for the end of a string, or for a place to truncate it after `enough`.
    fn find_span(&mut self, enough: usize) -> Option<StringSpan> {
        let bytes = self.json.as_bytes();
        let start = self.at + 1;
        let mut end = start;
        let mut escaping = StringEscaping::Plain;
        // End of the last escape.
        let mut escape_end = start;
        loop {
            end = self.ends.find_from(end);
            if end > enough {
                // Not inside an escape, and not between the two of a surrogate pair: such a string cannot be decoded.
                let place = bytes.len().min(enough.max(escape_end));
                if place < end || !is_low_surrogate(&bytes[end..]) {
                    end = self.json.floor_char_boundary(place.min(end));
                    return Some(StringSpan { end, escaping, truncated: true });
                }
            }
            match bytes.get(end)? {
                b'"' => return Some(StringSpan { end, escaping, truncated: false }),
                b'\\' => {
                    if StringEscapes::of(bytes.get(end + 1).copied()) == StringEscapes::Other {
                        escaping = StringEscaping::Odd;
                    } else if escaping == StringEscaping::Plain {
                        escaping = StringEscaping::Escaped;
                    }
                    escape_end = end + if bytes.get(end + 1) == Some(&b'u') { 6 } else { 2 };
                    end += 2;
                }
                _control => {
                    escaping = StringEscaping::Odd;
                    end += 1;
                }
            }
        }
    }

    /// Appends a string, given without and with its quotes, and updates the state of the values around it.
    fn write_literal(&mut self, literal: &str, whole: &str, escaping: StringEscaping) -> Option<()> {
        let clean = self.redactor.is_clean(literal, escaping);
        // Decoded before masking, and only if it decides about other values.
        let read = escaping != StringEscaping::Escaped || self.decides_about_others(literal);
        let text = if read && escaping != StringEscaping::Plain {
            unescape(literal)
        } else {
            Cow::Borrowed(literal)
        };
        let level = self.levels.last_mut();
        if let Some(level) = level.filter(|level| level.name_next) {
            level.name_next = false;
            level.secret_next =
                looks_secret(&text) && !is_naming_member(&text) || level.named && &*text == "value";
            level.names_next = is_naming_member(&text);
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
                if let Some(values) = &mut self.hidden_values {
                    let text = unescape(literal);
                    values.extend(is_distinctive(&text).then(|| Secret::new(text)));
                }
                self.out.push('"');
                self.out.push_str(MASK);
                self.out.push('"');
                return Some(());
            }
        }
        if clean {
            self.write_unchanged(whole);
        } else if !self.redactor.write_masked_lines(literal, escaping, self.out) {
            let text = if read { text } else { unescape(literal) };
            match self.redactor.mask(&text) {
                // Unchanged, including its escapes.
                Cow::Borrowed(_) if literal.bytes().all(|byte| byte >= 0x20) => self.out.push_str(whole),
                mask => quote(&mask, self.out),
            }
        }
        Some(())
    }

    /// Appends a string that holds no secret by its shape, with its quotes; a long one is only listed, if that is
    /// possible.
    fn write_unchanged(&mut self, whole: &str) {
        let CallRedaction { known, more, .. } = self.redactor;
        match &mut self.unchanged {
            // Later, known secrets are searched for in `out` only, so this string is searched here.
            Some(unchanged)
                if whole.len() >= MIN_SHARED_BYTES && !known.may_be_in(whole) && !more.may_be_in(whole) =>
            {
                let range = self.at - whole.len()..self.at;
                unchanged.push(UnchangedString { after: self.out.len(), range });
                self.unchanged_bytes += whole.len();
            }
            _ => self.out.push_str(whole),
        }
    }

    /// Returns true if the string decides about other values, as a member name or flag does.
    fn decides_about_others(&self, literal: &str) -> bool {
        let reads = |level: &JsonLevel| {
            if level.object { level.name_next || level.names_next } else { literal.starts_with('-') }
        };
        self.levels.last().is_some_and(reads)
    }

    /// Handles a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Option<()> {
        let text = read_scalar(&self.json[self.at..])?;
        let word = is_word(text);
        let hidden = !word && self.is_hidden();
        if hidden && let Some(values) = &mut self.hidden_values {
            values.extend((text.len() >= MIN_NUMBER_LENGTH).then(|| Secret::new(text)));
        }
        if hidden || !word && self.redactor.is_secret_number(text) {
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

/// Returns the number, `true`, `false` or `null` at the start of a text. `None` if it starts with something else.
fn read_scalar(text: &str) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let end = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len());
    let text = &text[..end];
    let is_integer =
        !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_integer && !is_word(text) {
        serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
    }
    Some(text)
}

fn is_word(scalar: &str) -> bool {
    matches!(scalar, "true" | "false" | "null")
}

/// Returns true if the bytes start with the escape of the second half of a surrogate pair.
fn is_low_surrogate(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..])
}

/// Returns true for members that name the `value` next to them.
fn is_naming_member(member: &str) -> bool {
    matches!(member, "name" | "key" | "header")
}

#[cfg(test)]
mod tests;
