//! An HTTP API that an OpenAPI document describes: where the document is, what of it may be used, and as whom.
//!
//! Each operation becomes a tool. Invariant: an `ApiSpec` says everything that the operator has to say; the document
//! decides nothing about where credentials go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::network::Network;
use crate::{HumanDuration, ServerName, Text, wildcard};

/// One API.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApiSpec {
    /// Its name in the configuration, which stands before the names of its tools.
    pub name: ServerName,
    /// Where it is described.
    pub document: ApiDocument,
    /// Where it is, in place of what the document says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<Text>,
    /// Values for the variables in the address that the document gives.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// The operations that become tools; all where nothing is said.
    #[serde(skip_serializing_if = "OperationFilter::is_empty")]
    pub include: OperationFilter,
    /// The operations that do not.
    #[serde(skip_serializing_if = "OperationFilter::is_empty")]
    pub exclude: OperationFilter,
    /// Credentials, by the names of the document's `securitySchemes`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub auth: BTreeMap<String, Text>,
    /// Headers of every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Text>,
    /// How long one call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<HumanDuration>,
    /// What stands before the name of each tool.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Networks that it may be in, beside the internet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_networks: Vec<Network>,
    /// Whether a result that does not fit the schema of its operation is refused.
    #[serde(rename = "output_validation", serialize_with = "output_validation")]
    pub strict_output: bool,
    /// Where a document that was fetched is kept.
    #[serde(skip)]
    pub cache: PathBuf,
}

/// As the configuration writes it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn output_validation<S: Serializer>(strict: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *strict { "strict" } else { "warn" })
}

/// Where an API is described.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiDocument {
    /// In a file of the project.
    File {
        /// Its path as it was written.
        path: String,
        /// What it says, as JSON.
        json: Arc<str>,
    },
    /// At an address, which is asked when Toolgate starts.
    Url(Text),
}

impl ApiDocument {
    /// Where it is, for messages.
    pub fn place(&self) -> &str {
        match self {
            Self::File { path, .. } => path,
            Self::Url(url) => url.shown(),
        }
    }
}

impl Serialize for ApiDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.place())
    }
}

/// Which operations of a document are meant. `*` in a word stands for any text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OperationFilter {
    /// By `operationId`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<String>,
    /// By tag.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// By method, in capitals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// By path, as the document writes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// What a filter looks at.
#[derive(Debug, Clone, Copy)]
pub struct Looked<'a> {
    /// The `operationId`.
    pub operation: &'a str,
    /// The tags.
    pub tags: &'a [&'a str],
    /// The method, in capitals.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
}

impl OperationFilter {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an operation fits every kind of word that is given.
    pub fn fits_all(&self, looked: Looked<'_>) -> bool {
        self.kinds(looked).into_iter().all(|fits| fits.unwrap_or(true))
    }

    /// Whether an operation fits any of the words.
    pub fn fits_any(&self, looked: Looked<'_>) -> bool {
        self.kinds(looked).into_iter().any(|fits| fits.unwrap_or(false))
    }

    /// For each kind of word whether one of them fits; `None` where there are none.
    fn kinds(&self, looked: Looked<'_>) -> [Option<bool>; 4] {
        let any = |words: &[String], fits: &dyn Fn(&str) -> bool| {
            (!words.is_empty()).then(|| words.iter().any(|word| fits(word)))
        };
        [
            any(&self.operations, &|word| wildcard::fits(word, looked.operation)),
            any(&self.tags, &|word| looked.tags.iter().any(|tag| wildcard::fits(word, tag))),
            any(&self.methods, &|word| wildcard::fits(word, looked.method)),
            any(&self.paths, &|word| wildcard::fits(word, looked.path)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_and_any() {
        let looked = Looked { operation: "getPet", tags: &["pets"], method: "GET", path: "/pets/{id}" };
        let filter = |tags: &[&str], methods: &[&str]| OperationFilter {
            tags: tags.iter().map(ToString::to_string).collect(),
            methods: methods.iter().map(ToString::to_string).collect(),
            ..OperationFilter::default()
        };
        assert!(filter(&[], &[]).fits_all(looked) && !filter(&[], &[]).fits_any(looked));
        assert!(filter(&["pets"], &["GET"]).fits_all(looked));
        assert!(!filter(&["pets"], &["POST"]).fits_all(looked));
        assert!(filter(&["pets"], &["POST"]).fits_any(looked));
        assert!(!filter(&["x"], &["POST"]).fits_any(looked));
    }
}
