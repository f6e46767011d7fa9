//! State that the replicas of a cluster share, in PostgreSQL: the traits of `toolgate-store` on one database.
//!
//! The only crate that names the driver. [`Database`] has the connections, follows the shared texts and announces this
//! replica; [`RegistryStore`] is the registry of tools and servers; `documents`, `limits` and `taint` implement the traits
//! of `toolgate_store::cluster`. Truth is in tables: a notification only wakes, and every replica polls. No statement
//! depends on a session, so that everything works behind PgBouncer in transaction mode.
//! Invariant: an acknowledged change is committed, times are those of the database, and without the database nothing is
//! invented: texts stay as they were last seen, and changes fail.

mod connection;
mod database;
mod documents;
mod limits;
mod registry;
mod replicas;
mod saved_copy;
mod schema;
mod taint;
mod tls;

pub use database::{Database, DatabaseError, DatabaseOptions};
pub use registry::RegistryStore;
pub use replicas::ReplicaIdentity;
