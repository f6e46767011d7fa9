//! Heads of requests and responses: finds their end, parses them, and derives the length of the body.
//!
//! Invariant: every line of a head ends with CRLF, and a head says in one way how long its body is, or it is rejected.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri, Version};
use memchr::memchr;

/// Headers per head that the parser has room for.
pub(crate) const MAX_HEADERS: usize = 64;

/// A head that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("ambiguous framing: end each line with CR LF, and send one valid Content-Length")]
    Ambiguous,
    #[error("the head is too long, or has too many headers")]
    TooLarge,
    #[error("the URL is too long or invalid")]
    Url,
    #[error("invalid head")]
    Invalid,
    #[error("the HTTP version is not supported")]
    Version,
}

/// Length of a body, as its head declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    Empty,
    Length(u64),
    Chunked,
    /// The body of a response without a length.
    UntilClose,
}

/// A parsed request head.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) length: BodyLength,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
}

/// A parsed response head.
#[derive(Debug)]
pub struct ResponseHead {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub(crate) length: BodyLength,
    pub(crate) keep_alive: bool,
}

/// Searches the end of a head in a growing buffer.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HeadSearch {
    line_start: usize,
    searched: usize,
}

impl HeadSearch {
    /// Returns the length of the head, including the empty line that ends it. `None` if it is not complete.
    pub(crate) fn find_end(&mut self, buffer: &[u8]) -> Result<Option<usize>, HeadError> {
        while let Some(found) = memchr(b'\n', &buffer[self.searched..]) {
            let end = self.searched + found;
            let line = buffer[self.line_start..end].strip_suffix(b"\r").ok_or(HeadError::Ambiguous)?;
            self.searched = end + 1;
            self.line_start = self.searched;
            if line.is_empty() {
                return Ok(Some(self.searched));
            }
        }
        self.searched = buffer.len();
        Ok(None)
    }
}

/// Facts about the framing of a message, collected from its headers.
#[derive(Debug, Default)]
struct FramingHeaders {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl FramingHeaders {
    fn add(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), HeadError> {
        if *name == header::CONTENT_LENGTH {
            // Parsers differ about two lengths, `5, 5` and `+5`.
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
            if !is_number || self.length.is_some() {
                return Err(HeadError::Ambiguous);
            }
            self.length = Some(number.ok_or(HeadError::Ambiguous)?);
        } else if *name == header::TRANSFER_ENCODING {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::Ambiguous);
            }
            self.chunked = true;
        } else if *name == header::CONNECTION {
            for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.close |= word.eq_ignore_ascii_case(b"close");
                self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::HTTP_11 || self.keep_alive)
    }
}

/// Parses a request head.
pub(crate) fn parse_request(head: &Bytes) -> Result<RequestHead, HeadError> {
    let mut slots = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(head, &mut slots).map_err(head_error)?;
    let (true, Some(method), Some(path), Some(minor)) =
        (status.is_complete(), parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::Invalid);
    };
    let version = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::Invalid)?;
    let uri = Uri::from_maybe_shared(head.slice_ref(path.as_bytes())).map_err(|_| HeadError::Url)?;
    let (headers, framing) = read_headers(head, parsed.headers)?;
    let length = match (framing.length, framing.chunked) {
        // Two lengths, or an old client that cannot know chunks.
        (Some(_), true) => return Err(HeadError::Ambiguous),
        (None, true) if version == Version::HTTP_10 => return Err(HeadError::Ambiguous),
        (None, true) => BodyLength::Chunked,
        (Some(length), false) => BodyLength::Length(length),
        (None, false) => BodyLength::Empty,
    };
    let keep_alive = framing.keep_alive(version);
    let expects_continue = version == Version::HTTP_11
        && headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    Ok(RequestHead { method, uri, version, headers, length, keep_alive, expects_continue })
}

/// Parses the head of a response to a request of this method.
pub(crate) fn parse_response(head: &Bytes, method: &Method) -> Result<ResponseHead, HeadError> {
    let mut slots = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let status =
        config.parse_response_with_uninit_headers(&mut parsed, head, &mut slots).map_err(head_error)?;
    let (true, Some(code), Some(minor)) = (status.is_complete(), parsed.code, parsed.version) else {
        return Err(HeadError::Invalid);
    };
    let version = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let status = StatusCode::from_u16(code).map_err(|_| HeadError::Invalid)?;
    let (headers, framing) = read_headers(head, parsed.headers)?;
    let has_no_body = method == Method::HEAD || status.is_informational() || matches!(code, 204 | 304);
    let length = match (framing.length, framing.chunked) {
        _ if has_no_body => BodyLength::Empty,
        (Some(_), true) => return Err(HeadError::Ambiguous),
        (None, true) => BodyLength::Chunked,
        (Some(length), false) => BodyLength::Length(length),
        (None, false) => BodyLength::UntilClose,
    };
    let keep_alive = framing.keep_alive(version) && length != BodyLength::UntilClose;
    Ok(ResponseHead { status, headers, length, keep_alive })
}

fn read_headers(
    head: &Bytes,
    parsed: &[httparse::Header<'_>],
) -> Result<(HeaderMap, FramingHeaders), HeadError> {
    let mut headers = HeaderMap::with_capacity(parsed.len());
    let mut framing = FramingHeaders::default();
    for header in parsed {
        let name = header_name(header.name)?;
        framing.add(&name, header.value)?;
        // Shares the bytes of the head.
        let value = if header.value.is_empty() { Bytes::new() } else { head.slice_ref(header.value) };
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| HeadError::Invalid)?;
        headers.append(name, value);
    }
    Ok((headers, framing))
}

/// Headers of most MCP messages that the `http` crate has no constants for: it would allocate their names.
static MCP_HEADERS: [HeaderName; 7] = [
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("mcp-session-id"),
    HeaderName::from_static("mcp-method"),
    HeaderName::from_static("mcp-name"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-correlation-id"),
    HeaderName::from_static("traceparent"),
];

fn header_name(name: &str) -> Result<HeaderName, HeadError> {
    if let Some(known) = MCP_HEADERS.iter().find(|known| name.eq_ignore_ascii_case(known.as_str())) {
        return Ok(known.clone());
    }
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeadError::Invalid)
}

fn head_error(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooLarge,
        httparse::Error::Version => HeadError::Version,
        _ => HeadError::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Result<RequestHead, HeadError> {
        let mut search = HeadSearch::default();
        match search.find_end(text.as_bytes())? {
            Some(end) => parse_request(&Bytes::copy_from_slice(&text.as_bytes()[..end])),
            None => panic!("incomplete: {text:?}"),
        }
    }

    fn length(headers: &str) -> Result<BodyLength, HeadError> {
        request(&format!("POST /a?b HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).map(|head| head.length)
    }

    #[test]
    fn a_head_says_once_how_long_its_body_is() {
        assert_eq!(length(""), Ok(BodyLength::Empty));
        assert_eq!(length("Content-Length: 5\r\n"), Ok(BodyLength::Length(5)));
        assert_eq!(length("content-LENGTH:\t5 \r\n"), Ok(BodyLength::Length(5)));
        assert_eq!(length("Transfer-Encoding: Chunked\r\n"), Ok(BodyLength::Chunked));
        for bad in [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding: chunked\n",
            "X: y\nContent-Length: 5\r\n",
        ] {
            assert!(length(bad).is_err(), "{bad:?}");
        }
        assert!(request("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn invalid_heads_are_rejected() {
        for bad in [
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/1.1\r\nHost: x\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nX: a\rb\r\n\r\n",
            "GET / HTTP/1.1\r\nX: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nX\r\n\r\n",
            "G\u{e4}T / HTTP/1.1\r\n\r\n",
        ] {
            assert!(request(bad).is_err(), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(request(&many).err(), Some(HeadError::TooLarge));
    }

    #[test]
    fn connections_stay_open_unless_one_side_says_no() {
        let keep = |text: &str| request(text).unwrap().keep_alive;
        assert!(keep("GET / HTTP/1.1\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.1\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.0\r\n\r\n"));
        assert!(keep("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
    }

    #[test]
    fn responses_have_the_body_that_their_status_allows() {
        let response = |text: &str, method| {
            let head = parse_response(&Bytes::copy_from_slice(text.as_bytes()), &method).unwrap();
            (head.status.as_u16(), head.length, head.keep_alive)
        };
        assert_eq!(
            response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", Method::POST),
            (200, BodyLength::Length(2), true)
        );
        assert_eq!(response("HTTP/1.1 200 \r\n\r\n", Method::POST), (200, BodyLength::UntilClose, false));
        assert_eq!(
            response("HTTP/1.1 204 X\r\nContent-Length: 2\r\n\r\n", Method::POST),
            (204, BodyLength::Empty, true)
        );
        assert_eq!(
            response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Method::HEAD),
            (200, BodyLength::Empty, true)
        );
    }

    #[test]
    fn header_names_ignore_case() {
        for name in ["Mcp-Session-Id", "MCP-NAME", "traceparent", "X-Api-Key", "Content-Type", "X-Other"] {
            let expected = HeaderName::from_bytes(name.as_bytes()).unwrap();
            assert_eq!(header_name(name), Ok(expected), "{name}");
        }
        assert_eq!(header_name("a b"), Err(HeadError::Invalid));
    }

    #[test]
    fn the_end_of_a_head_is_found_in_parts() {
        let text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest";
        let mut search = HeadSearch::default();
        for end in 0..27 {
            assert_eq!(search.find_end(&text[..end]), Ok(None), "{end}");
        }
        assert_eq!(search.find_end(text), Ok(Some(27)));
    }
}
