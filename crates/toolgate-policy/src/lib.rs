//! Whether a caller may use a tool with these arguments: allow, deny or ask.
//!
//! The road of a decision: the permissions that a caller was given, then the rules of `policy.cedar`, where
//! there is one. What says yes is a [`Grant`]; with arguments that fit the schema it becomes an [`Input`],
//! and nothing else can be invoked. Invariant: a pure function, without I/O and without a clock; what is
//! not allowed is denied, and what cannot be decided is denied.

pub mod decide;
pub mod grant;
pub mod rules;
pub mod schema;
mod shape;

pub use decide::{Decision, Denied, Policy, Subject};
pub use grant::{Approved, Grant, Input, Question};
pub use rules::{RuleError, Rules};
pub use schema::{Schema, SchemaError};
