//! The web console: pages that show the answers of REST operations, and forms that perform them.
//!
//! A page performs operations of the route table in this process, as the caller that logged in ([`visit`]): there is no
//! second authorization and no second access to data. Invariant: only the cookie of a session opens the console, and the
//! cookie opens nothing else; every form needs the token of its session and comes from a page of this gateway.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use toolgate_console::Page;
use toolgate_console::assets::ASSETS;
use toolgate_console::frame::Theme;
use toolgate_console::pages::LoginPage;
use toolgate_mcp::server::SessionKeys;
use toolgate_store::cluster::ClusterStores;

use crate::Gateway;
use crate::auth::{HttpError, authority};
use crate::listener::ConnectionSource;
use crate::response::{self, Response, ResponseBody};
use crate::route::{AdmittedRequest, BodyLimit, Handler, Requirement, Route, RouteFuture};

mod actions;
mod files;
mod form;
mod live_call;
mod login;
mod oidc;
mod pages;
mod session;
mod visit;

pub(crate) use session::{ConsoleSession, SessionCredential};
use session::{ConsoleSessions, SharedLogouts};
use visit::Visit;

/// Content security policy of all pages: nothing from other origins, no inline script or style.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src data:; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types console",
);
/// Logins at issuers that are finished at the same time.
const MAX_LOGINS: usize = 8;
/// Cookie with the colours that the browser wants.
const THEME_COOKIE: &str = "toolgate_theme";

/// State of the console.
pub(crate) struct Console {
    sessions: ConsoleSessions,
    /// Logins at issuers that are being finished. Each sends requests.
    logins: Semaphore,
}

impl Console {
    pub(crate) fn new(keys: &SessionKeys, cluster: Option<&ClusterStores>) -> Self {
        let logouts = cluster.map(|cluster| SharedLogouts::new(Arc::clone(&cluster.documents)));
        Self { sessions: ConsoleSessions::new(keys, logouts), logins: Semaphore::new(MAX_LOGINS) }
    }

    pub(crate) fn set_keys(&self, keys: &SessionKeys) {
        self.sessions.set_keys(keys);
    }

    /// Finds the session of a request.
    pub(crate) fn session(
        &self,
        gateway: &Gateway,
        source: &ConnectionSource,
        headers: &HeaderMap,
    ) -> Option<ConsoleSession> {
        self.sessions.find(headers, gateway.authenticator.is_secure(source), Timestamp::now())
    }
}

/// First parts of the paths of pages.
const PAGES: [&str; 19] = [
    "",
    "servers",
    "tools",
    "executions",
    "inbox",
    "runs",
    "policy",
    "callers",
    "connect",
    "search",
    "resource",
    "do",
    "theme",
    "logout",
    "login",
    "live",
    "assets",
    "key",
    "oidc",
];

/// Returns true if a request is for the console: its errors are pages.
pub(crate) fn is_page(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let mut segments = path.split('/').skip(1);
    match (segments.next(), segments.next()) {
        // Logins to servers have pages of their own.
        (Some("login"), Some(_)) => false,
        (Some(first), _) => PAGES.contains(&first),
        (None, _) => false,
    }
}

/// The routes of the console.
pub(crate) fn rows() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/assets/{file}", Requirement::Public, files::asset),
        Route::new(Method::GET, "/login", Requirement::Public, login::form),
        Route::new(Method::POST, "/login", Requirement::Public, login::enter).reads(BodyLimit::LoginForm),
        Route::new(Method::GET, "/oidc/login", Requirement::Public, oidc::begin),
        Route::new(Method::GET, oidc::CALLBACK, Requirement::Public, oidc::finish),
        form_page("/logout", login::leave),
        form_page("/theme", login::theme),
        form_page("/do/{operation}", actions::perform),
        page("/live", pages::live),
        page("/", pages::overview::show),
        page("/search", pages::search::show),
        page("/servers", pages::servers::list),
        page("/servers/new", pages::servers::new),
        form_page("/servers/new", pages::servers::submit),
        page("/servers/{name}", pages::servers::show),
        page("/resource", pages::servers::resource),
        page("/tools", pages::tools::list),
        page("/tools/new", pages::tools::new),
        page("/tools/{name}", pages::tools::show),
        form_page("/tools/{name}", pages::tools::submit),
        page("/executions", pages::executions::list),
        page("/executions/{id}", pages::executions::show),
        page("/inbox", pages::inbox::list),
        page("/inbox/{id}", pages::inbox::show),
        page("/runs", pages::runs::list),
        page("/runs/{id}", pages::runs::show),
        page("/runs/{id}/events", pages::runs::events),
        page("/policy", pages::policy::show),
        form_page("/policy", pages::policy::submit),
        page("/callers", pages::callers::list),
        page("/callers/{id}", pages::callers::show),
        page("/connect", pages::connect::show),
    ]
}

/// A page for callers that logged in. Its errors are pages, too.
fn page<F: RouteFuture>(path: &'static str, show: fn(Visit) -> F) -> Route {
    console_route(Method::GET, path, show)
}

/// A form of a page.
fn form_page<F: RouteFuture>(path: &'static str, submit: fn(Visit) -> F) -> Route {
    console_route(Method::POST, path, submit).reads(BodyLimit::Form)
}

fn console_route<F: RouteFuture>(method: Method, path: &'static str, show: fn(Visit) -> F) -> Route {
    let handler = Handler::Function(Box::new(move |request: AdmittedRequest| {
        Box::pin(async move {
            let visit = Visit::new(request)?;
            let again = visit.clone();
            let shown = match visit.check_form() {
                Ok(()) => show(visit).await,
                Err(error) => Err(error),
            };
            match shown {
                Ok(response) => Ok(response),
                Err(error) => Ok(again.error_page(error).await),
            }
        })
    }));
    let need = Requirement::Console;
    Route { method, path, need, body_limit: BodyLimit::NotRead, handler, operation: None }
}

/// Renders an error outside of a session: a login if none is there.
pub(crate) fn render_error(error: HttpError, page: Option<Uri>) -> Response {
    if error.status == StatusCode::UNAUTHORIZED {
        let next = page.as_ref().and_then(|uri| uri.path_and_query()).map_or("/", |path| path.as_str());
        let next = form::local_path(next);
        return redirect(&if next == "/" {
            "/login".to_owned()
        } else {
            format!("/login?next={}", encode(next))
        });
    }
    let status = error.status;
    let page = LoginPage {
        theme: Theme::Auto,
        assets: &ASSETS,
        heading: format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or("Error")),
        failure: Some(visit::notice_of(&error)),
        form: false,
        issuers: Vec::new(),
        next: String::new(),
    };
    let mut response = html(status, &page);
    response::set_error_headers(response.headers_mut(), error.retry_after, None);
    response
}

/// The origin of the gateway, as the browser sees it. The host was checked before the route: it is one of this gateway.
fn origin(gateway: &Gateway, source: &ConnectionSource, parts: &Parts) -> Option<String> {
    let scheme = if gateway.authenticator.is_secure(source) { "https" } else { "http" };
    Some(format!("{scheme}://{}", authority(parts)?))
}

fn encode(part: &str) -> String {
    toolgate_console::text::url(part)
}

/// Renders a page with the headers that all pages have.
fn html(status: StatusCode, page: &impl Page) -> Response {
    let text = page.render().unwrap_or_else(|error| {
        tracing::error!("a page cannot be rendered: {error}");
        String::new()
    });
    let mut response = Response::new(ResponseBody::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    set_page_headers(headers);
    response
}

fn set_page_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, PAGE_POLICY);
    // With `no-referrer`, browsers would send `Origin: null` with forms.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

/// Redirects to a page of this gateway, with GET.
fn redirect(path: &str) -> Response {
    let mut response = response::empty(StatusCode::SEE_OTHER);
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, location);
    set_page_headers(response.headers_mut());
    response
}

fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

/// The colours that the browser wants.
fn theme_of(headers: &HeaderMap) -> Theme {
    session::cookie(headers, THEME_COOKIE).and_then(Theme::parse).unwrap_or_default()
}

#[cfg(test)]
mod tests;
