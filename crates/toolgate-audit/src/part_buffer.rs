//! Bytes of the log in parts: text of our own and, between it, slices of received bodies that are not copied.
//!
//! A long result is in memory once, although the caller gets it and the log records it. Invariant: the parts in their
//! order are the bytes; where a shared part stands says nothing about the content.

use std::io;

use bytes::Bytes;

/// Minimum length of a slice that is shared. Shorter ones are cheaper to copy than to keep track of.
pub(crate) const MIN_SHARED_BYTES: usize = 16 << 10;

/// A slice of a received body.
#[derive(Debug, Clone)]
pub(crate) struct SharedPart {
    /// Number of own bytes before it.
    pub(crate) after: usize,
    pub(crate) bytes: Bytes,
}

/// A sequence of bytes. Its long parts may be shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartBuffer {
    own: Vec<u8>,
    shared: Vec<SharedPart>,
    shared_bytes: usize,
}

/// A position between two bytes of a [`PartBuffer`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartPosition {
    own: usize,
    shared: usize,
}

impl From<String> for PartBuffer {
    /// A long text becomes a shared part, so that it is not copied again.
    fn from(text: String) -> Self {
        match text.len() {
            0..MIN_SHARED_BYTES => Self { own: text.into_bytes(), ..Self::default() },
            _ => Self::new(String::new(), vec![SharedPart { after: 0, bytes: text.into() }]),
        }
    }
}

impl PartBuffer {
    /// Inserts shared parts, given in their order, into a text.
    pub(crate) fn new(text: String, shared: Vec<SharedPart>) -> Self {
        let shared_bytes = shared.iter().map(|part| part.bytes.len()).sum();
        Self { own: text.into_bytes(), shared, shared_bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.own.len() + self.shared_bytes
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
    }

    /// Appends other bytes; their shared parts stay shared.
    pub(crate) fn append(&mut self, other: &Self) {
        let before = self.own.len();
        self.own.extend_from_slice(&other.own);
        self.shared_bytes += other.shared_bytes;
        self.shared.extend(
            other
                .shared
                .iter()
                .map(|part| SharedPart { after: before + part.after, bytes: part.bytes.clone() }),
        );
    }

    /// Copies the shared parts, so that the received bodies can be freed.
    pub(crate) fn unshare(&mut self) {
        if !self.shared.is_empty() {
            *self = Self { own: self.to_vec(), ..Self::default() };
        }
    }

    /// Removes everything, and frees the memory of an unusually large buffer.
    pub(crate) fn reset(&mut self, capacity: usize) {
        self.own.clear();
        self.own.shrink_to(capacity);
        self.shared.clear();
        self.shared_bytes = 0;
    }

    /// The end of the buffer.
    pub(crate) fn end(&self) -> PartPosition {
        PartPosition { own: self.own.len(), shared: self.shared.len() }
    }

    /// The parts after a position, in order.
    pub(crate) fn parts_from(&self, start: PartPosition) -> impl Iterator<Item = &[u8]> {
        let mut at = start.own;
        let parts = self.shared[start.shared..].iter().flat_map(move |part| {
            let own = &self.own[at..part.after];
            at = part.after;
            [own, &part.bytes]
        });
        let last = self.shared[start.shared..].last().map_or(start.own, |part| part.after);
        parts.chain([&self.own[last..]]).filter(|part| !part.is_empty())
    }

    /// All parts, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts_from(PartPosition { own: 0, shared: 0 })
    }

    /// The parts for a vectored write.
    pub(crate) fn slices(&self) -> Vec<io::IoSlice<'_>> {
        self.parts().map(io::IoSlice::new).collect()
    }

    /// The bytes, if no part is shared.
    pub(crate) fn as_slice(&self) -> Option<&[u8]> {
        self.shared.is_empty().then_some(&self.own)
    }

    /// Returns the bytes in one piece.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.len());
        self.parts().for_each(|part| whole.extend_from_slice(part));
        whole
    }
}

#[cfg(test)]
impl PartBuffer {
    /// Returns the bytes as a string.
    pub(crate) fn to_text(&self) -> String {
        String::from_utf8(self.to_vec()).unwrap()
    }
}

#[test]
fn parts_are_in_order() {
    let shared = |after, text: &'static str| SharedPart { after, bytes: Bytes::from_static(text.as_bytes()) };
    let record = PartBuffer::new("abc".to_owned(), vec![shared(0, "1"), shared(2, "2"), shared(2, "3")]);
    assert_eq!((record.to_text().as_str(), record.len()), ("1ab23c", 6));
    let mut all = PartBuffer::from("x".to_owned());
    let start = all.end();
    all.append(&record);
    let middle = all.end();
    all.extend(b"yz");
    all.append(&PartBuffer::new(String::new(), vec![shared(0, "4")]));
    let text = |from| String::from_utf8(all.parts_from(from).flatten().copied().collect()).unwrap();
    assert_eq!((all.to_text().as_str(), all.len()), ("x1ab23cyz4", 10));
    assert_eq!([text(start), text(middle), text(all.end())], ["1ab23cyz4", "yz4", ""]);
    assert_eq!((all.slices().len(), all.as_slice()), (7, None), "x 1 ab 2 3 cyz 4");
    all.unshare();
    assert_eq!((all.as_slice(), all.slices().len()), (Some(&b"x1ab23cyz4"[..]), 1));
    all.reset(0);
    assert_eq!((all.len(), all.slices().len()), (0, 0));
}
