//! Credentials of callers: the stored ones, their logins, and the tokens that they show to the gateway.

use std::sync::Arc;

use toolgate_types::CallerId;
use toolgate_upstream::credentials::{
    CredentialChangeError, CredentialInfo, ServerCredentials, SubjectTokens,
};
use toolgate_upstream::login_tickets::{LoginTickets, TicketError};
use toolgate_upstream::questions::LoginPage;

use super::Runtime;

impl Runtime {
    /// Logins of callers in their own browser.
    pub fn login_tickets(&self) -> &Arc<LoginTickets> {
        &self.sources.logins().tickets
    }

    /// Tokens that callers showed to the gateway.
    pub fn subject_tokens(&self) -> &Arc<SubjectTokens> {
        &self.sources.logins().subjects
    }

    /// The credentials for a server, if it exists.
    pub fn server_credentials(&self, server: &str) -> Option<Arc<ServerCredentials>> {
        self.sources.server(server).map(|server| Arc::clone(server.credentials()))
    }

    /// Describes the stored credentials of a caller.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn credentials_of(
        &self,
        caller: &CallerId,
    ) -> Result<Vec<CredentialInfo>, CredentialChangeError> {
        let Some(store) = &self.sources.logins().store else { return Ok(Vec::new()) };
        let mut all = store.list().await?;
        all.retain(|info| info.caller == *caller);
        Ok(all)
    }

    /// Opens the login of a ticket. Returns the page of the authorization server, and the cookie of the browser.
    ///
    /// # Errors
    /// If the ticket has expired, or the authorization server cannot be used.
    pub async fn start_login(&self, ticket: &str) -> Result<(LoginPage, String), TicketError> {
        let info = self.login_tickets().find(ticket).ok_or(TicketError::Unknown)?;
        let credentials = self.server_credentials(info.server.as_str()).ok_or(TicketError::Unknown)?;
        credentials.start_login(ticket, &info.caller).await
    }
}
