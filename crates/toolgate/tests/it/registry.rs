//! Tools and servers that are added, changed and removed.

mod commands;
mod live_changes;
mod pins;
mod toolbox;
