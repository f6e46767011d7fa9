//! `telemetry`: where traces of calls go.

use std::collections::BTreeMap;

use toolgate_types::telemetry::Collector;
use toolgate_types::{HumanDuration, Text};
use url::Url;

use crate::context::Context;
use crate::file::TelemetryFile;
use crate::settle::Draft;
use crate::settle::server::{check_url, headers};

/// What a service is called where nobody says.
const SERVICE_NAME: &str = "toolgate";
/// How long one request may take where nobody says.
const TIMEOUT: HumanDuration = HumanDuration::from_secs(10);

impl Draft {
    pub(crate) fn telemetry(&mut self, mut file: TelemetryFile, cx: &mut Context<'_>) {
        self.origins("telemetry", file.written());
        let Some(endpoint) = file.otlp_endpoint.take() else { return };
        if check_url(&endpoint, &["http", "https"], cx).is_none() {
            return;
        }
        self.telemetry = Some(Collector {
            endpoint: for_traces(endpoint.value.expose()),
            headers: headers(file.headers.take(), cx),
            service_name: file.service_name.map_or_else(|| SERVICE_NAME.to_owned(), |at| at.value),
            timeout: file.timeout.map_or(TIMEOUT, |at| at.value),
        });
    }
}

/// What the variables of OpenTelemetry say.
pub(super) fn of_environment(cx: &Context<'_>) -> Option<Collector> {
    let variable = |name: &str| cx.environment.variables.get(name).filter(|value| !value.trim().is_empty());
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    // The one for traces alone is the whole address; the other is where all signals go.
    let traces = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").cloned();
    let endpoint = traces.or_else(|| {
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        Some(format!("{}/v1/traces", base.trim_end_matches('/')))
    })?;
    let pairs = variable("OTEL_EXPORTER_OTLP_HEADERS").map(String::as_str).unwrap_or_default();
    let headers: BTreeMap<_, _> = pairs
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), Text::hidden(value.trim())))
        .collect();
    let service_name = variable("OTEL_SERVICE_NAME").map_or(SERVICE_NAME, String::as_str).to_owned();
    Some(Collector { endpoint, headers, service_name, timeout: TIMEOUT })
}

/// The address for traces: an address without a path is that of the collector as a whole.
fn for_traces(endpoint: &str) -> String {
    match Url::parse(endpoint) {
        Ok(url) if matches!(url.path(), "" | "/") => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
        _ => endpoint.to_owned(),
    }
}
