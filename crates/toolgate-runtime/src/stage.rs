//! The stages of the pipeline, one file each. A stage never calls the next one; [`pipeline`](crate::pipeline) does.

pub(crate) mod attempts;
pub(crate) mod cache;
pub(crate) mod content;
pub(crate) mod egress;
pub(crate) mod hints;
pub(crate) mod own_result;
pub(crate) mod rate_limit;
pub(crate) mod slots;
