//! Collects the chunks of a body, up to a size limit.
//!
//! Invariant: a body that arrives in one chunk, as most do, is not copied; memory grows with the bytes received, never
//! with a length that the peer announced.

use bytes::{Bytes, BytesMut};

/// The body exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyTooLarge;

/// Chunks received so far.
#[derive(Debug)]
pub struct BodyBuffer {
    limit: usize,
    first: Bytes,
    more: BytesMut,
}

impl BodyBuffer {
    /// Creates a buffer for at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, first: Bytes::new(), more: BytesMut::new() }
    }

    pub fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a chunk.
    ///
    /// # Errors
    /// If the body would exceed the limit.
    pub fn push(&mut self, part: Bytes) -> Result<(), BodyTooLarge> {
        let length = self.len() + part.len();
        if length > self.limit {
            return Err(BodyTooLarge);
        }
        if self.is_empty() {
            self.first = part;
            return Ok(());
        }
        if self.more.is_empty() {
            // Room for as much again, not for an announced Content-Length that may be a lie.
            self.more.reserve(length * 2);
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(&part);
        Ok(())
    }

    /// Returns the whole body.
    pub fn finish(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

#[test]
fn collects_chunks_within_limit() {
    let collect = |parts: &[&'static str]| {
        let mut gather = BodyBuffer::new(6);
        for part in parts {
            gather.push(Bytes::from_static(part.as_bytes()))?;
        }
        Ok(gather.finish())
    };
    assert_eq!(collect(&[]), Ok(Bytes::new()));
    assert_eq!(collect(&["", "ab", "", "cd", "ef"]), Ok(Bytes::from_static(b"abcdef")));
    assert_eq!(collect(&["abc", "def", "g"]), Err(BodyTooLarge));
    let whole = Bytes::from_static(b"abc");
    let mut gather = BodyBuffer::new(3);
    gather.push(whole.clone()).unwrap();
    assert_eq!(gather.finish().as_ptr(), whole.as_ptr(), "it is not copied");
}
