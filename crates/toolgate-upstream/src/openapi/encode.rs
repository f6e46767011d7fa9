//! Arguments become a request.
//!
//! A pure function of an operation and its arguments. Invariant: whatever the values are, the request goes to the
//! host of the base address, to a path with as many segments as the document says, with the names in its query and
//! the headers that the document says, and no other.

use serde_json::{Map, Value};
use url::Url;

use super::body;
use super::operation::{Parameter, ParameterPlace, Piece, Shape, Style};

/// Levels of an object in a query.
const DEEPEST: usize = 8;

/// Why arguments cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("argument `{argument}` {why}")]
pub struct Unsendable {
    pub(super) argument: String,
    pub(super) why: String,
}

/// What is sent, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) url: Url,
    /// Names and values that a request may hold.
    pub(super) headers: Vec<(String, String)>,
    /// Names and values, encoded.
    pub(super) cookies: Vec<(String, String)>,
    pub(super) body: Option<(String, Vec<u8>)>,
}

impl Shape {
    /// The request that these arguments make.
    ///
    /// `written` is an argument as it was written: a body keeps the spelling of its numbers.
    pub(super) fn request<'w>(
        &self,
        base: &Url,
        arguments: &Map<String, Value>,
        written: &dyn Fn(&str) -> Option<&'w str>,
    ) -> Result<Request, Unsendable> {
        let mut path = base.path().trim_end_matches('/').to_owned();
        for segment in &self.segments {
            path.push('/');
            path.push_str(&self.segment(segment, arguments)?);
        }
        let (mut query, mut headers, mut cookies) = (Vec::new(), Vec::new(), Vec::new());
        for parameter in &self.parameters {
            let Some(value) = arguments.get(&parameter.argument).filter(|value| !value.is_null()) else {
                continue;
            };
            match parameter.place {
                ParameterPlace::Path => {}
                ParameterPlace::Query => parameter.query(value, &mut query)?,
                ParameterPlace::Header => headers.push((parameter.name.clone(), parameter.header(value)?)),
                ParameterPlace::Cookie => {
                    let text = parameter.joined(value, ",", ",", ",", &escaped)?;
                    cookies.push((parameter.name.clone(), text));
                }
            }
        }
        let url = self.url(base, &path, &query)?;
        let body = match &self.body {
            Some(body) => body.write(arguments.get(body.argument()), written(body.argument()))?,
            None => None,
        };
        Ok(Request { url, headers, cookies, body })
    }

    /// The address. What it must not change is looked at once more, as whoever reads it would.
    fn url(&self, base: &Url, path: &str, query: &[(String, String)]) -> Result<Url, Unsendable> {
        let mut text = base[..url::Position::BeforePath].to_owned();
        text.push_str(path);
        for (at, (name, value)) in query.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(value);
        }
        let astray = || Unsendable {
            argument: self.path.clone(),
            why: "would change where the request goes".to_owned(),
        };
        let url = Url::parse(&text).map_err(|_| astray())?;
        (url.origin() == base.origin() && url.path() == path && url.fragment().is_none())
            .then_some(url)
            .ok_or_else(astray)
    }

    fn segment(&self, pieces: &[Piece], arguments: &Map<String, Value>) -> Result<String, Unsendable> {
        let mut segment = String::new();
        let mut last = None;
        for piece in pieces {
            match piece {
                Piece::Literal(text) => segment.push_str(text),
                Piece::Parameter(at) => {
                    let parameter = &self.parameters[*at];
                    let value = arguments.get(&parameter.argument).unwrap_or(&Value::Null);
                    segment.push_str(&parameter.path(value)?);
                    last = Some(parameter);
                }
            }
        }
        match last {
            Some(parameter) if is_dots(&segment) => Err(parameter.bad("would lead to another path")),
            _ => Ok(segment),
        }
    }
}

impl Parameter {
    fn bad(&self, why: impl Into<String>) -> Unsendable {
        Unsendable { argument: self.argument.clone(), why: why.into() }
    }

    fn path(&self, value: &Value) -> Result<String, Unsendable> {
        let strict = |text: &str| -> Result<(), Unsendable> {
            // Some readers decode `%2F` before they look for `..`.
            let leads = text.split(['/', '\\']).any(is_dots);
            if text.is_empty() {
                return Err(self.bad("is empty, and it is a part of the path"));
            }
            if leads || text.chars().any(char::is_control) {
                return Err(self.bad("holds what does not belong in a path"));
            }
            Ok(())
        };
        each_text(value, &mut |text| strict(text))?;
        let empty = match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        if empty {
            return Err(self.bad("is empty, and it is a part of the path"));
        }
        if self.json {
            return Ok(escaped(&value.to_string()));
        }
        let name = escaped(&self.name);
        Ok(match (self.style, value) {
            (Style::Label, _) => {
                let between = if self.explode { "." } else { "," };
                let pair = if self.explode { "=" } else { "," };
                format!(".{}", self.joined(value, between, pair, between, &escaped)?)
            }
            (Style::Matrix, Value::Array(_)) if self.explode => {
                format!(";{name}={}", self.joined(value, &format!(";{name}="), "=", ";", &escaped)?)
            }
            (Style::Matrix, Value::Object(_)) if self.explode => {
                format!(";{}", self.joined(value, ";", "=", ";", &escaped)?)
            }
            (Style::Matrix, _) => format!(";{name}={}", self.joined(value, ",", ",", ",", &escaped)?),
            _ => self.joined(value, ",", if self.explode { "=" } else { "," }, ",", &escaped)?,
        })
    }

    fn query(&self, value: &Value, query: &mut Vec<(String, String)>) -> Result<(), Unsendable> {
        let name = escaped(&self.name);
        if self.json {
            query.push((name, escaped(&value.to_string())));
            return Ok(());
        }
        match (self.style, value) {
            (Style::Deep, _) => return self.deep(&name, value, query, 0),
            (_, Value::Array(items)) if self.explode => {
                for item in items {
                    query.push((name.clone(), escaped(&self.plain(item)?)));
                }
            }
            (_, Value::Object(members)) if self.explode => {
                for (member, value) in members {
                    if !self.members.contains(member) {
                        return Err(self.bad(format!("holds `{member}`, which the document does not name")));
                    }
                    if !value.is_null() {
                        query.push((escaped(member), escaped(&self.plain(value)?)));
                    }
                }
            }
            (style, _) => {
                let between = match style {
                    Style::Space => "%20",
                    Style::Pipe => "%7C",
                    _ => ",",
                };
                query.push((name, self.joined(value, between, between, between, &escaped)?));
            }
        }
        Ok(())
    }

    /// `name[member]=value`, as deep as the value goes.
    fn deep(
        &self,
        name: &str,
        value: &Value,
        query: &mut Vec<(String, String)>,
        depth: usize,
    ) -> Result<(), Unsendable> {
        if depth > DEEPEST {
            return Err(self.bad("is nested too deeply"));
        }
        match value {
            Value::Object(members) => members.iter().try_for_each(|(member, value)| {
                self.deep(&format!("{name}%5B{}%5D", escaped(member)), value, query, depth + 1)
            }),
            Value::Array(items) => items.iter().try_for_each(|item| {
                query.push((name.to_owned(), escaped(&self.plain(item)?)));
                Ok(())
            }),
            Value::Null => Ok(()),
            value => {
                query.push((name.to_owned(), escaped(&self.plain(value)?)));
                Ok(())
            }
        }
    }

    fn header(&self, value: &Value) -> Result<String, Unsendable> {
        let text = if self.json {
            value.to_string()
        } else {
            self.joined(value, ",", if self.explode { "=" } else { "," }, ",", &str::to_owned)?
        };
        let good = |c: char| c == '\t' || (' '..='~').contains(&c);
        if !text.chars().all(good) {
            return Err(self.bad("holds a character that no header may have"));
        }
        Ok(text.trim().to_owned())
    }

    /// A value as one text: items between `items`, members as name, `pair` and value, between `members`.
    fn joined(
        &self,
        value: &Value,
        items: &str,
        pair: &str,
        members: &str,
        write: &dyn Fn(&str) -> String,
    ) -> Result<String, Unsendable> {
        match value {
            Value::Array(values) => {
                let texts: Result<Vec<_>, _> =
                    values.iter().map(|item| Ok(write(&self.plain(item)?))).collect();
                Ok(texts?.join(items))
            }
            Value::Object(values) => {
                let one = |(name, value): (&String, &Value)| {
                    Ok(format!("{}{pair}{}", write(name), write(&self.plain(value)?)))
                };
                let texts: Result<Vec<_>, _> = values.iter().map(one).collect();
                Ok(texts?.join(members))
            }
            value => Ok(write(&self.plain(value)?)),
        }
    }

    fn plain(&self, value: &Value) -> Result<String, Unsendable> {
        body::plain(value).ok_or_else(|| self.bad("is nested more deeply than its style can say"))
    }
}

/// Every text of a value that would stand in a path, names included.
fn each_text(value: &Value, see: &mut dyn FnMut(&str) -> Result<(), Unsendable>) -> Result<(), Unsendable> {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().try_for_each(|item| each_text(item, see)),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            see(name)?;
            each_text(value, see)
        }),
        _ => Ok(()),
    }
}

/// Every byte that could mean something is encoded.
pub(super) fn escaped(text: &str) -> String {
    encoded(text, b"-._~")
}

/// A text of the document's own path: what may stand there stays, and so does what is encoded.
pub(super) fn literal(text: &str) -> String {
    encoded(text, b"-._~!$&'()*+,;=:@%")
}

fn encoded(text: &str, stays: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || stays.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Whether a segment leads to where it is, or up, however it is spelled.
pub(super) fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}
