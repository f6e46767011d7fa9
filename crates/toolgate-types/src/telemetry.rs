//! Where traces of calls go.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{HumanDuration, Text};

/// A collector of traces that speaks OTLP over HTTP.
#[derive(Debug, Clone, Serialize)]
pub struct Collector {
    /// Where it takes traces: `http://localhost:4318/v1/traces`.
    pub endpoint: String,
    /// What it wants to see with each request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Text>,
    /// What this service is called there.
    pub service_name: String,
    /// How long one request may take.
    pub timeout: HumanDuration,
}
