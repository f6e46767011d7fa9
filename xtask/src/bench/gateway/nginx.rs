//! nginx as the lower bound of the cost of a gateway: it forwards the same bytes and inspects none of them. Once tuned
//! for speed, with everything unnecessary off, and once with the configuration of the package.
//!
//! Uses the Debian package, unpacked below `target`, so that the system stays unchanged. An nginx on `PATH` is not
//! used, so that two machines measure the same version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::contender::{BenchProcess, BenchSetup, free_port};
use crate::{peers, program};

/// The configuration of nginx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NginxSetup {
    /// Keep-alive to the upstream server, no logs, no buffering.
    Tuned,
    /// The settings of Debian's configuration file and one `proxy_pass`, with keep-alive for clients as in our load.
    Plain,
}

impl NginxSetup {
    fn name(self) -> &'static str {
        match self {
            Self::Tuned => "nginx",
            Self::Plain => "nginx-plain",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Tuned => "forwards the bytes, with keep-alive to the upstream and without logs",
            Self::Plain => {
                "Debian's configuration with one `proxy_pass`: a connection and a log line for each call"
            }
        }
    }
}

/// Starts nginx in front of the upstream server. Returns the process and its description.
pub(super) fn start(
    setup: &BenchSetup<'_>,
    upstream: u16,
    nginx: NginxSetup,
) -> anyhow::Result<(BenchProcess, String)> {
    let binary = ensure_nginx()?;
    let folder = setup.folder.join(nginx.name());
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (port, file) = (free_port()?, folder.join("nginx.conf"));
    fs::write(&file, config(&folder, port, upstream, nginx, setup.instrument.is_some()))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut version = Command::new(&binary);
    version.arg("-v");
    let version = program::capture(version)?.output;
    let mut command = setup.contender_command(&binary);
    command.arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log")).arg("-c").arg(&file);
    let process = BenchProcess::start_on_port(command, port, &folder)?;
    let version = version.trim().trim_start_matches("nginx version: ");
    Ok((process, format!("{version}, {}", nginx.description())))
}

/// Returns the path of the program, and downloads it the first time.
fn ensure_nginx() -> anyhow::Result<PathBuf> {
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

/// Writes a configuration with one worker, because contenders run on one processor. Instruments follow one process, so
/// there the worker is the only one.
fn config(folder: &Path, port: u16, upstream: u16, setup: NginxSetup, instrumented: bool) -> String {
    let master = if instrumented { "off" } else { "on" };
    let folder = folder.display();
    let requests = match setup {
        NginxSetup::Tuned => format!(
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
        NginxSetup::Plain => format!(
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
worker_processes 1;
master_process {master};
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
