//! `serve`: how the door is kept.

use crate::file::ServeFile;
use crate::settle::{Draft, values};

impl Draft {
    pub(crate) fn serve(&mut self, file: ServeFile) {
        self.origins("serve", file.written());
        let rules = &mut self.serve;
        rules.listen = file.listen.map_or(rules.listen, |at| at.value);
        rules.hosts = values(file.hosts).unwrap_or_default();
        rules.max_body = file.max_body.map_or(rules.max_body, |at| at.value);
        rules.max_connections = file.max_connections.map_or(rules.max_connections, |at| at.value);
        rules.max_connections_per_address =
            file.max_connections_per_address.map_or(rules.max_connections_per_address, |at| at.value);
        rules.allow_networks = values(file.allow_networks).unwrap_or_default();
    }
}
