//! Login with a key, logout, and the colours of the pages. Logins at an issuer are in [`super::oidc`].

use http::StatusCode;
use http::header;
use jiff::Timestamp;
use toolgate_console::assets::ASSETS;
use toolgate_console::frame::{Notice, Theme};
use toolgate_console::pages::LoginPage;

use super::form::{Form, local_path};
use super::session::{ConsoleSession, SessionCredential, attributes, log_refusal, removed_session};
use super::visit::{Visit, notice_of, query_value, target};
use super::{THEME_COOKIE, html, redirect, set_cookie, theme_of};
use crate::auth::HttpError;
use crate::listener::ConnectionSource;
use crate::response::{Response, set_error_headers};
use crate::route::AdmittedRequest;

/// The form of a login.
pub(super) async fn form(request: AdmittedRequest) -> Result<Response, HttpError> {
    let next = query_value(&request.parts.uri, "next").unwrap_or_default();
    let next = local_path(&next);
    let gateway = &request.gateway;
    let session = gateway.console.session(gateway, &request.source, &request.parts.headers);
    if gateway.authenticator.authenticate_session(session, &request.source).await.is_ok() {
        return Ok(redirect(next));
    }
    Ok(page(&request, StatusCode::OK, next, None))
}

/// Checks the key and begins a session.
pub(super) async fn enter(request: AdmittedRequest) -> Result<Response, HttpError> {
    let form = Form::parse(&request.body)?;
    let next = local_path(form.text("next"));
    let gateway = &request.gateway;
    let ConnectionSource::Network(ends, _) = &request.source else {
        return Err(HttpError::invalid("the console is for browsers, over the network"));
    };
    // Without the header, the form may be one of another origin. With it, the origin was checked before the route.
    let checked = match request.parts.headers.contains_key(header::ORIGIN) {
        true => gateway.authenticator.check_login(form.text("key").trim(), *ends).await,
        false => Err(HttpError::new(StatusCode::FORBIDDEN, "unauthorized", "the request has no `Origin`")),
    };
    let key = match checked {
        Ok(key) => key,
        Err(error) => {
            log_refusal(ends.client, &error);
            let mut notice = notice_of(&error);
            if error.status == StatusCode::UNAUTHORIZED {
                // The hint of the error is for programs.
                notice.hint = error.hint.filter(|hint| !hint.starts_with("send "));
            }
            let mut response = page(&request, error.status, next, Some(notice));
            set_error_headers(response.headers_mut(), error.retry_after, None);
            return Ok(response);
        }
    };
    let session = ConsoleSession::start(SessionCredential::Key(key), Timestamp::now());
    let mut response = redirect(next);
    let secure = gateway.authenticator.is_secure(&request.source);
    if let Some(cookie) = gateway.console.sessions.cookie(&session, secure) {
        set_cookie(&mut response, &cookie);
    }
    Ok(response)
}

/// The page of a login, with a link for each issuer.
pub(super) fn page(
    request: &AdmittedRequest,
    status: StatusCode,
    next: &str,
    failure: Option<Notice>,
) -> Response {
    let issuers = request.gateway.authenticator.login_labels().into_iter();
    let link = |(issuer, label): (String, String)| {
        (label, target("/oidc/login", [("issuer", issuer.as_str()), ("next", next)]))
    };
    let page = LoginPage {
        theme: theme_of(&request.parts.headers),
        assets: &ASSETS,
        heading: "Log in to Toolgate".to_owned(),
        failure,
        form: true,
        issuers: issuers.map(link).collect(),
        next: next.to_owned(),
    };
    html(status, &page)
}

/// Ends the session.
pub(super) async fn leave(visit: Visit) -> Result<Response, HttpError> {
    visit.gateway.console.sessions.end(&visit.session, Timestamp::now()).map_err(|error| {
        tracing::warn!("a logout is not stored: {error}");
        HttpError::unavailable("the logout cannot be stored now, so the session goes on").hint("try again")
    })?;
    let mut response = redirect("/login");
    set_cookie(&mut response, &removed_session(visit.is_secure()));
    Ok(response)
}

/// Stores the colours that the browser wants.
pub(super) async fn theme(visit: Visit) -> Result<Response, HttpError> {
    let theme = Theme::parse(visit.form.text("theme")).unwrap_or_default();
    let mut response = redirect(visit.form.back());
    let attributes = attributes(visit.is_secure());
    set_cookie(&mut response, &format!("{THEME_COOKIE}={}; {attributes}; Max-Age=31536000", theme.label()));
    Ok(response)
}
