//! Export of traces.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{ConfigString, HumanDuration};

/// Trace collector that speaks OTLP over HTTP.
#[derive(Debug, Clone, Serialize)]
pub struct OtlpCollector {
    /// URL for traces, such as `http://localhost:4318/v1/traces`.
    pub endpoint: String,
    /// Headers of every export request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ConfigString>,
    /// `service.name` of the exported traces.
    pub service_name: String,
    /// Deadline of one export request.
    pub timeout: HumanDuration,
}
