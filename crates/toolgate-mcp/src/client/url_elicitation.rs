//! URLs that a server wants a person to open (URL-mode elicitation).
//!
//! Runs where the messages of a server arrive, so that no responder and no downstream client sees another URL than a
//! [`BrowserUrl`]: a client may open it without a question.

use serde::Deserialize;
use toolgate_types::BrowserUrl;
use toolgate_types::browser_url::BrowserUrlError;

use crate::RawJson;
use crate::input_required::InputRequired;
use crate::message::RpcError;

const ELICITATION: &str = "elicitation/create";
/// Error code of a server that answers after a person has opened some URLs.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Checks the URL of an elicitation request.
pub(super) fn check_request(method: &str, params: Option<&RawJson>) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    struct Params {
        url: Option<serde_json::Value>,
    }
    if method != ELICITATION {
        return Ok(());
    }
    let url = params.and_then(|params| params.parse::<Params>().ok()?.url);
    check_url(url.as_ref()).map_err(|error| RpcError::new(RpcError::INVALID_PARAMS, error.to_string()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultKind {
    result_type: Option<serde_json::Value>,
}

/// Checks the URLs in a result that asks for input.
pub(super) fn check_result(result: &RawJson) -> Result<(), RpcError> {
    // Substring check first: it is cheap, and few results ask for input.
    if !result.contains_short("input_required") {
        return Ok(());
    }
    let Ok(question) = result.parse_borrowed::<InputRequired<'_>>() else {
        // A client may understand requests that we do not.
        let kind = result.parse::<ResultKind>().ok().and_then(|kind| kind.result_type);
        let asks = kind.is_some_and(|kind| kind == "input_required");
        return if asks { Err(RpcError::new(-32603, "its input requests are invalid")) } else { Ok(()) };
    };
    if !question.is_input_required() {
        return Ok(());
    }
    let mut requests = question.input_requests.iter().flatten();
    requests.try_for_each(|(_, asked)| {
        let params = asked.params.map(|params| result.slice(params.get()));
        check_request(&asked.method, params.as_ref())
    })
}

/// Removes the details of an error that names a URL that must not be opened.
pub(super) fn check_error(error: RpcError) -> RpcError {
    #[derive(Deserialize)]
    struct Details {
        #[serde(default)]
        elicitations: Vec<Elicitation>,
    }
    #[derive(Deserialize)]
    struct Elicitation {
        url: Option<serde_json::Value>,
    }
    let (URL_ELICITATION_REQUIRED, Some(data)) = (error.code, &error.data) else { return error };
    let blocked = match data.parse::<Details>() {
        Ok(details) => details.elicitations.iter().find_map(|one| check_url(one.url.as_ref()).err()),
        Err(_) => Some(invalid_url()),
    };
    match blocked {
        Some(blocked) => RpcError::new(-32603, format!("the server asks for a URL to be opened: {blocked}")),
        None => error,
    }
}

fn check_url(url: Option<&serde_json::Value>) -> Result<(), BrowserUrlError> {
    match url {
        None => Ok(()),
        Some(url) => url.as_str().ok_or_else(invalid_url)?.parse::<BrowserUrl>().map(drop),
    }
}

/// Error of a value that is not a URL.
fn invalid_url() -> BrowserUrlError {
    "".parse::<BrowserUrl>().expect_err("an empty string is not a URL")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BAD: [&str; 4] =
        ["file:///etc/passwd", "javascript:alert(1)", "vscode://file/x", "http://example.com/"];

    #[test]
    fn blocks_requests() {
        let check = |params| check_request(ELICITATION, Some(&RawJson::from_value(&params)));
        assert!(check(json!({ "mode": "url", "url": "https://example.com/" })).is_ok());
        assert!(check(json!({ "message": "a form" })).is_ok());
        assert!(check(json!({ "url": ["javascript:x"] })).is_err());
        for url in BAD {
            assert_eq!(check(json!({ "url": url })).unwrap_err().code, RpcError::INVALID_PARAMS, "{url}");
        }
    }

    #[test]
    fn blocks_results() {
        for (url, passes) in BAD.map(|url| (url, false)).into_iter().chain([("https://example.com/", true)]) {
            let asked = json!({ "method": ELICITATION, "params": { "mode": "url", "url": url } });
            let result = json!({ "resultType": "input_required", "inputRequests": { "a": asked } });
            assert_eq!(check_result(&RawJson::from_value(&result)).is_ok(), passes, "{url}");
        }
        let unreadable = json!({ "resultType": "input_required", "inputRequests": { "a": { "method": 1 } } });
        assert!(check_result(&RawJson::from_value(&unreadable)).is_err());
        assert!(check_result(&RawJson::from_value(&json!({ "content": "input_required" }))).is_ok());
    }

    #[test]
    fn blocks_errors() {
        for (url, passes) in BAD.map(|url| (url, false)).into_iter().chain([("https://example.com/", true)]) {
            let data = json!({ "elicitations": [{ "mode": "url", "url": url, "elicitationId": "1" }] });
            let mut error = RpcError::new(URL_ELICITATION_REQUIRED, "visit it");
            error.data = Some(RawJson::from_value(&data));
            let checked = check_error(error);
            assert_eq!(checked.data.is_some(), passes, "{url}");
            assert!(passes || !checked.message.contains(url), "{}", checked.message);
        }
    }
}
