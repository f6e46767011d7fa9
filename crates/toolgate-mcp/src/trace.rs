//! Which call a request belongs to: a trace as the W3C defines it, and the correlation id of who asked.
//!
//! Every request carries both, in its `_meta` on every transport and in headers over HTTP, so that what
//! a server writes down can be laid beside what we do. Invariant: an id from outside is taken as it is
//! or not at all, and none that was taken can end a header.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest id that is taken from outside.
const LONGEST: usize = 128;

/// The ids of one call, which many hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(Arc<Ids>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Ids {
    /// As the W3C spells it: sampled, in version 0.
    traceparent: Box<str>,
    span_id: u64,
    /// The span that this one is below.
    parent: Option<u64>,
    correlation_id: Box<str>,
    from_client: bool,
}

/// Where the id of the trace stands in a `traceparent`.
const TRACE_ID: std::ops::Range<usize> = 3..35;

impl Trace {
    /// The name of the correlation id in `_meta`, where names that are not the protocol's have a prefix.
    pub const CORRELATION_ID: &'static str = "toolgate/correlationId";

    /// A new trace with a correlation id from outside. One that is not made of letters, digits, `.`, `_`
    /// and `-` is replaced: it could be more than an id to whoever reads it.
    pub fn new(correlation_id: &str) -> Self {
        if is_good(correlation_id) { Self::with(correlation_id.into(), true) } else { Self::fresh() }
    }

    /// The same as a part of a trace that began elsewhere, where that is one: a `traceparent` as the W3C
    /// spells it, or the 32 digits of its id alone.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        if let Some((id, span)) = trace_id(parent) {
            let ids = Arc::make_mut(&mut self.0);
            ids.traceparent = traceparent(id, ids.span_id);
            ids.parent = span;
        }
        self
    }

    /// A new trace with a new correlation id, which sorts by time.
    pub fn fresh() -> Self {
        // A clock before 1970 costs the order and nothing else.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::with(uuid_v7(since.as_millis(), fastrand::u128(..)), false)
    }

    fn with(correlation_id: Box<str>, from_client: bool) -> Self {
        // Zero means that there is none.
        let (trace_id, span_id) = (fastrand::u128(1..), fastrand::u64(1..));
        let traceparent = traceparent(text(&hex(trace_id)), span_id);
        Self(Arc::new(Ids { traceparent, span_id, parent: None, correlation_id, from_client }))
    }

    /// What joins the records of one call, in our words and in the server's.
    pub fn correlation_id(&self) -> &str {
        &self.0.correlation_id
    }

    /// The id of the trace, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.0.traceparent[TRACE_ID]
    }

    /// The span that servers are told.
    pub fn span_id(&self) -> u64 {
        self.0.span_id
    }

    /// The span that the caller named.
    pub fn parent(&self) -> Option<u64> {
        self.0.parent
    }

    /// Whether the correlation id was given by who calls.
    pub fn is_from_client(&self) -> bool {
        self.0.from_client
    }

    /// The trace, as the header and the member of `_meta` of that name spell it.
    pub fn traceparent(&self) -> &str {
        &self.0.traceparent
    }
}

fn traceparent(trace_id: &str, span_id: u64) -> Box<str> {
    ["00-", trace_id, "-", &text(&hex(u128::from(span_id)))[16..], "-01"].concat().into()
}

/// The 32 hexadecimal digits of a number.
fn hex(number: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
        (pair[0], pair[1]) = (digit(byte >> 4), digit(byte & 15));
    }
    digits
}

fn text(digits: &[u8; 32]) -> &str {
    std::str::from_utf8(digits).expect("digits are characters")
}

fn is_good(id: &str) -> bool {
    (1..=LONGEST).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The id in a `traceparent`: `00-{trace}-{span}-{flags}`, in lower case, and not all of it zero. Later versions
/// begin in the same way.
fn trace_id(parent: &str) -> Option<(&str, Option<u64>)> {
    let hex = |text: &str, digits: usize| {
        let good = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        text.len() == digits && text.bytes().all(good) && text.bytes().any(|byte| byte != b'0')
    };
    if hex(parent, 32) {
        return Some((parent, None));
    }
    let mut parts = parent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let known =
        version == "00" && parts.next().is_none() || version != "00" && hex(version, 2) && version != "ff";
    (known && hex(trace, 32) && hex(span, 16) && flags.len() == 2)
        .then(|| (trace, u64::from_str_radix(span, 16).ok()))
}

/// RFC 9562: 48 bits of time, then chance, with the version and the variant in their places.
fn uuid_v7(millis: u128, chance: u128) -> Box<str> {
    let bits = (millis << 80) | (chance & !(u128::MAX << 80));
    let bits = (bits & !(0xf << 76) & !(0b11 << 62)) | (7 << 76) | (0b10 << 62);
    let hex = hex(bits);
    let hex = text(&hex);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_from_outside() {
        for good in ["a", "A.b_c-9", &"x".repeat(LONGEST)] {
            assert_eq!(Trace::new(good).correlation_id(), good);
        }
        for bad in ["", "a b", "a\r\nX-Admin: 1", "ä", "a/b", "a%0d%0a", &"x".repeat(LONGEST + 1)] {
            let id = Trace::new(bad).correlation_id().to_owned();
            assert_eq!((id.len(), &id[14..15]), (36, "7"), "{bad:?} became {id}");
        }
    }

    #[test]
    fn traces_from_outside() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for good in [trace, &format!("00-{trace}-{span}-01"), &format!("cc-{trace}-{span}-01-more")] {
            let within = Trace::new("c").within(good);
            assert_eq!((within.trace_id(), within.correlation_id()), (trace, "c"), "{good}");
            assert!(!within.traceparent().contains(span), "the span is one of our own");
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
            let trace = Trace::fresh();
            assert_eq!(trace.clone().within(bad), trace, "{bad:?}");
        }
    }

    #[test]
    fn ids_of_our_own() {
        assert_eq!(&*uuid_v7(0x0123_4567_89ab, 0), "01234567-89ab-7000-8000-000000000000");
        assert_eq!(&*uuid_v7(0, u128::MAX), "00000000-0000-7fff-bfff-ffffffffffff");
        let (one, other) = (Trace::fresh(), Trace::fresh());
        assert_ne!(one, other);
        assert!(is_good(one.correlation_id()));
        let spelled = traceparent(text(&hex(10)), 11);
        assert_eq!(&*spelled, "00-0000000000000000000000000000000a-000000000000000b-01");
        assert_eq!(&one.traceparent()[TRACE_ID], one.trace_id());
        assert_eq!(one.trace_id().len(), 32);
    }
}
