//! `/login/…`: logins of callers to servers in their own browser.
//!
//! A link names one caller and one server ([`toolgate_upstream::login_tickets`]). Its page names both, and
//! a button leads to the authorization server. The response comes back to `/login/callback`, accepted only from
//! the browser that opened the login. Invariant: no page shows a token, and none can be framed.

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use toolgate_runtime::login_tickets::{CallbackQuery, TicketError};

use crate::auth::HttpError;
use crate::response::{Response, ResponseBody};
use crate::rest::docs_page::html_of;
use crate::route::AdmittedRequest;

/// Content security policy: allows the inline style only. Forms lead to any authorization server.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";
const COOKIE: &str = "toolgate_login";
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:4rem auto;padding:0 1rem}\
    button{font:inherit;padding:.4rem 1rem}@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}";

/// Shows the caller and the server of a login.
pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ticket = request.parameter()?;
    let Some(info) = request.gateway.runtime.login_tickets().find(&ticket) else { return Ok(expired_page()) };
    let (caller, server) = (html_of(info.caller.as_str()), html_of(info.server.as_str()));
    let text = format!(
        "<h1>Log in</h1><p>Caller <b>{caller}</b> of this gateway wants to use the server <b>{server}</b> with your \
         account there.<p>Go on only if you are {caller} and have just asked for this: whoever sent you this link \
         could use your account otherwise.<form method=post><button>Log in to {server}</button></form>"
    );
    Ok(page(StatusCode::OK, &text))
}

/// Opens the page of the authorization server.
pub(crate) async fn start(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ticket = request.parameter()?;
    let runtime = &request.gateway.runtime;
    let (login, cookie) = match Box::pin(runtime.start_login(&ticket)).await {
        Ok(started) => started,
        Err(TicketError::Unknown) => return Ok(expired_page()),
        Err(error) => return Ok(failed_page(&error)),
    };
    let mut response = page(StatusCode::SEE_OTHER, "<p>Going on to the login …");
    let headers = response.headers_mut();
    let secure = if runtime.login_tickets().is_secure() { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={cookie}; Path=/login; Max-Age=600; HttpOnly; SameSite=Lax{secure}");
    let location = HeaderValue::from_str(login.url.as_str());
    let (Ok(location), Ok(cookie)) = (location, HeaderValue::from_str(&cookie)) else {
        return Ok(failed_page(&TicketError::Unknown));
    };
    headers.insert(header::LOCATION, location);
    headers.insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Takes the response of the authorization server.
pub(crate) async fn finish(request: AdmittedRequest) -> Result<Response, HttpError> {
    let query = CallbackQuery::parse(request.parts.uri.query().unwrap_or_default());
    let cookie = cookie(&request.parts.headers).unwrap_or_default();
    let tickets = request.gateway.runtime.login_tickets();
    let response = match Box::pin(tickets.finish(&query.state, &cookie, query.response)).await {
        Ok(info) => {
            tracing::info!(caller = %info.caller, server = %info.server, "a caller has logged in");
            request.gateway.runtime.announce_lists_of(&info.caller);
            let (caller, server) = (html_of(info.caller.as_str()), html_of(info.server.as_str()));
            let text = format!(
                "<h1>Logged in</h1><p><b>{caller}</b> can use <b>{server}</b> now. You can close this window."
            );
            page(StatusCode::OK, &text)
        }
        Err(TicketError::Unknown) => expired_page(),
        Err(error) => failed_page(&error),
    };
    Ok(response)
}

fn expired_page() -> Response {
    let text =
        "<h1>This login has expired</h1><p>Or it was used before. Call the tool again to get a new link.";
    page(StatusCode::NOT_FOUND, text)
}

fn failed_page(error: &TicketError) -> Response {
    tracing::warn!(%error, "a login of a caller failed");
    let text = format!(
        "<h1>The login failed</h1><p>{}.<p>Call the tool again to get a new link. The log of the gateway has the \
         details.",
        html_of(&error.to_string())
    );
    page(StatusCode::BAD_REQUEST, &text)
}

fn page(status: StatusCode, text: &str) -> Response {
    let body = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Toolgate</title><style>{STYLE}</style>{text}</html>\n"
    );
    let mut response = Response::new(ResponseBody::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    // With `no-referrer`, browsers would send `Origin: null` with the form, which is refused.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// Returns the cookie of the browser that opened a login.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split(';')).find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE).then(|| value.to_owned())
    })
}
