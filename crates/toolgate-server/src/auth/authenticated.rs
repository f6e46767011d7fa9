//! The caller of a request, as authentication found it.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use http::request::Parts;
use toolgate_mcp::TraceContext;
use toolgate_runtime::runtime::AccessRules;
use toolgate_types::Caller;

use super::{AuthState, Authenticator, Credential, CredentialLifetime, HttpError, require_permission};
use crate::Gateway;
use crate::listener::ConnectionSource;
use crate::response::{CORRELATION_ID, TRACEPARENT};
use crate::route::Requirement;

/// Caller of public routes that shows no valid credential. It has no permissions.
static NO_CALLER: LazyLock<Arc<Caller>> = LazyLock::new(|| {
    let id = Caller::ANONYMOUS.parse().expect("a valid id");
    Arc::new(Caller::new(id, Vec::new()))
});

/// The authenticated caller of a request, with its trace context.
#[derive(Clone)]
pub(crate) struct Authenticated {
    pub(crate) caller: Arc<Caller>,
    /// Lifetime of the credential. Limits streams that outlive the request.
    pub(crate) lifetime: CredentialLifetime,
    /// The state that authenticated the caller.
    state: Arc<AuthState>,
    pub(crate) trace: TraceContext,
    /// True for the Unix socket in the project directory, which only its owner can open.
    pub(crate) via_socket: bool,
    /// Address of the client; `None` for the Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// True if the client sent a correlation id.
    pub(crate) has_correlation_id: bool,
    pub(crate) has_traceparent: bool,
}

impl Authenticated {
    /// Finds the caller of a request, as far as the route needs one.
    pub(crate) async fn find(
        gateway: &Gateway,
        need: Requirement,
        parts: &Parts,
        source: &ConnectionSource,
        trace: &TraceContext,
    ) -> Result<Self, HttpError> {
        let authenticator = &gateway.authenticator;
        let with = |caller: &Arc<Caller>, credential, state| {
            let lifetime = CredentialLifetime::new(credential, caller, None);
            (Arc::clone(caller), lifetime, state)
        };
        let no_caller = || with(&NO_CALLER, Credential::NotNeeded, authenticator.state());
        let (caller, lifetime, state) = match (need, source) {
            (Requirement::Public, _) => no_caller(),
            (Requirement::Console, source) => {
                let session = gateway.console.session(gateway, source, &parts.headers);
                authenticator.authenticate_session(session, source).await?
            }
            (_, ConnectionSource::LocalSocket) => {
                let state = authenticator.state();
                with(&Arc::clone(&state.rules.owner), Credential::Socket, state)
            }
            (need, ConnectionSource::Network(ends, certificate)) => {
                let found = authenticator.authenticate(parts, *ends, certificate.as_ref()).await;
                if need.is_public() { found.unwrap_or_else(|_| no_caller()) } else { found? }
            }
        };
        Ok(Self {
            caller,
            lifetime,
            state,
            trace: trace.clone(),
            // A session of the console is one of a key, wherever it is used.
            via_socket: matches!(source, ConnectionSource::LocalSocket) && need != Requirement::Console,
            address: match source {
                ConnectionSource::Network(ends, _) => Some(ends.client),
                ConnectionSource::LocalSocket => None,
            },
            has_correlation_id: parts.headers.contains_key(&CORRELATION_ID),
            has_traceparent: parts.headers.contains_key(&TRACEPARENT),
        })
    }

    /// The callers and the policy that decide on its calls: those of the configuration that the caller is from.
    pub(crate) fn access(&self) -> Option<Arc<AccessRules>> {
        self.state.access()
    }

    /// Returns the same caller with the rights of now, if they may have changed since it was authenticated.
    ///
    /// # Errors
    /// If the credential was revoked meanwhile.
    pub(crate) fn renewed(&self, authenticator: &Authenticator) -> Result<Option<Self>, HttpError> {
        if authenticator.has_state(&self.state) {
            return Ok(None);
        }
        let state = authenticator.state();
        let caller = state
            .caller_of(&self.lifetime)
            .ok_or_else(|| super::unauthenticated("the credential was revoked during the request"))?;
        let lifetime = self.lifetime.clone().with_caller(&caller);
        Ok(Some(Self { caller, lifetime, state, trace: self.trace.clone(), ..*self }))
    }

    /// Checks a permission. The socket owner always passes, because it can read and edit the files anyway.
    pub(crate) fn require(&self, permission: &str) -> Result<(), HttpError> {
        if self.via_socket { Ok(()) } else { require_permission(&self.caller, permission) }
    }
}
