//! A request for a page: performs REST operations as the caller that logged in, and renders the page.
//!
//! Invariant: [`Visit::perform`] is the only way from the console to data. It finds the operation in the route table,
//! checks the requirement of its route and runs its handler, as for a request over REST.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toolgate_console::Page;
use toolgate_console::frame::{Frame, Notice, Section};
use toolgate_console::pages::ErrorPage;
use toolgate_console::rest::{Problem, Questions};
use toolgate_console::text::url;

use super::form::{self, Form};
use super::session::{ConsoleSession, removed_notice};
use super::{html, redirect, set_cookie, theme_of};
use crate::Gateway;
use crate::auth::{Authenticated, HttpError};
use crate::listener::ConnectionSource;
use crate::response::Response;
use crate::route::{AdmittedRequest, Handler};
use crate::routes::{ROUTES, no_endpoint};

/// Largest answer that a page is made from, in bytes.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// A request for a page. Clones share everything.
#[derive(Clone)]
pub(super) struct Visit(Arc<VisitParts>);

pub(super) struct VisitParts {
    pub(super) gateway: Arc<Gateway>,
    auth: Authenticated,
    source: ConnectionSource,
    pub(super) session: ConsoleSession,
    parts: Parts,
    parameter: Option<String>,
    pub(super) form: Form,
    /// Operations that the page was made from.
    performed: Mutex<Vec<String>>,
}

impl Deref for Visit {
    type Target = VisitParts;

    fn deref(&self) -> &VisitParts {
        &self.0
    }
}

impl Visit {
    pub(super) fn new(request: AdmittedRequest) -> Result<Self, HttpError> {
        let parameter = request.parameter.is_some().then(|| request.parameter()).transpose()?;
        let AdmittedRequest { gateway, auth, source, parts, body, .. } = request;
        let session = gateway.console.session(&gateway, &source, &parts.headers);
        let session = session.ok_or_else(|| HttpError::not_found("the session has ended"))?;
        let form = Form::parse(&body)?;
        let performed = Mutex::default();
        Ok(Self(Arc::new(VisitParts { gateway, auth, source, session, parts, parameter, form, performed })))
    }

    /// Checks that a form is one of ours: it has the token of the session, and was sent by a page of this gateway. The
    /// value of `Origin` was compared before the route was found.
    pub(super) fn check_form(&self) -> Result<(), HttpError> {
        if self.parts.method != Method::POST {
            return Ok(());
        }
        let refused = |message: &str| {
            HttpError::new(StatusCode::FORBIDDEN, "unauthorized", message)
                .hint("go back, reload the page and try again")
        };
        if !self.parts.headers.contains_key(header::ORIGIN) {
            return Err(refused("the request has no `Origin`"));
        }
        if !self.session.has_token(self.form.text("$csrf")) {
            return Err(refused("the form is not one of this session"));
        }
        Ok(())
    }

    pub(super) fn is_secure(&self) -> bool {
        self.gateway.authenticator.is_secure(&self.source)
    }

    /// The origin of the gateway, as the browser sees it.
    pub(super) fn origin(&self) -> String {
        super::origin(&self.gateway, &self.source, &self.parts)
            .unwrap_or_else(|| "http://localhost".to_owned())
    }

    pub(super) fn caller(&self) -> &str {
        self.auth.caller.id.as_str()
    }

    /// The parameter of the path.
    pub(super) fn parameter(&self) -> &str {
        self.parameter.as_deref().unwrap_or_default()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The parameters of the query. Unknown ones are ignored, because the page of today may have a link of yesterday.
    pub(super) fn query<T: DeserializeOwned + Default>(&self) -> T {
        serde_urlencoded::from_str(self.parts.uri.query().unwrap_or_default()).unwrap_or_default()
    }

    pub(super) fn query_value(&self, name: &str) -> Option<String> {
        query_value(&self.parts.uri, name)
    }

    /// Returns true if the caller may use an operation: the requirement of its route is met.
    pub(super) fn may(&self, operation: &str) -> bool {
        ROUTES.operation(operation).is_some_and(|route| self.meets(route))
    }

    fn meets(&self, route: &crate::route::Route) -> bool {
        route.need.check(&self.gateway, &self.auth, &self.parts, None).is_ok()
    }

    /// Performs a REST operation, as a request of this caller would.
    pub(super) async fn perform(
        &self,
        method: Method,
        target: &str,
        body: Option<&Json>,
        headers: &[(HeaderName, &str)],
    ) -> Result<Response, HttpError> {
        let uri: Uri = target.parse().map_err(|_| HttpError::invalid(format!("invalid path `{target}`")))?;
        let (route, parameter) = ROUTES.find(&method, &uri)?;
        let Handler::Function(handle) = &route.handler else { return Err(no_endpoint(&method, &uri)) };
        if route.operation.is_none() {
            return Err(no_endpoint(&method, &uri));
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        (parts.method, parts.uri) = (method, uri.clone());
        for (name, value) in headers {
            let value =
                HeaderValue::from_str(value).map_err(|_| HttpError::invalid(format!("invalid `{name}`")))?;
            parts.headers.insert(name.clone(), value);
        }
        let access = route.need.check(&self.gateway, &self.auth, &parts, parameter)?;
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let parameter = route.parameter().zip(parameter.map(str::to_owned));
        let (gateway, auth, source) = (Arc::clone(&self.gateway), self.auth.clone(), self.source.clone());
        handle(AdmittedRequest { gateway, auth, access, source, parts, parameter, body }).await
    }

    /// Adds an operation to those that the page names.
    pub(super) fn note_request(&self, method: &Method, target: &str, body: Option<&Json>) {
        self.performed.lock().push(shown_request(method, target, body));
    }

    /// Performs an operation and reads its answer, for every status.
    pub(super) async fn request<T: DeserializeOwned + Default>(
        &self,
        method: Method,
        target: &str,
        body: Option<&Json>,
    ) -> Result<T, HttpError> {
        self.note_request(&method, target, body);
        let response = self.perform(method, target, body, &[]).await?;
        read_answer(response).await
    }

    /// Performs an operation that streams events, and passes them on. The browser sends the id of its last one.
    pub(super) async fn events(&self, target: &str) -> Result<Response, HttpError> {
        let after = self.headers().get("last-event-id").and_then(|id| id.to_str().ok());
        let headers: Vec<(HeaderName, &str)> =
            after.map(|id| (HeaderName::from_static("last-event-id"), id)).into_iter().collect();
        self.perform(Method::GET, target, None, &headers).await
    }

    /// Performs a GET operation that the page needs.
    pub(super) async fn get<T: DeserializeOwned + Default>(&self, target: &str) -> Result<T, HttpError> {
        self.request(Method::GET, target, None).await
    }

    /// Performs a GET operation that the page shows if the caller may use it and it succeeds.
    pub(super) async fn get_if<T: DeserializeOwned + Default>(
        &self,
        operation: &str,
        target: &str,
    ) -> Option<T> {
        if !self.may(operation) {
            return None;
        }
        match self.get(target).await {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::debug!("a part of a page is missing: {}", error.message);
                None
            }
        }
    }

    pub(super) async fn post<T: DeserializeOwned + Default>(
        &self,
        target: &str,
        body: &Json,
    ) -> Result<T, HttpError> {
        self.request(Method::POST, target, Some(body)).await
    }

    /// Common values of a page. `commands` do the same; `live` are the events that make the page stale.
    pub(super) async fn frame(
        &self,
        section: Section,
        title: impl Into<String>,
        commands: &[String],
        live: &'static str,
    ) -> Frame {
        let operations: BTreeSet<&'static str> = ROUTES
            .rows()
            .iter()
            .filter_map(|route| Some(route.operation.as_ref()?.id).filter(|_| self.meets(route)))
            .collect();
        let here = match self.parts.method {
            Method::GET => self.parts.uri.path_and_query().map_or("/", |path| path.as_str()),
            _ => self.form.back(),
        };
        Frame {
            title: title.into(),
            section,
            caller: self.caller().to_owned(),
            theme: theme_of(self.headers()),
            csrf: self.session.token(),
            here: form::local_path(here).to_owned(),
            notice: self.notice(),
            waiting: self.waiting().await,
            rest: self.performed.lock().clone(),
            commands: commands.to_vec(),
            operations,
            // The answer to a form is not the page that the same path gives to GET.
            live: if self.parts.method == Method::GET { live } else { "" },
        }
    }

    /// Open questions and approvals that the caller may see.
    async fn waiting(&self) -> Option<usize> {
        let mut waiting = None;
        for (operation, target) in [("listApprovals", "/v1/approvals"), ("listHumanInput", "/v1/human-input")]
        {
            if !self.may(operation) {
                continue;
            }
            let answer = self.perform(Method::GET, target, None, &[]).await.ok()?;
            let open: Questions = read_answer(answer).await.ok()?;
            *waiting.get_or_insert(0) += open.questions.len() + open.approvals.len();
        }
        waiting
    }

    fn notice(&self) -> Option<Notice> {
        let notice = self.gateway.console.sessions.notice(self.headers(), self.is_secure())?;
        Some(Notice { failed: notice.failed, text: notice.text, hint: notice.hint })
    }

    /// Renders a page.
    pub(super) fn render(&self, page: &impl Page) -> Response {
        self.render_with(StatusCode::OK, page)
    }

    pub(super) fn render_with(&self, status: StatusCode, page: &impl Page) -> Response {
        let mut response = html(status, page);
        if self.notice().is_some() {
            set_cookie(&mut response, &removed_notice(self.is_secure()));
        }
        response
    }

    /// Redirects to a page that shows a message.
    pub(super) fn redirect_with(&self, path: &str, notice: &form::Notice) -> Response {
        let mut response = redirect(path);
        set_cookie(&mut response, &self.gateway.console.sessions.notice_cookie(notice, self.is_secure()));
        response
    }

    /// Renders an error as a page, with the navigation.
    pub(super) async fn error_page(&self, error: HttpError) -> Response {
        let status = error.status;
        let heading = match status {
            StatusCode::NOT_FOUND => "Not found".to_owned(),
            StatusCode::FORBIDDEN => "Not allowed".to_owned(),
            status => status.canonical_reason().unwrap_or("Error").to_owned(),
        };
        let frame = self.frame(Section::Other, heading.clone(), &[], "").await;
        let back =
            if self.parts.method == Method::POST { self.form.back().to_owned() } else { "/".to_owned() };
        let notice = notice_of(&error);
        let problems = problems_of(&error);
        let page = ErrorPage { frame, heading, text: notice.text, hint: notice.hint, problems, back };
        let mut response = self.render_with(status, &page);
        crate::response::set_error_headers(response.headers_mut(), error.retry_after, None);
        response
    }
}

/// The message of an error, for people.
pub(super) fn notice_of(error: &HttpError) -> Notice {
    Notice { failed: true, text: error.message.clone(), hint: error.hint.clone() }
}

/// All problems of a rejected change.
pub(super) fn problems_of(error: &HttpError) -> Vec<Problem> {
    let problems = error.details.as_ref().map(|details| details.problems.as_slice()).unwrap_or_default();
    problems.iter().filter_map(|problem| serde_json::from_value(serde_json::json!(problem)).ok()).collect()
}

/// Reads the answer of an operation. Failed calls are answers, too.
pub(super) async fn read_answer<T: DeserializeOwned + Default>(response: Response) -> Result<T, HttpError> {
    let unreadable = |why: String| {
        tracing::error!("the answer of an operation cannot be shown: {why}");
        HttpError::unavailable("the answer of the operation cannot be shown")
    };
    let bytes = http_body_util::Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let bytes = bytes.map_err(|error| unreadable(error.to_string()))?.to_bytes();
    if bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))
}

/// A request as a person would type it.
pub(super) fn shown_request(method: &Method, target: &str, body: Option<&Json>) -> String {
    let body = body.map(|body| format!(" {}", toolgate_console::text::inline(body, 300))).unwrap_or_default();
    format!("{method} {target}{body}")
}

/// A path with parameters: those that are empty are left out.
pub(super) fn target<'a>(path: &str, query: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<_> = query
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", url(value)))
        .collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// A parameter of a query.
pub(super) fn query_value(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.into_iter().find(|(known, _)| *known == name)?.1.replace('+', " ");
    percent_decode_str(&value).decode_utf8().ok().map(|value| value.into_owned())
}
