//! Decides if a caller may use a tool with these arguments: allow, deny or ask.
//!
//! A decision checks the caller's permissions first, then the rules of `policy.cedar`, if there is one. An allowed
//! call gets a [`Grant`]. A grant plus arguments that match the schema becomes an [`Input`], and only an `Input` can
//! be invoked. Invariant: a pure function, without I/O and without a clock. Default deny: a call that is not allowed,
//! or that cannot be decided, is denied.

pub mod decide;
#[doc(hidden)]
pub mod fuzz;
pub mod grant;
mod limits;
pub mod rules;
pub mod schema;

pub use decide::{Decision, Denied, Policy, TargetKind, ToolAttributes};
pub use grant::{Approval, Grant, Input, Question};
pub use rules::{RuleError, RuleSet};
pub use schema::{SchemaError, SchemaFault, SchemaValidator};
