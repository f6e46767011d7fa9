//! Shapes of keys that are secrets wherever they stand: keys of well-known providers, JSON Web Tokens, PEM private keys,
//! webhook URLs.
//!
//! A prefix alone proves nothing (`sk-learn`, `npm_config_cache`): the rest must have the characters and the length of a
//! key too. Invariant: linear in the text.

use std::ops::Range;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use memchr::memmem;

/// Rest of a key, after its prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyBody {
    /// At least this many key characters. Either a run of at least twelve letters and digits is among them, one a digit,
    /// or letters of both cases and digits alternate.
    Token(usize),
    /// At least this many key characters, one a digit. For prefixes that occur nowhere else.
    Distinct(usize),
    /// At least this many letters and digits in a row, one a digit.
    Alphanumeric(usize),
    /// Exactly this many capitals and digits.
    Capitals(usize),
    /// Exactly this many hexadecimal digits.
    Hex(usize),
    /// A JSON Web Token: the header names its algorithm.
    Jwt,
    /// Parts of at least these lengths, separated by a dot.
    Parts(usize, usize),
}

impl KeyBody {
    /// Returns the minimum number of key characters after the prefix.
    pub(crate) const fn min_length(self) -> usize {
        match self {
            Self::Token(length)
            | Self::Distinct(length)
            | Self::Alphanumeric(length)
            | Self::Capitals(length)
            | Self::Hex(length) => length,
            Self::Jwt => 20,
            Self::Parts(first, second) => first + 1 + second,
        }
    }
}

use KeyBody::{Alphanumeric, Capitals, Distinct, Hex, Jwt, Parts, Token};

/// Key prefixes of well-known providers.
pub(crate) const KEY_PREFIXES: [(&str, KeyBody); 83] = [
    // Toolgate.
    ("tg_", Token(40)),
    // OpenAI, Anthropic, OpenRouter, DeepSeek and others.
    ("sk-", Token(16)),
    // Groq, xAI, Perplexity, Replicate, NVIDIA, Hugging Face, Pinecone, Tavily, LangSmith.
    ("gsk_", Alphanumeric(20)),
    ("xai-", Alphanumeric(40)),
    ("pplx-", Alphanumeric(32)),
    ("r8_", Alphanumeric(30)),
    ("nvapi-", Token(32)),
    ("hf_", Alphanumeric(30)),
    ("api_org_", Alphanumeric(30)),
    ("pcsk_", Token(32)),
    ("tvly-", Token(20)),
    ("lsv2_", Token(32)),
    // Stripe.
    ("sk_live_", Alphanumeric(8)),
    ("sk_test_", Alphanumeric(8)),
    ("rk_live_", Alphanumeric(8)),
    ("rk_test_", Alphanumeric(8)),
    ("whsec_", Alphanumeric(24)),
    // GitHub.
    ("ghp_", Alphanumeric(16)),
    ("gho_", Alphanumeric(16)),
    ("ghu_", Alphanumeric(16)),
    ("ghs_", Alphanumeric(16)),
    ("ghr_", Alphanumeric(16)),
    ("github_pat_", Alphanumeric(16)),
    // GitLab.
    ("glpat-", Token(12)),
    ("gldt-", Token(16)),
    ("glrt-", Token(16)),
    ("glcbt-", Token(16)),
    ("glptt-", Token(16)),
    ("glsoat-", Token(16)),
    ("glagent-", Token(30)),
    // Slack.
    ("xoxb-", Distinct(8)),
    ("xoxp-", Distinct(8)),
    ("xoxa-", Distinct(8)),
    ("xoxr-", Distinct(8)),
    ("xoxs-", Distinct(8)),
    ("xoxe-", Distinct(8)),
    ("xoxe.", Token(24)),
    ("xapp-", Distinct(8)),
    // AWS.
    ("AKIA", Capitals(16)),
    ("ASIA", Capitals(16)),
    // Google.
    ("AIza", Token(30)),
    ("ya29.", Token(30)),
    ("GOCSPX-", Token(20)),
    // JSON Web Tokens, and service accounts of 1Password.
    ("eyJ", Jwt),
    ("ops_eyJ", Token(40)),
    // Twilio, SendGrid, Mailgun, Brevo.
    ("SK", Hex(32)),
    ("SG.", Parts(16, 32)),
    ("key-", Hex(32)),
    ("xkeysib-", Token(40)),
    // npm, PyPI, RubyGems, Docker.
    ("npm_", Alphanumeric(30)),
    ("pypi-AgE", Token(30)),
    ("rubygems_", Hex(48)),
    ("dckr_pat_", Token(20)),
    // DigitalOcean, Tailscale, Supabase, PlanetScale, Heroku, Netlify.
    ("dop_v1_", Hex(64)),
    ("doo_v1_", Hex(64)),
    ("dor_v1_", Hex(64)),
    ("tskey-", Token(16)),
    ("sbp_", Hex(40)),
    ("pscale_tkn_", Token(32)),
    ("pscale_pw_", Token(32)),
    ("HRKU-", Token(30)),
    ("nfp_", Alphanumeric(30)),
    // Shopify, Square.
    ("shpat_", Hex(32)),
    ("shpss_", Hex(32)),
    ("shpca_", Hex(32)),
    ("shppa_", Hex(32)),
    ("sq0atp-", Token(20)),
    ("sq0csp-", Token(30)),
    // Linear, Notion, Figma, HubSpot, Postman.
    ("lin_api_", Alphanumeric(32)),
    ("ntn_", Alphanumeric(32)),
    ("secret_", Alphanumeric(40)),
    ("figd_", Token(30)),
    ("pat-na1-", Token(30)),
    ("pat-eu1-", Token(30)),
    ("PMAK-", Token(40)),
    // Sentry, Grafana, New Relic.
    ("sntrys_", Token(40)),
    ("sntryu_", Hex(64)),
    ("glsa_", Alphanumeric(30)),
    ("glc_eyJ", Token(40)),
    ("NRAK-", Capitals(27)),
    // HashiCorp Vault, Doppler, age.
    ("hvs.", Token(24)),
    ("dp.pt.", Token(30)),
    ("AGE-SECRET-KEY-1", Capitals(58)),
];

/// Minimum length of a key with one of these prefixes. Most words are shorter and ruled out at once.
pub(crate) const MIN_KEY_LENGTH: usize = {
    let mut shortest = usize::MAX;
    let mut index = 0;
    while index < KEY_PREFIXES.len() {
        let length = KEY_PREFIXES[index].0.len() + KEY_PREFIXES[index].1.min_length();
        shortest = if length < shortest { length } else { shortest };
        index += 1;
    }
    shortest
};

/// True for bytes that can be part of a key.
pub(crate) const IS_KEY_BYTE: [bool; 256] = {
    let mut part = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let ascii = byte as u8;
        part[byte] = ascii.is_ascii_alphanumeric() || matches!(ascii, b'_' | b'-' | b'.');
        byte += 1;
    }
    part
};

/// Hosts and paths of webhooks; the rest of such a URL is a secret.
pub(crate) const WEBHOOKS: [&str; 3] =
    ["hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/"];
/// Minimum length of the rest of such a URL.
pub(crate) const MIN_WEBHOOK_LENGTH: usize = 24;

/// Digits of the id of a Telegram bot, and the length of its key.
pub(crate) const TELEGRAM_ID: Range<usize> = 8..11;
pub(crate) const TELEGRAM_KEY: usize = 35;

/// Start of a PEM block.
pub(crate) const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";
/// Maximum length of the label of a PEM block.
const MAX_PEM_LABEL: usize = 40;
/// Minimum length of a line of base64 in a PEM block. Less is prose about one.
const MIN_PEM_LINE: usize = 20;

/// Base64 of both alphabets, padded or not.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);

/// Decodes base64 of either alphabet.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

/// Finds keys by their shape: `sk-…`, `ghp_…`, a JSON Web Token.
pub(crate) fn find_keys(text: &str, ranges: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| IS_KEY_BYTE[usize::from(*byte)];
    let mut start = 0;
    // The shortest possible key at `start` ends within this slice. A byte in it that cannot be part of a key rules out
    // every start before that byte.
    while let Some(shortest) = bytes.get(start..start + MIN_KEY_LENGTH) {
        if let Some(last) = shortest.iter().rposition(|byte| !is_part(byte)) {
            start += last + 1;
            continue;
        }
        let rest = &bytes[start + MIN_KEY_LENGTH..];
        let end = start + MIN_KEY_LENGTH + rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        // The dot after a sentence is not part of a key.
        let key = text[start..end].trim_end_matches('.');
        if is_key(key) {
            ranges.push(start..start + key.len());
        }
        start = end + 1;
    }
}

/// Returns true if a run of key characters is a key.
fn is_key(key: &str) -> bool {
    let shaped =
        |(prefix, body): &(&str, KeyBody)| key.strip_prefix(prefix).is_some_and(|rest| has_body(rest, *body));
    KEY_PREFIXES.iter().any(shaped) || is_discord_token(key)
}

fn has_body(rest: &str, body: KeyBody) -> bool {
    let bytes = rest.as_bytes();
    let run = |is: fn(&u8) -> bool| bytes.iter().take_while(|byte| is(byte)).count();
    let has_digit = |bytes: &[u8]| bytes.iter().any(u8::is_ascii_digit);
    // A key is followed by a sign, or by nothing.
    let ends = |length: usize| bytes.get(length).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    match body {
        Token(length) => {
            let mixed =
                |part: &[u8]| part.len() >= 12 && has_digit(part) && part.iter().any(u8::is_ascii_alphabetic);
            let mut parts = bytes.split(|byte| !byte.is_ascii_alphanumeric());
            bytes.len() >= length && (parts.any(mixed) || alternates(bytes))
        }
        Distinct(length) => bytes.len() >= length && has_digit(bytes),
        Alphanumeric(length) => {
            let found = run(u8::is_ascii_alphanumeric);
            found >= length && has_digit(&bytes[..found])
        }
        Capitals(length) => {
            run(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) == length && ends(length)
        }
        Hex(length) => run(u8::is_ascii_hexdigit) == length && ends(length),
        Jwt => is_jwt(rest),
        Parts(first, second) => {
            let mut parts = rest.split('.');
            let lengths = [parts.next(), parts.next()].map(|part| part.unwrap_or_default().len());
            lengths[0] >= first && lengths[1] >= second && has_digit(bytes)
        }
    }
}

/// Returns true if letters of both cases and digits alternate, as in base64.
fn alternates(bytes: &[u8]) -> bool {
    let class = |byte: &u8| match byte {
        b'0'..=b'9' => 1,
        b'a'..=b'z' => 2,
        b'A'..=b'Z' => 4,
        _ => 0,
    };
    let classes = bytes.iter().fold(0, |classes, byte| classes | class(byte));
    // The capital of a word is no change.
    let changes = |pair: &&[u8]| {
        !matches!((class(&pair[0]), class(&pair[1])), (0, _) | (_, 0) | (4, 2))
            && class(&pair[0]) != class(&pair[1])
    };
    classes == 7 && bytes.windows(2).filter(changes).count() >= 4
}

/// Returns true for a JSON Web Token, given without its first three characters. Other base64 of JSON, such as a cursor,
/// has neither a dot nor an algorithm.
fn is_jwt(rest: &str) -> bool {
    let Some((header, payload)) = rest.split_once('.') else { return false };
    let alg = |json: Vec<u8>| memmem::find(&json, b"\"alg\"").is_some();
    // A header is short; a long one would make this quadratic.
    payload.len() >= 4 && header.len() < 4096 && decode_base64(&format!("eyJ{header}")).is_some_and(alg)
}

/// Returns true for the token of a Discord bot: the id of the bot, a time and a signature, all in base64.
fn is_discord_token(key: &str) -> bool {
    let mut parts = key.split('.');
    let (Some(id), Some(time), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    // Ids are decimal numbers, so their base64 starts with one of these letters.
    id.starts_with(['M', 'N', 'O'])
        && DISCORD_ID.contains(&id.len())
        && time.len() == DISCORD_TIME
        && signature.len() >= DISCORD_SIGNATURE
        && [id, signature].iter().all(|part| part.bytes().any(|byte| byte.is_ascii_digit()))
}

pub(crate) const DISCORD_ID: Range<usize> = 22..30;
pub(crate) const DISCORD_TIME: usize = 6;
pub(crate) const DISCORD_SIGNATURE: usize = 27;

/// Finds the secret of a webhook URL: its path.
pub(crate) fn find_webhooks(text: &str, ranges: &mut Vec<Range<usize>>) {
    for webhook in WEBHOOKS {
        for at in memmem::find_iter(text.as_bytes(), webhook) {
            let start = at + webhook.len();
            let is_part = |byte: &u8| IS_KEY_BYTE[usize::from(*byte)] || *byte == b'/';
            let length = text.as_bytes()[start..].iter().take_while(|byte| is_part(byte)).count();
            if length >= MIN_WEBHOOK_LENGTH {
                ranges.push(start..start + length);
            }
        }
    }
}

/// Finds keys of Telegram bots: `123456789:AA…`.
pub(crate) fn find_telegram_keys(text: &str, ranges: &mut Vec<Range<usize>>) {
    for colon in memchr::memchr_iter(b':', text.as_bytes()) {
        ranges.extend(telegram_key_at(text.as_bytes(), colon));
    }
}

/// Returns the key of a Telegram bot around a colon.
pub(crate) fn telegram_key_at(bytes: &[u8], colon: usize) -> Option<Range<usize>> {
    let key = bytes.get(colon + 1..colon + 1 + TELEGRAM_KEY).filter(|key| key.starts_with(b"AA"))?;
    let digits =
        bytes[..colon].iter().rev().take(TELEGRAM_ID.end).take_while(|byte| byte.is_ascii_digit()).count();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let end = colon + 1 + TELEGRAM_KEY;
    let ends = bytes.get(end).is_none_or(|byte| !is_part(byte));
    (TELEGRAM_ID.contains(&digits) && key.iter().all(is_part) && ends).then_some(colon - digits..end)
}

/// Returns true if a PEM block with a private key starts here.
pub(crate) fn is_private_key_block(bytes: &[u8]) -> bool {
    pem_label(bytes).is_some()
}

/// Returns the length of the first line of a PEM private key.
fn pem_label(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(PEM_BEGIN.as_bytes())?;
    let label = rest
        .iter()
        .take(MAX_PEM_LABEL)
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b' ')
        .count();
    let is_private = memmem::find(&rest[..label], b"PRIVATE KEY").is_some();
    (is_private && rest[label..].starts_with(b"-----")).then_some(PEM_BEGIN.len() + label + 5)
}

/// Finds PEM private keys, on several lines or on one. Without an end, the rest of the text is part of the key.
pub(crate) fn find_private_keys(text: &str, ranges: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(found) = memmem::find(&bytes[from..], PEM_BEGIN.as_bytes()) {
        let start = from + found;
        from = start + PEM_BEGIN.len();
        let Some(label) = pem_label(&bytes[start..]) else { continue };
        let body = start + label;
        let end = memmem::find(&bytes[body..], PEM_END.as_bytes()).map(|end| body + end);
        let content = &bytes[body..end.unwrap_or(bytes.len())];
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        if !content.split(|byte| !is_base64(byte)).any(|line| line.len() >= MIN_PEM_LINE) {
            // Prose about keys. The text up to the end of the block was searched, so continue there.
            let Some(end) = end else { return };
            from = end;
            continue;
        }
        let end = end.map_or(bytes.len(), |end| {
            let label = end + PEM_END.len();
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'-');
            let length = bytes[label..].iter().take(MAX_PEM_LABEL).take_while(|byte| is_part(byte)).count();
            let dashes = memmem::find(&bytes[label..label + length], b"-----");
            dashes.map_or(label, |dashes| label + dashes + 5)
        });
        ranges.push(start..end);
        from = end;
    }
}
