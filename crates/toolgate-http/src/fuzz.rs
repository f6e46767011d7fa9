//! Entry point of the fuzz target: arbitrary bytes as a request, as a response and as a chunked body.

use bytes::{Bytes, BytesMut};
use http::Method;

use crate::chunks::{BodyPart, BodyReader};
use crate::head::{BodyLength, HeadSearch, parse_request, parse_response};

/// Reads the bytes whole and in parts. Both ways must agree, and a head must not hold a line feed without its carriage
/// return, or two lengths.
///
/// # Panics
/// If the invariant does not hold.
pub fn http(bytes: &[u8]) {
    let mut search = HeadSearch::default();
    let whole = search.find_end(bytes);
    let mut in_parts = HeadSearch::default();
    let parts = (0..=bytes.len()).map(|end| in_parts.find_end(&bytes[..end]));
    let parts = parts.take_while(|found| matches!(found, Ok(None))).count();
    match whole {
        Ok(Some(end)) => {
            assert_eq!(parts, end, "the same end in parts");
            let head = Bytes::copy_from_slice(&bytes[..end]);
            let bare = head
                .iter()
                .enumerate()
                .any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'));
            assert!(!bare, "a bare line feed");
            if let Ok(request) = parse_request(&head) {
                let lengths = request.headers.get_all("content-length").iter().count()
                    + request.headers.get_all("transfer-encoding").iter().count();
                assert!(lengths <= 1, "more than one length");
                assert_eq!(lengths == 0, request.length == BodyLength::Empty);
            }
            let _ = parse_response(&head, &Method::POST);
        }
        Ok(None) => assert_eq!(parts, bytes.len() + 1),
        Err(_) => assert!(parts <= bytes.len()),
    }
    assert_eq!(chunked(bytes, bytes.len().max(1)), chunked(bytes, 1), "the same body in parts");
}

/// Reads a chunked body. Returns its length, and if it ended.
fn chunked(bytes: &[u8], part: usize) -> Option<(usize, bool)> {
    let (mut reader, mut buffer, mut length) = (BodyReader::ChunkSize, BytesMut::new(), 0);
    let mut parts = bytes.chunks(part);
    loop {
        match reader.next(&mut buffer).ok()? {
            BodyPart::Data(data) => length += data.len(),
            BodyPart::End => return Some((length, true)),
            BodyPart::NeedMore => match parts.next() {
                Some(part) => buffer.extend_from_slice(part),
                None => return Some((length, false)),
            },
        }
    }
}
