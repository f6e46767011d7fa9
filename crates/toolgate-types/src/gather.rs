//! Parts of a body, put together within a limit.
//!
//! Invariant: what comes in one piece, as most bodies do, is not copied; nobody makes us hold more than came.

use bytes::{Bytes, BytesMut};

/// There is more than may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch;

/// What has come so far.
#[derive(Debug)]
pub struct Gather {
    limit: usize,
    first: Bytes,
    more: BytesMut,
}

impl Gather {
    /// Takes at most so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, first: Bytes::new(), more: BytesMut::new() }
    }

    /// How much has come.
    pub fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    /// Whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next part.
    ///
    /// # Errors
    /// When it is too much with what came before.
    pub fn add(&mut self, part: Bytes) -> Result<(), TooMuch> {
        let length = self.len() + part.len();
        if length > self.limit {
            return Err(TooMuch);
        }
        if self.is_empty() {
            self.first = part;
            return Ok(());
        }
        if self.more.is_empty() {
            // As much again is likely to come; a promise of more is not believed.
            self.more.reserve(length * 2);
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(&part);
        Ok(())
    }

    /// All of it.
    pub fn finish(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

#[test]
fn parts_make_a_whole() {
    let gathered = |parts: &[&'static str]| {
        let mut gather = Gather::new(6);
        for part in parts {
            gather.add(Bytes::from_static(part.as_bytes()))?;
        }
        Ok(gather.finish())
    };
    assert_eq!(gathered(&[]), Ok(Bytes::new()));
    assert_eq!(gathered(&["", "ab", "", "cd", "ef"]), Ok(Bytes::from_static(b"abcdef")));
    assert_eq!(gathered(&["abc", "def", "g"]), Err(TooMuch));
    let whole = Bytes::from_static(b"abc");
    let mut gather = Gather::new(3);
    gather.add(whole.clone()).unwrap();
    assert_eq!(gather.finish().as_ptr(), whole.as_ptr(), "it is not copied");
}
