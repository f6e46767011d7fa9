//! A client of the gateway: calls tools with a key, and opens pages with the cookie of a session.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Context;

/// Time limit for every answer of the gateway.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection that is kept open.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    port: u16,
}

/// An answer, read whole.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) cookies: Vec<String>,
    pub(super) body: Vec<u8>,
    pub(super) took: Duration,
}

impl Client {
    pub(super) fn connect(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("the gateway does not listen")?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), port })
    }

    /// Logs in to the console. Returns the cookie of the session.
    pub(super) fn log_in(&mut self, key: &str) -> anyhow::Result<String> {
        let origin = format!("Origin: http://127.0.0.1:{}", self.port);
        let form = "Content-Type: application/x-www-form-urlencoded";
        let answer = self.send("POST /login", &[&origin, form], &format!("key={key}&next=%2F"))?;
        anyhow::ensure!(answer.status == 303, "the login failed with status {}", answer.status);
        let cookie = answer.cookies.first().and_then(|cookie| cookie.split(';').next());
        Ok(format!("Cookie: {}", cookie.context("a login sets a cookie")?))
    }

    pub(super) fn page(&mut self, path: &str, cookie: &str) -> anyhow::Result<Answer> {
        let answer = self.send(&format!("GET {path}"), &[cookie, "Accept: text/html"], "")?;
        anyhow::ensure!(answer.status == 200, "{path}: status {}", answer.status);
        Ok(answer)
    }

    /// Sends a request and reads the answer.
    pub(super) fn send(&mut self, first: &str, lines: &[&str], body: &str) -> anyhow::Result<Answer> {
        let start = Instant::now();
        self.begin(first, lines, body)?;
        let (status, head) = self.head()?;
        let value = |name: &str| {
            let line = head.iter().find(|line| line.to_ascii_lowercase().starts_with(name))?;
            Some(line[name.len()..].trim().to_owned())
        };
        let mut content = Vec::new();
        if let Some(length) = value("content-length:") {
            content.resize(length.parse()?, 0);
            self.stream.read_exact(&mut content)?;
        } else if value("transfer-encoding:").is_some() {
            while let Some(piece) = self.chunk()? {
                content.extend_from_slice(&piece);
            }
        }
        let cookies = head.iter().filter(|line| line.to_ascii_lowercase().starts_with("set-cookie:"));
        let cookies = cookies.map(|line| line["set-cookie:".len()..].trim().to_owned()).collect();
        Ok(Answer { status, cookies, body: content, took: start.elapsed() })
    }

    /// Sends a request.
    pub(super) fn begin(&mut self, first: &str, lines: &[&str], body: &str) -> anyhow::Result<()> {
        let mut request = format!("{first} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", self.port);
        for line in lines {
            request.push_str(line);
            request.push_str("\r\n");
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    /// Reads the status and the head of an answer.
    pub(super) fn head(&mut self) -> anyhow::Result<(u16, Vec<String>)> {
        let status = self.line()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut head = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((code.with_context(|| format!("no status: {status}"))?, head));
            }
            head.push(line);
        }
    }

    /// Reads the next piece of an answer of unknown length; `None` at its end.
    pub(super) fn chunk(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let length = usize::from_str_radix(self.line()?.trim(), 16).context("an invalid chunk")?;
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        self.line()?;
        Ok((length > 0).then_some(bytes))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).context("the gateway does not answer")?;
        anyhow::ensure!(read > 0, "the gateway closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
