//! `serve`: how the door is kept.

use std::path::PathBuf;

use toolgate_types::Text;
use toolgate_types::door::{ClientCertificate, DoorTls};

use crate::context::Context;
use crate::file::ServeFile;
use crate::file::door::{ClientCertificateName, DoorTlsFile};
use crate::keys::At;
use crate::settle::{Draft, tls, values};

impl Draft {
    pub(crate) fn serve(&mut self, file: ServeFile, cx: &mut Context<'_>) {
        self.origins("serve", file.written());
        let rules = &mut self.serve;
        rules.listen = file.listen.map_or(rules.listen, |at| at.value);
        rules.hosts = values(file.hosts).unwrap_or_default();
        rules.max_body = file.max_body.map_or(rules.max_body, |at| at.value);
        rules.max_connections = file.max_connections.map_or(rules.max_connections, |at| at.value);
        rules.max_connections_per_address =
            file.max_connections_per_address.map_or(rules.max_connections_per_address, |at| at.value);
        rules.allow_networks = values(file.allow_networks).unwrap_or_default();
        rules.tls = file.tls.and_then(|at| door_tls(at.value, cx));
    }
}

/// What is written, or `None` where it cannot work, which is told.
fn door_tls(file: DoorTlsFile, cx: &mut Context<'_>) -> Option<DoorTls> {
    let mut path = |key: &str, at: Option<At<Text>>| -> Option<PathBuf> { tls::path(key, &at?, cx) };
    let (cert, key) = (path("cert", file.cert), path("key", file.key));
    let authorities = file.client_ca.is_some();
    let client_ca = path("client_ca", file.client_ca);
    let client_certificate = match file.client_certificate {
        Some(At { key_span, .. }) if !authorities => {
            let hint = "add the `client_ca` whose certificates callers show";
            cx.error(key_span, "`client_certificate` without `client_ca` in serve tls", hint);
            return None;
        }
        Some(At { value: ClientCertificateName::Optional, .. }) => ClientCertificate::Optional,
        Some(At { value: ClientCertificateName::Required, .. }) => ClientCertificate::Required,
        None if authorities => ClientCertificate::Required,
        None => ClientCertificate::Optional,
    };
    Some(DoorTls { cert: cert?, key: key?, client_ca, client_certificate })
}
