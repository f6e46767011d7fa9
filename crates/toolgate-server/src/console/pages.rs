//! The pages: each performs the operations that it shows.

pub(super) mod callers;
pub(super) mod connect;
pub(super) mod executions;
pub(super) mod inbox;
pub(super) mod overview;
pub(super) mod policy;
pub(super) mod runs;
pub(super) mod search;
pub(super) mod servers;
pub(super) mod tools;

use super::visit::Visit;
use crate::auth::HttpError;
use crate::response::Response;

/// The stream of changes, for the script of the pages.
pub(super) async fn live(visit: Visit) -> Result<Response, HttpError> {
    visit.events("/v1/events").await
}
