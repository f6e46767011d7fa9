//! Encodes arguments as a request.
//!
//! A pure function of an operation and its arguments. Invariant: for all argument values, the request goes to the host
//! of the base URL, its path has as many segments as the document says, and its query and headers contain only names
//! from the document.

use serde_json::{Map, Value};
use url::Url;

use super::body;
use super::operation::{Parameter, ParameterLocation, ParameterStyle, PathPiece, RequestTemplate};

/// Nesting of an object in a query.
const MAX_DEPTH: usize = 8;

/// Arguments that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("argument `{argument}` {why}")]
pub struct EncodeError {
    pub(super) argument: String,
    pub(super) why: String,
}

/// An encoded request, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedRequest {
    pub(super) url: Url,
    /// Names and values that are legal in a header.
    pub(super) headers: Vec<(String, String)>,
    /// Names and percent-encoded values.
    pub(super) cookies: Vec<(String, String)>,
    pub(super) body: Option<(String, Vec<u8>)>,
}

impl RequestTemplate {
    /// Encodes arguments as a request.
    ///
    /// `written` returns an argument verbatim, so that a JSON body keeps the spelling of its numbers.
    pub(super) fn request<'w>(
        &self,
        base: &Url,
        arguments: &Map<String, Value>,
        written: &dyn Fn(&str) -> Option<&'w str>,
    ) -> Result<EncodedRequest, EncodeError> {
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
            match parameter.location {
                ParameterLocation::Path => {}
                ParameterLocation::Query => parameter.query(value, &mut query)?,
                ParameterLocation::Header => headers.push((parameter.name.clone(), parameter.header(value)?)),
                ParameterLocation::Cookie => {
                    let text = parameter.joined(value, ",", ",", ",", &percent_encode)?;
                    cookies.push((parameter.name.clone(), text));
                }
            }
        }
        let url = self.url(base, &path, &query)?;
        let body = match &self.body {
            Some(body) => body.write(arguments.get(body.argument()), written(body.argument()))?,
            None => None,
        };
        Ok(EncodedRequest { url, headers, cookies, body })
    }

    /// Builds the URL. Parses it again as a check, as a recipient would, that arguments changed neither host nor path.
    fn url(&self, base: &Url, path: &str, query: &[(String, String)]) -> Result<Url, EncodeError> {
        let mut text = base[..url::Position::BeforePath].to_owned();
        text.push_str(path);
        for (at, (name, value)) in query.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(value);
        }
        let retargeted = || EncodeError {
            argument: self.path.clone(),
            why: "would change the target of the request".to_owned(),
        };
        let url = Url::parse(&text).map_err(|_| retargeted())?;
        (url.origin() == base.origin() && url.path() == path && url.fragment().is_none())
            .then_some(url)
            .ok_or_else(retargeted)
    }

    fn segment(&self, pieces: &[PathPiece], arguments: &Map<String, Value>) -> Result<String, EncodeError> {
        let mut segment = String::new();
        let mut last = None;
        for piece in pieces {
            match piece {
                PathPiece::Literal(text) => segment.push_str(text),
                PathPiece::Parameter(at) => {
                    let parameter = &self.parameters[*at];
                    let value = arguments.get(&parameter.argument).unwrap_or(&Value::Null);
                    segment.push_str(&parameter.path(value)?);
                    last = Some(parameter);
                }
            }
        }
        match last {
            Some(parameter) if is_dot_segment(&segment) => Err(parameter.error("would lead to another path")),
            _ => Ok(segment),
        }
    }
}

impl Parameter {
    fn error(&self, why: impl Into<String>) -> EncodeError {
        EncodeError { argument: self.argument.clone(), why: why.into() }
    }

    fn path(&self, value: &Value) -> Result<String, EncodeError> {
        let strict = |text: &str| -> Result<(), EncodeError> {
            // Some servers decode `%2F` before they look for `..`.
            let leads = text.split(['/', '\\']).any(is_dot_segment);
            if text.is_empty() {
                return Err(self.error("is empty, but it is part of the path"));
            }
            if leads || text.chars().any(char::is_control) {
                return Err(self.error("contains characters that no path allows"));
            }
            Ok(())
        };
        for_each_string(value, &mut |text| strict(text))?;
        let empty = match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        if empty {
            return Err(self.error("is empty, but it is part of the path"));
        }
        if self.json {
            return Ok(percent_encode(&value.to_string()));
        }
        let name = percent_encode(&self.name);
        Ok(match (self.style, value) {
            (ParameterStyle::Label, _) => {
                let between = if self.explode { "." } else { "," };
                let pair = if self.explode { "=" } else { "," };
                format!(".{}", self.joined(value, between, pair, between, &percent_encode)?)
            }
            (ParameterStyle::Matrix, Value::Array(_)) if self.explode => {
                format!(";{name}={}", self.joined(value, &format!(";{name}="), "=", ";", &percent_encode)?)
            }
            (ParameterStyle::Matrix, Value::Object(_)) if self.explode => {
                format!(";{}", self.joined(value, ";", "=", ";", &percent_encode)?)
            }
            (ParameterStyle::Matrix, _) => {
                format!(";{name}={}", self.joined(value, ",", ",", ",", &percent_encode)?)
            }
            _ => self.joined(value, ",", if self.explode { "=" } else { "," }, ",", &percent_encode)?,
        })
    }

    fn query(&self, value: &Value, query: &mut Vec<(String, String)>) -> Result<(), EncodeError> {
        let name = percent_encode(&self.name);
        if self.json {
            query.push((name, percent_encode(&value.to_string())));
            return Ok(());
        }
        match (self.style, value) {
            (ParameterStyle::Deep, _) => return self.push_deep_object(&name, value, query, 0),
            (_, Value::Array(items)) if self.explode => {
                for item in items {
                    query.push((name.clone(), percent_encode(&self.scalar(item)?)));
                }
            }
            (_, Value::Object(members)) if self.explode => {
                for (member, value) in members {
                    if !self.members.contains(member) {
                        return Err(
                            self.error(format!("contains `{member}`, which the document does not define"))
                        );
                    }
                    if !value.is_null() {
                        query.push((percent_encode(member), percent_encode(&self.scalar(value)?)));
                    }
                }
            }
            (style, _) => {
                let between = match style {
                    ParameterStyle::Space => "%20",
                    ParameterStyle::Pipe => "%7C",
                    _ => ",",
                };
                query.push((name, self.joined(value, between, between, between, &percent_encode)?));
            }
        }
        Ok(())
    }

    /// Encodes `name[member]=value`, recursively.
    fn push_deep_object(
        &self,
        name: &str,
        value: &Value,
        query: &mut Vec<(String, String)>,
        depth: usize,
    ) -> Result<(), EncodeError> {
        if depth > MAX_DEPTH {
            return Err(self.error("is nested too deeply"));
        }
        match value {
            Value::Object(members) => members.iter().try_for_each(|(member, value)| {
                self.push_deep_object(
                    &format!("{name}%5B{}%5D", percent_encode(member)),
                    value,
                    query,
                    depth + 1,
                )
            }),
            Value::Array(items) => items.iter().try_for_each(|item| {
                query.push((name.to_owned(), percent_encode(&self.scalar(item)?)));
                Ok(())
            }),
            Value::Null => Ok(()),
            value => {
                query.push((name.to_owned(), percent_encode(&self.scalar(value)?)));
                Ok(())
            }
        }
    }

    fn header(&self, value: &Value) -> Result<String, EncodeError> {
        let text = if self.json {
            value.to_string()
        } else {
            self.joined(value, ",", if self.explode { "=" } else { "," }, ",", &str::to_owned)?
        };
        let is_legal = |c: char| c == '\t' || (' '..='~').contains(&c);
        if !text.chars().all(is_legal) {
            return Err(self.error("contains a character that no header allows"));
        }
        Ok(text.trim().to_owned())
    }

    /// Joins a value into one string: array items with `items`; members as name, `pair` and value, with `members`.
    fn joined(
        &self,
        value: &Value,
        items: &str,
        pair: &str,
        members: &str,
        write: &dyn Fn(&str) -> String,
    ) -> Result<String, EncodeError> {
        match value {
            Value::Array(values) => {
                let texts: Result<Vec<_>, _> =
                    values.iter().map(|item| Ok(write(&self.scalar(item)?))).collect();
                Ok(texts?.join(items))
            }
            Value::Object(values) => {
                let one = |(name, value): (&String, &Value)| {
                    Ok(format!("{}{pair}{}", write(name), write(&self.scalar(value)?)))
                };
                let texts: Result<Vec<_>, _> = values.iter().map(one).collect();
                Ok(texts?.join(members))
            }
            value => Ok(write(&self.scalar(value)?)),
        }
    }

    fn scalar(&self, value: &Value) -> Result<String, EncodeError> {
        body::scalar_string(value).ok_or_else(|| self.error("is nested more deeply than its style allows"))
    }
}

/// Visits every string of a value that becomes part of a path, including member names.
fn for_each_string(
    value: &Value,
    see: &mut dyn FnMut(&str) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().try_for_each(|item| for_each_string(item, see)),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            see(name)?;
            for_each_string(value, see)
        }),
        _ => Ok(()),
    }
}

/// Percent-encodes every byte that could have a meaning in a URL.
pub(super) fn percent_encode(text: &str) -> String {
    percent_encode_except(text, b"-._~")
}

/// Encodes a literal part of the document's path. Legal characters and existing percent-encoding stay.
pub(super) fn encode_literal(text: &str) -> String {
    percent_encode_except(text, b"-._~!$&'()*+,;=:@%")
}

fn percent_encode_except(text: &str, stays: &[u8]) -> String {
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

/// Returns true for the segments `.` and `..`, percent-encoded or not.
pub(super) fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}
