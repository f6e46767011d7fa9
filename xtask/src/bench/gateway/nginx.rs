//! nginx as the limit of what a gateway can cost: it passes the same bytes through and looks at none of them. Once with
//! everything that makes it quick and nothing that it need not do, and once as the package sets it up.
//!
//! The package of Debian, taken apart below `target`: nothing of the system changes. One that is on `PATH` is not
//! used, so that two machines measure the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::contender::{Place, Process, free_port};
use crate::{peers, program};

/// How it is set up.
#[derive(Debug, Clone, Copy)]
pub(super) enum Setup {
    /// Connections to the upstream are kept, nothing is written, nothing is held back.
    Tuned,
    /// What Debian's own file says of requests, and one `proxy_pass`; but clients may stay, as ours do.
    Plain,
}

impl Setup {
    fn name(self) -> &'static str {
        match self {
            Self::Tuned => "nginx",
            Self::Plain => "nginx-plain",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Tuned => "passes the bytes through, connections to the upstream kept, no logs",
            Self::Plain => {
                "as Debian sets it up, with one `proxy_pass`: a connection and a line of log a call"
            }
        }
    }
}

/// Starts it in front of the upstream, and says what it is.
pub(super) fn start(place: &Place<'_>, upstream: u16, setup: Setup) -> anyhow::Result<(Process, String)> {
    let binary = fetched()?;
    let folder = place.folder.join(setup.name());
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (port, file) = (free_port()?, folder.join("nginx.conf"));
    fs::write(&file, config(&folder, port, upstream, setup))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut version = Command::new(&binary);
    version.arg("-v");
    let version = program::capture(version)?.output;
    let mut command = Command::new(&binary);
    command.arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log")).arg("-c").arg(&file);
    let process = Process::told(command, port, &folder)?;
    let version = version.trim().trim_start_matches("nginx version: ");
    Ok((process, format!("{version}, {}", setup.what())))
}

/// The program, fetched once.
fn fetched() -> anyhow::Result<PathBuf> {
    let folder = peers::folder().join("nginx");
    let binary = folder.join("usr/sbin/nginx");
    if binary.exists() {
        return Ok(binary);
    }
    println!("Fetching nginx …");
    match peers::debian_package("nginx", &folder)? {
        None => Ok(binary),
        Some(why) => bail!("{}", why.trim_end()),
    }
}

/// As many workers as there are processors.
fn config(folder: &Path, port: u16, upstream: u16, setup: Setup) -> String {
    let folder = folder.display();
    let requests = match setup {
        Setup::Tuned => format!(
            "access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    upstream records {{
        server 127.0.0.1:{upstream};
        keepalive 512;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://records;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
            proxy_buffer_size 64k;
            proxy_buffers 8 64k;
            proxy_request_buffering off;
            client_max_body_size 16m;
        }}
    }}"
        ),
        Setup::Plain => format!(
            "sendfile on;
    tcp_nopush on;
    types_hash_max_size 2048;
    access_log {folder}/access.log;
    gzip on;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{upstream}; }}
    }}"
        ),
    };
    format!(
        "daemon off;
worker_processes auto;
pid {folder}/pid;
error_log /dev/null crit;
events {{ worker_connections 4096; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {requests}
}}
"
    )
}
