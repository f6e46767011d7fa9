//! Helpers of the tests: the executable, servers, clients and issuers.

pub(crate) mod authorization_server;
pub(crate) mod browser;
pub(crate) mod gateway;
pub(crate) mod issuer;
pub(crate) mod mcp_client;
pub(crate) mod pet_api;
pub(crate) mod program;
pub(crate) mod scripts;
pub(crate) mod search_engine;
pub(crate) mod stdio_client;
pub(crate) mod terminal;
pub(crate) mod test_server;
pub(crate) mod third_party;
pub(crate) mod tls;
pub(crate) mod typed_page;
