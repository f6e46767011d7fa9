//! Trace ids of a call: W3C trace context and a correlation id.
//!
//! Every request to a server carries both, in `_meta` on every transport and in headers over HTTP, so that a
//! server's logs can be joined with ours. Invariant: an external id is taken unchanged or not at all, and an
//! accepted id is always safe in a header.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest correlation id accepted from outside.
const MAX_ID_BYTES: usize = 128;

/// Trace ids of one call. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext(Arc<TraceIds>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct TraceIds {
    /// W3C format, version 0, sampled.
    traceparent: [u8; TRACEPARENT_LENGTH],
    span_id: u64,
    /// Parent span, if the caller named one.
    parent: Option<u64>,
    correlation_id: CorrelationId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CorrelationId {
    FromClient(Box<str>),
    /// A UUID.
    Generated([u8; 36]),
}

/// Length of `00-{trace}-{span}-01`.
const TRACEPARENT_LENGTH: usize = 55;

/// Position of the trace id in a `traceparent`.
const TRACE_ID_RANGE: std::ops::Range<usize> = 3..35;

impl TraceContext {
    /// Key of the correlation id in `_meta`; keys that are not of the protocol need a prefix.
    pub const CORRELATION_ID: &'static str = "toolgate/correlationId";

    /// Starts a trace with an external correlation id. An id with characters other than letters, digits, `.`, `_`
    /// and `-` is replaced by a generated one, so that it cannot inject headers or log content.
    pub fn new(correlation_id: &str) -> Self {
        if is_valid_id(correlation_id) {
            Self::with(CorrelationId::FromClient(correlation_id.into()))
        } else {
            Self::generate()
        }
    }

    /// Joins the trace of `parent` if it is valid: a W3C `traceparent`, or only the 32 hex digits of a trace id.
    #[must_use]
    pub fn with_parent(mut self, parent: &str) -> Self {
        if let Some((id, span)) = trace_id(parent) {
            let ids = Arc::make_mut(&mut self.0);
            ids.traceparent = traceparent(&id, ids.span_id);
            ids.parent = span;
        }
        self
    }

    /// Starts a trace with a generated, time-ordered correlation id.
    pub fn generate() -> Self {
        // With a clock before 1970, ids lose their order and nothing else.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::with(CorrelationId::Generated(uuid_v7(since.as_millis(), fastrand::u128(..))))
    }

    fn with(correlation_id: CorrelationId) -> Self {
        // All-zero ids are invalid in W3C trace context.
        let (trace_id, span_id) = (fastrand::u128(1..), fastrand::u64(1..));
        let traceparent = traceparent(&hex(trace_id), span_id);
        Self(Arc::new(TraceIds { traceparent, span_id, parent: None, correlation_id }))
    }

    /// Joins the records of one call in our log and in the server's.
    pub fn correlation_id(&self) -> &str {
        match &self.0.correlation_id {
            CorrelationId::FromClient(id) => id,
            CorrelationId::Generated(id) => ascii_str(id),
        }
    }

    /// Trace id as 32 hex digits.
    pub fn trace_id(&self) -> &str {
        &self.traceparent()[TRACE_ID_RANGE]
    }

    /// Span id sent to servers.
    pub fn span_id(&self) -> u64 {
        self.0.span_id
    }

    /// Span id from the caller's `traceparent`.
    pub fn parent_span_id(&self) -> Option<u64> {
        self.0.parent
    }

    /// True if the caller supplied the correlation id.
    pub fn is_from_client(&self) -> bool {
        matches!(self.0.correlation_id, CorrelationId::FromClient(_))
    }

    /// Value of the `traceparent` header and `_meta` member.
    pub fn traceparent(&self) -> &str {
        ascii_str(&self.0.traceparent)
    }
}

fn traceparent(trace_id: &[u8; 32], span_id: u64) -> [u8; TRACEPARENT_LENGTH] {
    let mut text = *b"00-................................-................-01";
    text[TRACE_ID_RANGE].copy_from_slice(trace_id);
    text[TRACE_ID_RANGE.end + 1..TRACEPARENT_LENGTH - 3].copy_from_slice(&hex(u128::from(span_id))[16..]);
    text
}

fn hex(number: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
        (pair[0], pair[1]) = (digit(byte >> 4), digit(byte & 15));
    }
    digits
}

fn ascii_str(text: &[u8]) -> &str {
    std::str::from_utf8(text).expect("hex digits and dashes are ASCII")
}

fn is_valid_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Extracts trace id and span id of a `traceparent`: `00-{trace}-{span}-{flags}`, lower case, not all zero. Later
/// versions start with the same fields.
fn trace_id(parent: &str) -> Option<([u8; 32], Option<u64>)> {
    let hex = |hex_str: &str, digits: usize| {
        let good = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        hex_str.len() == digits && hex_str.bytes().all(good) && hex_str.bytes().any(|byte| byte != b'0')
    };
    if hex(parent, 32) {
        return Some((parent.as_bytes().try_into().ok()?, None));
    }
    let mut parts = parent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_known_version =
        version == "00" && parts.next().is_none() || version != "00" && hex(version, 2) && version != "ff";
    let is_valid = is_known_version && hex(trace, 32) && hex(span, 16) && flags.len() == 2;
    let trace = trace.as_bytes().try_into().ok().filter(|_| is_valid)?;
    Some((trace, u64::from_str_radix(span, 16).ok()))
}

/// RFC 9562: 48 bits of time, then random bits, with version and variant set.
fn uuid_v7(millis: u128, random: u128) -> [u8; 36] {
    let bits = (millis << 80) | (random & !(u128::MAX << 80));
    let bits = (bits & !(0xf << 76) & !(0b11 << 62)) | (7 << 76) | (0b10 << 62);
    let hex = hex(bits);
    let mut text = [b'-'; 36];
    text[..8].copy_from_slice(&hex[..8]);
    text[9..13].copy_from_slice(&hex[8..12]);
    text[14..18].copy_from_slice(&hex[12..16]);
    text[19..23].copy_from_slice(&hex[16..20]);
    text[24..].copy_from_slice(&hex[20..]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_correlation_ids() {
        for good in ["a", "A.b_c-9", &"x".repeat(MAX_ID_BYTES)] {
            assert_eq!(TraceContext::new(good).correlation_id(), good);
        }
        for bad in ["", "a b", "a\r\nX-Admin: 1", "ä", "a/b", "a%0d%0a", &"x".repeat(MAX_ID_BYTES + 1)] {
            let id = TraceContext::new(bad).correlation_id().to_owned();
            assert_eq!((id.len(), &id[14..15]), (36, "7"), "{bad:?} became {id}");
        }
    }

    #[test]
    fn external_trace_ids() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for good in [trace, &format!("00-{trace}-{span}-01"), &format!("cc-{trace}-{span}-01-more")] {
            let within = TraceContext::new("c").with_parent(good);
            assert_eq!((within.trace_id(), within.correlation_id()), (trace, "c"), "{good}");
            assert!(!within.traceparent().contains(span), "the span id is generated");
        }
        let zero = "0".repeat(32);
        let upper = trace.to_uppercase();
        for bad in [
            "",
            "00",
            &zero,
            &upper,
            &format!("00-{zero}-{span}-01"),
            &format!("ff-{trace}-{span}-01"),
            &format!("00-{trace}-{span}-01-more"),
            &format!("00-{trace}-{span}\r\n-01"),
        ] {
            let trace = TraceContext::generate();
            assert_eq!(trace.clone().with_parent(bad), trace, "{bad:?}");
        }
    }

    #[test]
    fn generated_ids() {
        assert_eq!(uuid_v7(0x0123_4567_89ab, 0), *b"01234567-89ab-7000-8000-000000000000");
        assert_eq!(uuid_v7(0, u128::MAX), *b"00000000-0000-7fff-bfff-ffffffffffff");
        let (one, other) = (TraceContext::generate(), TraceContext::generate());
        assert_ne!(one, other);
        assert!(is_valid_id(one.correlation_id()));
        let spelled = traceparent(&hex(10), 11);
        assert_eq!(spelled, *b"00-0000000000000000000000000000000a-000000000000000b-01");
        assert_eq!(&one.traceparent()[TRACE_ID_RANGE], one.trace_id());
        assert_eq!(one.trace_id().len(), 32);
    }
}
