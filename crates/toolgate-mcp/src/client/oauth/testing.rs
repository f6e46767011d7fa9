//! HTTP server for tests: a table of responses, and a list of the requests.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use url::Url;

/// Path, status, header line, body. `ORIGIN` in a header or body stands for the server's own origin.
pub(super) type DocumentResponse<'a> = (&'a str, u16, &'a str, &'a str);

pub(super) struct TestServer {
    pub(super) origin: String,
    requests: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl TestServer {
    /// Starts a server. Paths without a response get 404.
    pub(super) async fn start(responses: &[DocumentResponse<'_>]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let fill = |text: &str| text.replace("ORIGIN", &origin);
        let responses: Vec<_> = responses
            .iter()
            .map(|&(path, status, header, body)| (path.to_owned(), status, fill(header), fill(body)))
            .collect();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut tasks) = (Arc::clone(&requests), JoinSet::new());
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !is_whole(&request) && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                let request = String::from_utf8(request).unwrap();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let found = responses.iter().find(|(known, ..)| known == path);
                let (status, header, body) =
                    found.map_or((404, "", ""), |(_, status, header, body)| (*status, header, body));
                seen.lock().push(request.clone());
                let header = if header.is_empty() { "x-none: 1" } else { header };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} \r\n{header}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                // The client stops reading at its limit.
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Self { origin, requests, _tasks: tasks }
    }

    pub(super) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.origin)).unwrap()
    }

    /// Returns method and path of each request.
    pub(super) fn request_lines(&self) -> Vec<String> {
        let line = |request: &String| request.split(" HTTP/").next().unwrap_or_default().to_owned();
        self.requests.lock().iter().map(line).collect()
    }

    /// Returns the body of the last request.
    pub(super) fn last_body(&self) -> String {
        let requests = self.requests.lock();
        requests.last().and_then(|request| request.split("\r\n\r\n").nth(1)).unwrap_or_default().to_owned()
    }
}

pub(super) fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
