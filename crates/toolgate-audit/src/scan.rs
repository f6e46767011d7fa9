//! Reads the lines of a file, from either end, in blocks.
//!
//! Invariant: bytes without a newline are not a line: they are torn or still being written. Memory holds one block and
//! one line.

use std::io::{self, Read, Seek, SeekFrom};

use fs_err::File;
use fs_err::os::unix::fs::FileExt;
use memchr::{memchr, memrchr};

/// Maximum bytes per read.
const BLOCK_BYTES: usize = 256 << 10;
/// Size of the first read: most readers of a file's start need one line.
const FIRST_BLOCK_BYTES: usize = 4 << 10;

/// Reads the lines of a file, last one first.
pub(crate) struct BackwardLines {
    file: File,
    /// File offset of the buffer.
    start: u64,
    buffer: Vec<u8>,
    /// Length of the unread part of the buffer, which ends with a newline.
    end: usize,
}

impl BackwardLines {
    /// Starts at the last newline before `length`.
    pub(crate) fn new(file: File, length: u64) -> io::Result<Self> {
        let mut lines = Self { file, start: length, buffer: Vec::new(), end: 0 };
        loop {
            if let Some(at) = memrchr(b'\n', &lines.buffer[..lines.end]) {
                lines.end = at + 1;
                return Ok(lines);
            }
            if !lines.load()? {
                lines.end = 0;
                return Ok(lines);
            }
        }
    }

    /// Returns the file offset after the next line to read.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.end as u64
    }

    /// Reads the previous line, without its newline.
    pub(crate) fn line(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            let Some(last) = self.end.checked_sub(1) else {
                if self.load()? {
                    continue;
                }
                return Ok(None);
            };
            let found = memrchr(b'\n', &self.buffer[..last]);
            if found.is_none() && self.load()? {
                continue;
            }
            let from = found.map_or(0, |at| at + 1);
            self.end = from;
            return Ok(Some(&self.buffer[from..last]));
        }
    }

    /// Prepends the previous block to the buffer. Returns false at the start of the file.
    fn load(&mut self) -> io::Result<bool> {
        let size = usize::try_from(self.start).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        if size == 0 {
            return Ok(false);
        }
        let mut buffer = vec![0; size + self.end];
        buffer[size..].copy_from_slice(&self.buffer[..self.end]);
        self.start -= size as u64;
        self.file.read_exact_at(&mut buffer[..size], self.start)?;
        self.end = buffer.len();
        self.buffer = buffer;
        Ok(true)
    }
}

/// Reads the lines of a file, first one first.
pub(crate) struct ForwardLines {
    file: File,
    buffer: Vec<u8>,
    /// Length of the part of the buffer that was read.
    from: usize,
    /// File offset of the next line.
    position: u64,
    /// Number of bytes after the last newline.
    torn: usize,
    /// Size of the next read.
    block: usize,
}

impl ForwardLines {
    /// Starts at an offset, which must be the start of a line.
    pub(crate) fn new(mut file: File, position: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(position))?;
        Ok(Self { file, buffer: Vec::new(), from: 0, position, torn: 0, block: FIRST_BLOCK_BYTES })
    }

    /// Reads the next whole line, without its newline. After `None` it may be called again: the file may have grown.
    pub(crate) fn line(&mut self) -> io::Result<Option<&[u8]>> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr(b'\n', &self.buffer[self.from + searched..]) {
                let (start, end) = (self.from, self.from + searched + at);
                self.from = end + 1;
                self.position += (end + 1 - start) as u64;
                return Ok(Some(&self.buffer[start..end]));
            }
            self.buffer.drain(..self.from);
            self.from = 0;
            searched = self.buffer.len();
            self.buffer.resize(searched + self.block, 0);
            self.block = (self.block * 2).min(BLOCK_BYTES);
            let read = self.file.read(&mut self.buffer[searched..]);
            self.buffer.truncate(searched + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                // Read again next time: a torn write is truncated and replaced by another one.
                self.torn = searched;
                self.buffer.clear();
                self.file.seek(SeekFrom::Start(self.position))?;
                return Ok(None);
            }
        }
    }

    /// Returns the number of bytes after the last newline.
    pub(crate) fn torn(&self) -> usize {
        self.torn
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &[u8]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs_err::write(&path, text).unwrap();
        let whole = memrchr(b'\n', text).map_or(0, |at| at + 1);
        let mut expected: Vec<_> = text[..whole].split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        expected.pop();
        let mut forward = ForwardLines::new(File::open(&path).unwrap(), 0).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = forward.line().unwrap() {
            lines.push(line.to_vec());
        }
        assert_eq!(lines, expected);
        assert_eq!((forward.position, forward.torn()), (whole as u64, text.len() - whole));
        let mut backward = BackwardLines::new(File::open(&path).unwrap(), text.len() as u64).unwrap();
        assert_eq!(backward.position(), whole as u64);
        let mut lines = Vec::new();
        while let Some(line) = backward.line().unwrap() {
            lines.push(line.to_vec());
        }
        lines.reverse();
        assert_eq!(lines, expected);
        assert_eq!(backward.position(), 0);
    }

    #[test]
    fn reads_lines_longer_than_a_block() {
        let long = vec![b'x'; BLOCK_BYTES * 3 + 7];
        for text in [
            [&long[..], b"\n", &long, b"\n"].concat(),
            [&long[..], b"\na\n\n", &long].concat(),
            [&long[..BLOCK_BYTES - 1], b"\n", &long[..BLOCK_BYTES], b"\n"].concat(),
            long.clone(),
        ] {
            check(&text);
        }
    }

    proptest! {
        #[test]
        fn reads_any_lines(text in "[a\n]{0,40}") {
            check(text.as_bytes());
        }
    }
}
