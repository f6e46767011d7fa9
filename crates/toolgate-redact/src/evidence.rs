//! Evidence that a string is a secret, and not prose, code or a placeholder.

use toolgate_types::secret::MASK;

use crate::keys::decode_base64;
use crate::names::{NameStrength, looks_secret};

/// Evidence demanded before a string counts as a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// A name is enough. For configurations: a value under `password` is a password.
    Name,
    /// The value looks like a secret of its name. For logs and messages: most of them are prose.
    Value,
    /// The value looks random, or has a well-known shape. For refusing a call: a mistake costs more.
    Shape,
}

/// Surroundings of a value.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ValueStyle {
    /// In quotes.
    pub(crate) quoted: bool,
    /// Directly after `=`.
    pub(crate) tight: bool,
    /// On a line of its own with its name.
    pub(crate) alone: bool,
    /// An item of a list, or after an authentication scheme: no prose.
    pub(crate) listed: bool,
}

impl ValueStyle {
    /// Returns true if prose does not look like this.
    fn is_structured(self) -> bool {
        self.quoted || self.tight || self.alone || self.listed
    }
}

/// Minimum length of a password.
const MIN_PASSWORD_LENGTH: usize = 4;
/// Minimum length of a generated secret under a strong name.
const MIN_TOKEN_LENGTH: usize = 6;
/// Minimum length of a run of letters and digits that can look random.
const MIN_RANDOM_LENGTH: usize = 12;

/// Words that follow `password:` and the like without being one.
const COMMON_WORDS: [&str; 60] = [
    "access",
    "argument",
    "authentication",
    "authorization",
    "basic",
    "bearer",
    "bool",
    "boolean",
    "bytes",
    "changed",
    "credentials",
    "default",
    "deprecated",
    "digest",
    "disabled",
    "empty",
    "enabled",
    "expired",
    "failed",
    "false",
    "flag",
    "hidden",
    "incorrect",
    "int",
    "integer",
    "invalid",
    "missing",
    "negotiate",
    "nil",
    "none",
    "null",
    "number",
    "object",
    "option",
    "optional",
    "parameter",
    "prompt",
    "redacted",
    "refresh",
    "rejected",
    "required",
    "requis",
    "secure",
    "string",
    "strong",
    "text",
    "tokens",
    "true",
    "undefined",
    "unknown",
    "unset",
    "unused",
    "user",
    "username",
    "valid",
    "value",
    "varchar",
    "weak",
    "wrong",
    "yes",
];

/// Words that occur in most sentences and in no passphrase.
const STOP_WORDS: [&str; 58] = [
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "did", "do", "does", "for",
    "from", "has", "have", "how", "if", "in", "is", "it", "its", "may", "must", "no", "not", "of", "on",
    "or", "see", "should", "that", "the", "this", "to", "use", "was", "we", "what", "when", "will", "with",
    "you", "your", "bitte", "das", "der", "die", "ist", "oder", "und", "est", "et", "le", "la", "un",
];

/// Returns true if a value of one word is a secret, given the name before it.
pub(crate) fn is_secret_word(
    word: &str,
    strength: NameStrength,
    style: ValueStyle,
    evidence: Evidence,
) -> bool {
    let word = trim_punctuation(word);
    if is_masked(word) || is_placeholder(word) || is_reference(word) {
        return false;
    }
    let random = is_random(word);
    if word.contains("://") || is_path(word) && !random {
        return false;
    }
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    let mixed = digits > 0 && letters > 0;
    if evidence == Evidence::Shape {
        let structured = style.tight || style.quoted || style.alone;
        return match strength {
            NameStrength::Password => mixed && word.len() >= if structured { 7 } else { 8 },
            NameStrength::Strong => {
                // Nothing but letters and digits: code and patterns have signs.
                let plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric());
                random || mixed && plain && is_mixed_case(word) && word.len() >= 16 && structured
            }
            NameStrength::Weak => random && !is_uuid(word),
            // A code from a person often has to be sent.
            NameStrength::Code => false,
        };
    }
    match strength {
        NameStrength::Password => {
            let chosen = mixed || word.chars().any(|c| c.is_ascii_punctuation()) || digits == word.len();
            // A word of letters alone is a password only where prose is unlikely; with a capital it is a type or a
            // name.
            let plain = style.is_structured()
                && (style.tight
                    || style.quoted
                    || style.listed
                    || !word.starts_with(|c: char| c.is_uppercase()));
            word.len() >= MIN_PASSWORD_LENGTH
                && !is_common(word)
                && (chosen && style.is_structured() || mixed || plain)
        }
        NameStrength::Code => random || letters == 0 && (4..=8).contains(&digits) && digits == word.len(),
        NameStrength::Strong => {
            let number = letters == 0 && digits >= MIN_TOKEN_LENGTH && (style.tight || style.quoted);
            let listed = style.listed && !is_common(word);
            let long = word.len() >= 20 && is_mixed_case(word) && (style.tight || style.quoted);
            random || word.len() >= MIN_TOKEN_LENGTH && (mixed || number || listed || long)
        }
        NameStrength::Weak => random && !is_uuid(word),
    }
}

/// Returns true if a value of several words is a passphrase.
pub(crate) fn is_passphrase(
    words: &str,
    strength: NameStrength,
    style: ValueStyle,
    evidence: Evidence,
) -> bool {
    let is_sentence = || {
        words.ends_with(['.', '?', '!', ':', ';', ')', '{', ','])
            || words.contains("://")
            || words.split_whitespace().nth(8).is_some()
            || words.split_whitespace().any(|word| {
                let word = word.trim_matches(|c: char| c.is_ascii_punctuation()).to_lowercase();
                STOP_WORDS.contains(&word.as_str()) || COMMON_WORDS.contains(&word.as_str())
            })
            || words.split_whitespace().any(|word| is_reference(word) || is_placeholder(word))
    };
    let is_apart = match evidence {
        Evidence::Name => false,
        Evidence::Value => style.quoted || style.alone,
        Evidence::Shape => style.quoted,
    };
    is_apart && strength == NameStrength::Password && words.len() >= 8 && !is_sentence()
}

/// Returns true if a word in a value of several words is a secret by itself.
pub(crate) fn is_secret_among_words(word: &str) -> bool {
    let word = trim_punctuation(word);
    is_random(word) && !is_uuid(word) && !word.contains("://") && !is_reference(word)
}

/// Returns true if the credential after `Bearer` is one. `named` is set after a header such as `Authorization:`.
pub(crate) fn is_bearer_token(token: &str, named: bool, evidence: Evidence) -> bool {
    let token = trim_punctuation(token);
    if is_masked(token) || is_placeholder(token) || is_reference(token) || is_common(token) {
        return false;
    }
    let digit = token.bytes().any(|byte| byte.is_ascii_digit());
    let letter = token.bytes().any(|byte| byte.is_ascii_alphabetic());
    match evidence {
        Evidence::Name => true,
        Evidence::Value => named || digit && letter || token.len() >= 20 && is_mixed_case(token),
        Evidence::Shape => is_random(token) && token.len() >= 16,
    }
}

/// Returns true if the credential after `Basic` is one: base64 of a user and a password.
pub(crate) fn is_basic_credential(credential: &str) -> bool {
    let printable = |text: &str| text.contains(':') && !text.chars().any(char::is_control);
    decode_base64(trim_punctuation(credential))
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .is_some_and(|text| printable(&text))
}

/// Returns true if the password of a URL is one.
pub(crate) fn is_url_password(password: &str, evidence: Evidence) -> bool {
    match evidence {
        Evidence::Name => true,
        Evidence::Value => !is_masked(password) && !password.starts_with('<'),
        Evidence::Shape => {
            let example =
                matches!(password.to_ascii_lowercase().as_str(), "password" | "pass" | "pwd" | "secret");
            !is_masked(password)
                && !is_placeholder(password)
                && !example
                && password.len() >= MIN_PASSWORD_LENGTH
        }
    }
}

/// Returns true if a secret is worth searching for in other text: a common or short word would hide harmless text.
pub fn is_distinctive(secret: &str) -> bool {
    let plain = secret.bytes().all(|byte| byte.is_ascii_alphabetic());
    let length = secret.chars().count();
    length >= if plain { MIN_TOKEN_LENGTH } else { MIN_PASSWORD_LENGTH }
        && !is_masked(secret)
        && !is_placeholder(secret)
        && !is_common(secret)
}

/// Returns true if a word has a run of letters and digits that looks generated. Words and numbers alternate in
/// identifiers too (`Base64EncodedString2`), but less often than in random text: there, every second or third character
/// starts a new word or number.
pub(crate) fn is_random(word: &str) -> bool {
    word.as_bytes().split(|byte| !byte.is_ascii_alphanumeric()).any(is_random_run)
}

fn is_random_run(run: &[u8]) -> bool {
    if run.len() < MIN_RANDOM_LENGTH || !run.iter().any(u8::is_ascii_digit) {
        return false;
    }
    let class = |byte: u8| match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        _ => 2,
    };
    // A new piece starts at every change of class, except after the capital of a word.
    let mut pieces = 1;
    for (at, pair) in run.windows(2).enumerate() {
        let [before, after] = [class(pair[0]), class(pair[1])];
        let capitalized = before == 2 && after == 1 && (at == 0 || class(run[at - 1]) != 2);
        pieces += usize::from(before != after && !capitalized);
    }
    let longest_piece = if run.len() >= 24 { 40 } else { 31 };
    run.len() * 10 <= pieces * longest_piece && run.iter().any(u8::is_ascii_alphabetic)
}

fn is_mixed_case(word: &str) -> bool {
    word.bytes().any(|byte| byte.is_ascii_uppercase())
        && word.bytes().skip(1).any(|byte| byte.is_ascii_lowercase())
}

/// Removes the signs around a word in a sentence.
fn trim_punctuation(word: &str) -> &str {
    let word = word.trim_start_matches(['"', '\'', '`', '(']);
    word.trim_end_matches(['"', '\'', '`', ')', ',', ';', '.', ':', '?', '!'])
}

fn is_common(word: &str) -> bool {
    let word = word.to_lowercase();
    COMMON_WORDS.contains(&word.as_str()) || STOP_WORDS.contains(&word.as_str())
}

/// Returns true if the word is masked already.
fn is_masked(word: &str) -> bool {
    word.is_empty() || word.bytes().all(|byte| byte == b'*') || word == MASK
}

/// Returns true for `<token>`, `YOUR_API_KEY`, `{{ … }}`, `[REDACTED]`, `xxxx`.
fn is_placeholder(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let first = word.chars().next();
    let same = word.chars().all(|c| Some(c) == first);
    let is_constant = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let capitals = word.bytes().all(is_constant)
        && (word.contains('_') && !is_random(word) || word.bytes().all(|byte| byte.is_ascii_uppercase()));
    let marked = [('<', '>'), ('[', ']'), ('{', '}')];
    same || capitals
        || marked.iter().any(|(open, close)| word.starts_with(*open) && word.ends_with(*close))
        || word.starts_with("{{")
        || word.starts_with("${")
        || ["your_", "your-", "my_", "my-"].iter().any(|start| lower.starts_with(start)) && !is_random(word)
        || ["xxxx", "placeholder", "redacted", "changeme", "...", "…"].iter().any(|part| lower.contains(part))
}

/// Returns true for code that refers to a value: `self.token`, `getpass()`, `&str`, `$password`, `access_token`.
fn is_reference(word: &str) -> bool {
    let is_name = |part: &str| {
        let part = part.strip_suffix(['!', '?']).unwrap_or(part);
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
    };
    let body = word.trim_end_matches([';', ',']);
    let calls = body.find('(').is_some_and(|at| {
        body[..at].split(['.', ':', '-', '>']).all(|part| part.is_empty() || is_name(part))
    });
    let indexes = body.find(['[', '<']).is_some_and(|at| is_name(&body[..at]));
    let chain =
        body.contains(['.', ':']) && body.split(['.', ':']).all(|part| part.is_empty() || is_name(part));
    let variable = body
        .strip_prefix(['$', '&', '@', '*', '%', '?'])
        .is_some_and(|rest| is_name(rest.trim_end_matches('%')));
    calls
        || indexes
        || chain
        || variable
        || body.starts_with("$_")
        || is_name(body) && looks_secret(body)
        || body.contains("::")
        || body.starts_with('{')
        || body.starts_with(':')
        || body.starts_with("--")
}

fn is_path(word: &str) -> bool {
    let bytes = word.as_bytes();
    ["/", "./", "../", "~"].iter().any(|start| word.starts_with(start))
        || bytes.get(1) == Some(&b':') && matches!(bytes.get(2), Some(b'\\' | b'/'))
}

fn is_uuid(word: &str) -> bool {
    let parts: Vec<_> = word.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}
