//! The stages of the road, one file each. A stage never calls the next one; [`road`](crate::road) does.

pub(crate) mod attempts;
pub(crate) mod cache;
pub(crate) mod content;
pub(crate) mod egress;
pub(crate) mod hints;
pub(crate) mod rate_limit;
pub(crate) mod slots;
