//! Results of the newest revision that ask for input. The client half answers them, the server half passes them on.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Result of the newest revision in which the server asks for input before it continues.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InputRequired<'a> {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(borrow, default)]
    pub(crate) input_requests: Option<BTreeMap<&'a str, InputRequest<'a>>>,
    #[serde(borrow, default)]
    pub(crate) request_state: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct InputRequest<'a> {
    pub(crate) method: String,
    #[serde(borrow, default)]
    pub(crate) params: Option<&'a RawValue>,
}

impl InputRequired<'_> {
    pub(crate) fn is_input_required(&self) -> bool {
        self.result_type.as_deref() == Some("input_required")
    }
}
