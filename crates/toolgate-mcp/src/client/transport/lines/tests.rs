//! Output of child processes, over in-memory pipes.

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex, split};
use tokio::time::sleep;

use super::*;

/// Returns a link and the other end of its pipes.
fn pair(encoding: OutputEncoding, limits: ScanLimits) -> (Link, DuplexStream) {
    let (local, remote) = duplex(64 << 10);
    let (reader, writer) = split(local);
    (open(reader, writer, encoding, limits), remote)
}

async fn check(output: &[u8], encoding: OutputEncoding, expected: &[&str]) {
    let (mut link, mut child) = pair(encoding, ScanLimits { size: 200, depth: 8 });
    child.write_all(output).await.unwrap();
    drop(child);
    let mut seen = Vec::new();
    while let Some(next) = link.inbox.recv().await {
        seen.push(match next {
            LinkEvent::Message(bytes) | LinkEvent::StreamMessage(_, bytes) => {
                format!("message {}", String::from_utf8_lossy(&bytes))
            }
            LinkEvent::Noise(bytes) => format!("noise {}", String::from_utf8_lossy(&bytes)),
            LinkEvent::Closed(error) => format!("end {error}"),
            LinkEvent::Failed(..) => "failed".to_owned(),
        });
    }
    assert_eq!(seen, expected);
}

const CLOSED: &str = "end the server closed the connection";

#[tokio::test]
async fn separates_messages_from_noise() {
    check(
        b"{\"a\":1}\r\n\n  \r\n{\"b\":2}\n",
        OutputEncoding::Utf8,
        &["message {\"a\":1}", "message {\"b\":2}", CLOSED],
    )
    .await;
    check(
        b"npm WARN x\n{\"a\":1}\n",
        OutputEncoding::Utf8,
        &["noise npm WARN x", "message {\"a\":1}", CLOSED],
    )
    .await;
    check(
        b"\x1b[32mok\n[INFO] up [1]\n[1]\n",
        OutputEncoding::Utf8,
        &["noise \u{1b}[32mok", "noise [INFO] up [1]", "message [1]", CLOSED],
    )
    .await;
    check(b"{\"a\":\"\xff\"}\n{\"half\":", OutputEncoding::Utf8, &["noise {\"a\":\"\u{fffd}\"}", CLOSED])
        .await;
    check(b"{\"a\":\"\xe9\"}\n", OutputEncoding::Named("windows-1252"), &["message {\"a\":\"é\"}", CLOSED])
        .await;
    // Damaged messages are messages, so that their requests end.
    let damaged = r#"{"jsonrpc":"2.0","id":1,"result":{"#;
    check(format!("{damaged}\n").as_bytes(), OutputEncoding::Utf8, &[&format!("message {damaged}"), CLOSED])
        .await;
}

#[tokio::test]
async fn decodes_every_encoding_of_the_standard() {
    let text = "{\"a\":\"日本 é\"}\n{\"b\":1}\n";
    for (name, text) in [
        ("Shift_JIS", "{\"a\":\"日本\"}\n{\"b\":1}\n"),
        ("gb18030", text),
        ("EUC-KR", "{\"a\":\"한국\"}\n{\"b\":1}\n"),
        ("windows-1251", "{\"a\":\"да\"}\n{\"b\":1}\n"),
        ("ISO-2022-JP", "{\"a\":\"日本\"}\n{\"b\":1}\n"),
    ] {
        let encoding = Encoding::for_label(name.as_bytes()).unwrap();
        let (bytes, ..) = encoding.encode(text);
        let expected: Vec<_> = text.lines().map(|line| format!("message {line}")).collect();
        let expected: Vec<_> = expected.iter().map(String::as_str).chain([CLOSED]).collect();
        check(&bytes, OutputEncoding::Named(name), &expected).await;
    }
    // Encoders of this library do not write UTF-16.
    let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let expected = ["message {\"a\":\"日本 é\"}", "message {\"b\":1}", CLOSED];
    check(&utf_16, OutputEncoding::Named("UTF-16LE"), &expected).await;
}

#[tokio::test]
async fn rejects_lines_that_are_too_long() {
    let too_large = "end the server sent more than 200 bytes in one message";
    let line = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
    let most = line(200);
    check(format!("{most}\r\n").as_bytes(), OutputEncoding::Utf8, &[&format!("message {most}"), CLOSED])
        .await;
    check(format!("{}\n", line(201)).as_bytes(), OutputEncoding::Utf8, &[too_large]).await;
    check(line(300).as_bytes(), OutputEncoding::Utf8, &[too_large]).await;
    check(
        &[&b"{\"\xff\":\""[..], &[0xE9; 150], b"\"}\n"].concat(),
        OutputEncoding::Named("windows-1252"),
        &[too_large],
    )
    .await;
}

/// A line without an end is not read forever.
#[tokio::test]
async fn endless_line_is_rejected() {
    let limits = ScanLimits { size: 1 << 20, depth: 8 };
    let (mut link, mut child) = pair(OutputEncoding::Utf8, limits);
    let flood = tokio::task::JoinSet::from_iter([async move {
        let mut sent = 0_usize;
        while child.write_all(&[b'x'; 4096]).await.is_ok() {
            sent += 4096;
        }
        sent
    }]);
    assert!(matches!(link.end().await, LinkError::TooLarge(_)));
    drop(link);
    let sent = flood.join_all().await[0];
    assert!(sent <= (1 << 20) + 3 * CHUNK, "{sent}");
}

#[tokio::test]
async fn partial_lines_are_joined() {
    let (mut link, mut child) = pair(OutputEncoding::Utf8, ScanLimits::default());
    for piece in ["{\"jsonrpc\"", ":\"2.0\",", "\"id\":1", "}\n"] {
        child.write_all(piece.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(link.message().await, json!({ "jsonrpc": "2.0", "id": 1 }));
}

#[tokio::test]
async fn writes_one_line_per_message() {
    let (link, child) = pair(OutputEncoding::Utf8, ScanLimits::default());
    let bytes = Bytes::from_static(b"{\"a\":\n[1,\r\n2]}");
    link.outbox.send(LinkCommand::Message(bytes)).await.unwrap();
    link.outbox.send(LinkCommand::Close).await.unwrap();
    let mut lines = BufReader::new(child).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "{\"a\": [1,  2]}");
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn write_error_closes_the_link() {
    let (local, remote) = duplex(1024);
    let (_held, reader) = duplex(1024);
    drop(remote);
    let mut link = open(reader, local, OutputEncoding::Utf8, ScanLimits::default());
    link.request(1, "ping", None).await;
    assert!(link.end().await.to_string().starts_with("cannot write to the server"));
}

/// The child responds to each line before it reads the next, and its responses exceed the pipe buffer.
#[tokio::test]
async fn large_responses_do_not_deadlock() {
    let (mut link, child) = pair(OutputEncoding::Utf8, ScanLimits::default());
    link.tasks.spawn(async move {
        let (reader, mut writer) = split(child);
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let request: serde_json::Value = serde_json::from_str(&line).unwrap();
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": "x".repeat(200_000) });
            writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
    });
    for id in 0..200 {
        link.request(id, "echo", None).await;
    }
    for id in 0..200 {
        assert_eq!(link.message().await["id"], id);
    }
}
