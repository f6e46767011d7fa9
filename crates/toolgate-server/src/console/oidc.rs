//! Login to the console at a token issuer, with OpenID Connect.
//!
//! A sealed cookie binds the response to the browser that began the login: it holds the state, the nonce and the code
//! verifier. Invariant: a login sets a session only in that browser, once, and leads to pages of this gateway only.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toolgate_console::assets::ASSETS;
use toolgate_console::pages::LoggedInPage;

use super::form::local_path;
use super::session::{ConsoleSession, LOGIN_LIFETIME, SessionCredential, log_refusal, removed_login};
use super::visit::{notice_of, query_value};
use super::{html, login, origin, set_cookie, set_page_headers, theme_of};
use crate::auth::{HttpError, LoginSecrets, login_failed};
use crate::listener::ConnectionSource;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;

/// Path of the redirect URI. It is registered with issuers.
pub(super) const CALLBACK: &str = "/oidc/callback";

/// A login that has begun, as the cookie of the browser holds it.
#[derive(Serialize, Deserialize)]
struct BegunLogin {
    issuer: String,
    state: String,
    nonce: String,
    verifier: String,
    /// Page to show afterwards.
    next: String,
    /// Unix time of its end.
    end: i64,
}

/// Begins a login: the browser goes on to the issuer.
pub(super) async fn begin(request: AdmittedRequest) -> Result<Response, HttpError> {
    let next = query_value(&request.parts.uri, "next").unwrap_or_default();
    let next = local_path(&next);
    match redirect_to_issuer(&request, next).await {
        Ok(response) => Ok(response),
        Err(error) => Ok(refuse(&request, next, &error)),
    }
}

async fn redirect_to_issuer(request: &AdmittedRequest, next: &str) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let issuer = query_value(&request.parts.uri, "issuer").unwrap_or_default();
    let provider = gateway.authenticator.login_provider(&issuer);
    let provider = provider.ok_or_else(|| HttpError::not_found("there is no login with this issuer"))?;
    let secrets = LoginSecrets::random();
    let url = provider.authorization_url(&redirect_uri(request)?, &secrets).await?;
    let LoginSecrets { state, nonce, verifier } = secrets;
    let end = Timestamp::now().as_second() + LOGIN_LIFETIME;
    let begun = BegunLogin { issuer, state, nonce, verifier, next: next.to_owned(), end };
    let mut response = response::empty(StatusCode::SEE_OTHER);
    let location = HeaderValue::from_str(url.as_str());
    let location = location.map_err(|_| HttpError::unavailable("the URL of the issuer is invalid"))?;
    set_page_headers(response.headers_mut());
    response.headers_mut().insert(header::LOCATION, location);
    // The URL of the page before is none of the business of the issuer.
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let secure = gateway.authenticator.is_secure(&request.source);
    set_cookie(&mut response, &gateway.console.sessions.login_cookie(&begun, secure));
    Ok(response)
}

fn redirect_uri(request: &AdmittedRequest) -> Result<String, HttpError> {
    let origin = origin(&request.gateway, &request.source, &request.parts);
    let origin = origin.ok_or_else(|| HttpError::invalid("the request has no valid `Host` header"))?;
    Ok(format!("{origin}{CALLBACK}"))
}

/// Takes the response of the issuer, and begins a session.
pub(super) async fn finish(request: AdmittedRequest) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let secure = gateway.authenticator.is_secure(&request.source);
    let begun = begun_login(&request, &request.parts.headers, secure);
    let next = begun.as_ref().map_or("/", |begun| local_path(&begun.next)).to_owned();
    let session = match begun {
        Some(begun) => begin_session(&request, begun).await,
        None => Err(login_failed("the login has expired, or was begun in another browser")
            .hint("begin it again, in this browser")),
    };
    let cookie = session.and_then(|session| {
        let cookie = gateway.console.sessions.cookie(&session, secure);
        cookie.ok_or_else(|| login_failed("the token names too many groups for a session of the console"))
    });
    let mut response = match cookie {
        Ok(cookie) => {
            // A redirect would still count as a request of the issuer's site, so the browser would withhold the cookie
            // of the session. The page leads on by itself.
            let page = LoggedInPage { theme: theme_of(&request.parts.headers), assets: &ASSETS, next };
            let mut response = html(StatusCode::OK, &page);
            set_cookie(&mut response, &cookie);
            response
        }
        Err(error) => refuse(&request, &next, &error),
    };
    set_cookie(&mut response, &removed_login(secure));
    Ok(response)
}

/// The login that this browser has begun, if the response is for it.
fn begun_login(request: &AdmittedRequest, headers: &HeaderMap, secure: bool) -> Option<BegunLogin> {
    let begun: BegunLogin = request.gateway.console.sessions.login(headers, secure)?;
    let state = query_value(&request.parts.uri, "state")?;
    let is_same = verify_slices_are_equal(state.as_bytes(), begun.state.as_bytes()).is_ok();
    (is_same && begun.end > Timestamp::now().as_second()).then_some(begun)
}

async fn begin_session(request: &AdmittedRequest, begun: BegunLogin) -> Result<ConsoleSession, HttpError> {
    let gateway = &request.gateway;
    let ConnectionSource::Network(ends, _) = &request.source else {
        return Err(HttpError::invalid("the console is for browsers, over the network"));
    };
    let query = |name: &str| query_value(&request.parts.uri, name);
    let provider = gateway.authenticator.login_provider(&begun.issuer);
    let provider = provider.ok_or_else(|| login_failed("the login with this issuer was removed"))?;
    provider.check_response_issuer(query("iss").as_deref()).await?;
    if let Some(error) = query("error") {
        let error: String = error.chars().take(80).collect();
        return Err(login_failed(format!("the issuer refused the login: `{error}`")));
    }
    let code = query("code").ok_or_else(|| login_failed("the response of the issuer has no `code`"))?;
    let _slot = gateway.console.logins.try_acquire().map_err(|_| {
        HttpError::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", "too many logins at the same time")
            .retry_after(std::time::Duration::from_secs(5))
    })?;
    let redirect_uri = redirect_uri(request)?;
    let BegunLogin { state, nonce, verifier, .. } = begun;
    let secrets = LoginSecrets { state, nonce, verifier };
    let authenticator = &gateway.authenticator;
    let token = authenticator.finish_login(&provider, &code, &redirect_uri, &secrets, *ends).await?;
    Ok(ConsoleSession::start(SessionCredential::Token(token), Timestamp::now()))
}

/// Shows the login again, with the reason.
fn refuse(request: &AdmittedRequest, next: &str, error: &HttpError) -> Response {
    if let ConnectionSource::Network(ends, _) = &request.source {
        log_refusal(ends.client, error);
    }
    let mut response = login::page(request, error.status, next, Some(notice_of(error)));
    response::set_error_headers(response.headers_mut(), error.retry_after, None);
    response
}
