//! `telemetry`: the OpenTelemetry collector for traces.

use std::collections::BTreeMap;

use toolgate_types::telemetry::OtlpCollector;
use toolgate_types::{ConfigString, HumanDuration};
use url::Url;

use crate::context::Context;
use crate::feature::checks::{check_url, resolve_headers};
use crate::keys::{NamedMap, keys};
use crate::resolve::ConfigBuilder;

keys! {
    /// An OpenTelemetry collector that accepts OTLP over HTTP in JSON. Spans contain names, times and errors;
    /// arguments and results stay in the execution log.
    struct TelemetryFile as "telemetry" {
        /// URL of the collector, such as `http://localhost:4318`. `/v1/traces` is appended if the URL has no path.
        otlp_endpoint: ConfigString; required,
        /// Headers sent with every request.
        headers: NamedMap<ConfigString>,
        /// Service name reported to the collector.
        service_name: String = "toolgate",
        /// Timeout of one request.
        timeout: HumanDuration = "10s",
    }
}

/// Default service name.
const SERVICE_NAME: &str = "toolgate";

/// Default timeout of one request.
const TIMEOUT: HumanDuration = HumanDuration::from_secs(10);

impl ConfigBuilder {
    pub(crate) fn set_telemetry(&mut self, mut file: TelemetryFile, cx: &mut Context<'_>) {
        self.record_origins("telemetry", file.value_spans());
        let Some(endpoint) = file.otlp_endpoint.take() else { return };
        if check_url(&endpoint, &["http", "https"], cx).is_none() {
            return;
        }
        self.telemetry = Some(OtlpCollector {
            endpoint: traces_url(endpoint.value.expose()),
            headers: resolve_headers(file.headers.take(), cx),
            service_name: file.service_name.map_or_else(|| SERVICE_NAME.to_owned(), |at| at.value),
            timeout: file.timeout.map_or(TIMEOUT, |at| at.value),
        });
    }
}

/// Returns the collector configured by the standard OpenTelemetry variables.
pub(crate) fn collector_from_environment(cx: &Context<'_>) -> Option<OtlpCollector> {
    let variable = |name: &str| cx.environment.variables.get(name).filter(|value| !value.trim().is_empty());
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    // The variable for traces is a complete URL; the general one is a base URL for all signals.
    let traces = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").cloned();
    let endpoint = traces.or_else(|| {
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        Some(format!("{}/v1/traces", base.trim_end_matches('/')))
    })?;
    let pairs = variable("OTEL_EXPORTER_OTLP_HEADERS").map(String::as_str).unwrap_or_default();
    let headers: BTreeMap<_, _> = pairs
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), ConfigString::hidden(value.trim())))
        .collect();
    let service_name = variable("OTEL_SERVICE_NAME").map_or(SERVICE_NAME, String::as_str).to_owned();
    Some(OtlpCollector { endpoint, headers, service_name, timeout: TIMEOUT })
}

/// Returns the URL for traces. A URL without a path is the base URL of the collector.
fn traces_url(endpoint: &str) -> String {
    match Url::parse(endpoint) {
        Ok(url) if matches!(url.path(), "" | "/") => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    fn project(text: &str) -> LoadOutcome {
        loaded(&[("toolgate.yaml", text)], &[])
    }

    #[test]
    fn values_and_defaults() {
        let text = "telemetry: {otlp_endpoint: 'http://h:4318/v1/t', headers: {X-Key: k}, service_name: gate, timeout: 2s}";
        insta::assert_snapshot!(config(&project(text))["telemetry"], @r#"{"endpoint":"http://h:4318/v1/t","headers":{"X-Key":"***"},"service_name":"gate","timeout":"2s"}"#);
        insta::assert_snapshot!(config(&project("telemetry: {otlp_endpoint: 'http://h:4318'}"))["telemetry"], @r#"{"endpoint":"http://h:4318/v1/traces","service_name":"toolgate","timeout":"10s"}"#);
        assert!(config(&project("name: x")).get("telemetry").is_none(), "nothing is exported by default");
    }

    #[test]
    fn standard_variables_apply_without_the_key() {
        let endpoint = |text: &str, variables: &[(&str, &str)]| {
            config(&loaded(&[("toolgate.yaml", text)], variables))["telemetry"]["endpoint"].clone()
        };
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318/x");
        assert_eq!(endpoint("name: x", &[general]), "http://general:4318/v1/traces");
        assert_eq!(endpoint("name: x", &[general, traces]), "http://traces:4318/x");
        assert_eq!(endpoint("name: x", &[general, ("OTEL_SDK_DISABLED", "true")]), serde_json::Value::Null);
        assert_eq!(endpoint("telemetry: {otlp_endpoint: 'http://h/t'}", &[general]), "http://h/t");
    }

    #[test]
    fn reports_mistakes() {
        let mistakes = [
            "telemetry: {}",
            "telemetry: {otlp_endpoint: 'localhost:4318'}",
            "telemetry: {otlp_endpoint: 'http://h', headers: {'a b': x}, timeout: 0}",
        ];
        insta::assert_snapshot!(mistakes.map(|text| messages(&project(text))).join("\n"), @"
        error toolgate.yaml:1:12 missing key `otlp_endpoint` in telemetry (add `otlp_endpoint`: a string)
        error toolgate.yaml:1:28 `localhost:4318` does not start with `http://` or `https://` (write a complete URL, such as `http://localhost:8080/mcp`)
        error toolgate.yaml:1:50 `a b` is not the name of a header (names are letters, digits and `-`)
        error toolgate.yaml:1:70 `0` is not a duration in telemetry (a duration must be more than zero)
        ");
    }
}
