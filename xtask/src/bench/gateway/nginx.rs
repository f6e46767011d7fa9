//! nginx as the limit of what a gateway can cost: it passes the same bytes through and looks at none of them.
//!
//! The package of Debian, taken apart below `target`: nothing of the system changes. One that is on `PATH` is not
//! used, so that two machines measure the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::contender::{Place, Process, free_port};
use crate::{peers, program};

/// Starts it in front of the upstream, and says what it is.
pub(super) fn start(place: &Place<'_>, upstream: u16) -> anyhow::Result<(Process, String)> {
    let binary = fetched()?;
    let folder = place.folder.join("nginx");
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (port, file) = (free_port()?, folder.join("nginx.conf"));
    fs::write(&file, config(&folder, port, upstream))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut version = Command::new(&binary);
    version.arg("-v");
    let version = program::capture(version)?.output;
    let mut command = Command::new(&binary);
    command.arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log")).arg("-c").arg(&file);
    let process = Process::told(command, port, &folder)?;
    let version = version.trim().trim_start_matches("nginx version: ");
    Ok((process, format!("{version}, passes the bytes through, connections to the upstream kept, no logs")))
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

/// As many workers as there are processors, nothing written, nothing held back.
fn config(folder: &Path, port: u16, upstream: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes auto;
pid {folder}/pid;
error_log /dev/null crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
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
    }}
}}
"
    )
}
