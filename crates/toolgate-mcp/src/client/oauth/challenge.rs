//! `WWW-Authenticate` challenges: the parameters that concern OAuth (RFC 6750, RFC 9728).
//!
//! Several challenges in one header are read as one list of parameters; their schemes are ignored.

/// Parameters of a challenge.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// URLs of protected resource metadata, absolute or relative to the server.
    pub(super) resource_metadata: Vec<String>,
    pub(super) scopes: Vec<String>,
    error: Option<String>,
}

impl Challenge {
    pub(super) fn parse(header: &str) -> Self {
        let mut challenge = Self::default();
        let mut rest = header;
        while let Some(start) = rest.find(is_token) {
            rest = &rest[start..];
            let (name, after) = rest.split_at(rest.find(|c| !is_token(c)).unwrap_or(rest.len()));
            // Without `=` it is the scheme of the next challenge.
            let Some(value) = after.trim_start().strip_prefix('=') else {
                rest = after;
                continue;
            };
            let Some((value, after)) = parse_value(value.trim_start()) else { break };
            rest = after;
            challenge.add(name, value);
        }
        challenge
    }

    /// The first value counts, except for URLs: one that must not be fetched is skipped later.
    fn add(&mut self, name: &str, value: String) {
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => self.resource_metadata.push(value),
            "scope" if self.scopes.is_empty() => {
                self.scopes = value.split_whitespace().map(str::to_owned).collect();
            }
            "error" if self.error.is_none() => self.error = Some(value),
            _ => {}
        }
    }

    /// True if the token is valid but lacks a scope.
    pub(super) fn wants_more_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// True if the proof has to contain the nonce of the server.
    pub(super) fn wants_nonce(&self) -> bool {
        self.error.as_deref() == Some(super::dpop::USE_NONCE)
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// Returns the value and the rest of the header; `None` if a quoted string does not end.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        // Some servers send URLs without quotes, so more than a token is accepted.
        let end = text.find(|c: char| c == ',' || c == ';' || c.is_whitespace()).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((index, c)) = characters.next() {
        match c {
            '"' => return Some((value, &quoted[index + 1..])),
            '\\' => value.push(characters.next()?.1),
            _ => value.push(c),
        }
    }
    None
}

#[test]
fn reads_parameters() {
    let check = |header: &str, urls: &[&str], scopes: &[&str], error: Option<&str>| {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let expected = Challenge {
            resource_metadata: owned(urls),
            scopes: owned(scopes),
            error: error.map(str::to_owned),
        };
        assert_eq!(Challenge::parse(header), expected, "{header}");
    };
    check("", &[], &[], None);
    check("Bearer", &[], &[], None);
    check(
        r#"Bearer error="insufficient_scope", scope="a  b", resource_metadata="https://x/y""#,
        &["https://x/y"],
        &["a", "b"],
        Some("insufficient_scope"),
    );
    check("bearer Resource_Metadata = https://x/y?z=1,scope=a", &["https://x/y?z=1"], &["a"], None);
    check(r#"Bearer realm="a \"scope=b\", error=c", error=d"#, &[], &[], Some("d"));
    check(r#"Negotiate YWJj==, Bearer scope="a", DPoP scope="b""#, &[], &["a"], None);
    check(r#"Bearer resource_metadata="/a", resource_metadata="/b""#, &["/a", "/b"], &[], None);
    check(r#"Bearer error="x", scope="not closed"#, &[], &[], Some("x"));
    check("Bearer error_description=\"é\", error=e, ü", &[], &[], Some("e"));
}
