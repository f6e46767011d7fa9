//! The REST API: handlers of the routes below `/v1`.
//!
//! A handler gets an admitted request: [`crate::handler`] has found the route, authenticated the caller, checked the
//! permission of the route, and read the body.

pub(crate) mod call;
mod call_events;
pub(crate) mod callers;
pub(crate) mod changes;
pub(crate) mod cluster;
pub(crate) mod credentials;
pub(crate) mod docs_page;
pub(crate) mod events;
pub(crate) mod executions;
pub(crate) mod figures;
mod guard;
pub(crate) mod items;
pub(crate) mod me;
pub(crate) mod openapi;
mod paging;
pub(crate) mod policy;
pub(crate) mod profiles;
pub(crate) mod questions;
mod recorded;
pub(crate) mod runs;
pub(crate) mod server_test;
pub(crate) mod servers;
pub(crate) mod tools;

pub(crate) use guard::AllowList;
