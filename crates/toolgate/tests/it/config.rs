//! Configuration files: what they mean, and the errors for invalid ones.

mod broken_registries;
mod check;
mod errors;
mod secrets;
