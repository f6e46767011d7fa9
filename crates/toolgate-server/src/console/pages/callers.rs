//! The callers: their list, and one caller with its keys.

use toolgate_console::frame::Section;
use toolgate_console::pages::{CallerPage, CallersPage};
use toolgate_console::rest::{Caller, Callers, Keys};
use toolgate_console::text::url;

use super::super::visit::{Visit, target};
use crate::auth::HttpError;
use crate::response::Response;

pub(crate) async fn list(visit: Visit) -> Result<Response, HttpError> {
    let cursor = visit.query_value("cursor").unwrap_or_default();
    let listed: Callers = visit.get(&target("/v1/callers", [("cursor", cursor.as_str())])).await?;
    let next = listed.next.map(|cursor| target("/callers", [("cursor", cursor.as_str())]));
    let frame = visit.frame(Section::Callers, "Callers", &["toolgate callers".to_owned()], "caller").await;
    Ok(visit.render(&CallersPage { frame, callers: listed.callers, next }))
}

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let id = visit.parameter().to_owned();
    let path = format!("/v1/callers/{}", url(&id));
    let shown: Caller = visit.get(&path).await?;
    let keys: Option<Keys> = visit.get_if("listKeys", &format!("{path}/keys")).await;
    let frame = visit.frame(Section::Callers, &id, &[format!("toolgate callers keys list {id}")], "").await;
    Ok(visit.render(&CallerPage { frame, shown, keys: keys.map(|keys| keys.keys) }))
}
