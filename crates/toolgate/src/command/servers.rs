//! `toolgate servers [show NAME]`. Login and logout are in [`login`].

use anyhow::bail;
use toolgate_redact::printable;
use toolgate_runtime::runtime::ServerStatus;
use toolgate_store::document::EntryKind;
use toolgate_types::ServerName;

use crate::cli::{AnswerMode, ProjectArgs, ServersArgs, ServersCommand};
use crate::command::app::AppChoice;
use crate::command::approve::Review;
use crate::command::{app, approve, change, login, tools, watch};
use crate::output::{BOLD, DIM, Output, first_line};

pub(crate) fn run(args: &ServersArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let only = match &args.command {
        Some(ServersCommand::Approve(args)) => return approve::run(args, Review::Approve, project, output),
        Some(ServersCommand::Reject(args)) => return approve::run(args, Review::Reject, project, output),
        Some(ServersCommand::Login(server)) => return login::login(server, project, output),
        Some(ServersCommand::Logout(server)) => return login::logout(server, project, output),
        Some(ServersCommand::Add(args)) => return change::add_server(args, project, output),
        Some(ServersCommand::Update(args)) => {
            return change::update(EntryKind::Server, args, project, output);
        }
        Some(ServersCommand::Remove(args)) => {
            return change::remove(EntryKind::Server, args, project, output);
        }
        Some(ServersCommand::Show(server)) => Some(server.name.as_str()),
        Some(ServersCommand::List) | None => None,
    };
    if args.watch {
        return app::with_app(project, output, AppChoice::new(AnswerMode::Ask), async |app, _errors| {
            watch::run(app, output).await
        });
    }
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let choice = AppChoice::new(AnswerMode::Ask).with_servers(wanted);
    app::with_app(project, output, choice, async |app, _errors| {
        let runtime = app.runtime();
        let mut servers = runtime.servers();
        servers.retain(|server| wanted(&server.name));
        if let Some(name) = only.filter(|_| servers.is_empty()) {
            bail!("there is no MCP server `{name}`; `toolgate servers` lists them");
        }
        let code = app::outage_code(app, wanted);
        if output.json {
            output.document(&servers)?;
            return Ok(code);
        }
        for server in &servers {
            output.result(&status_text(server));
        }
        let is_shown = |server: &ServerName| only == Some(server.as_str());
        for tool in runtime.catalog().tools().filter(|tool| tool.server.as_ref().is_some_and(is_shown)) {
            let (name, about) = (printable(&tool.name), first_line(&tool.description));
            output.result(&format!("  {name} {DIM}{about}{DIM:#}{}\n", tools::quarantine_note(tool)));
        }
        if servers.is_empty() {
            output.next_step("no MCP servers yet; import yours with `toolgate import CLIENT`");
        }
        Ok(code)
    })
}

fn status_text(server: &ServerStatus) -> String {
    let ServerStatus {
        name,
        transport,
        state,
        reason,
        retry_in_ms,
        protocol_version,
        connections,
        tools,
        held_back,
        implementation,
        stderr,
        ..
    } = server;
    let mut text = format!("{BOLD}{name}{BOLD:#}  {state}  {transport}");
    if protocol_version.is_some() || *tools > 0 {
        let version = protocol_version.map(|version| format!("  {version}")).unwrap_or_default();
        text.push_str(&format!("{version}  {tools} tools"));
        if *held_back > 0 {
            text.push_str(&format!(" ({held_back} quarantined)"));
        }
        // With the first caller it is the one that the lists are read from.
        if *connections > 1 {
            text.push_str(&format!("  {connections} connections"));
        }
    }
    if let Some(implementation) = implementation {
        text.push_str(&format!("  {DIM}{}{DIM:#}", printable(implementation)));
    }
    text.push('\n');
    if let Some(reason) = reason {
        let again =
            retry_in_ms.filter(|wait| *wait > 0).map(|wait| format!(" (retry in {wait} ms at the earliest)"));
        text.push_str(&format!("  {}{}\n", printable(reason), again.unwrap_or_default()));
    }
    for line in stderr {
        text.push_str(&format!("  {DIM}stderr: {}{DIM:#}\n", printable(line)));
    }
    text
}
