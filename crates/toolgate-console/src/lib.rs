//! The pages of the web console: values in, HTML out.
//!
//! [`pages`] has one struct per page, with a template that the compiler checks; [`rest`] has the answers of the REST
//! operations that the pages show; [`frame`] has everything around a page. Invariant: no I/O, no clock, and no knowledge
//! of HTTP. Every value passes through the escaper of [`escape`], so text from servers is never markup.

pub mod assets;
pub mod difference;
pub mod escape;
pub mod form;
pub mod frame;
pub mod pages;
pub mod rest;
pub mod schema;
pub mod text;

/// A page that can be rendered.
pub use askama::Template as Page;
