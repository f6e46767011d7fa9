//! `toolgate schema [FILE]`, and the pages of `docs/reference`.

mod commands;

use toolgate_app::reference;
use toolgate_config::{SchemaKind, reference_page, schema};

use crate::DONE;
use crate::cli::{ReferencePage, SchemaArgs, SchemaName};
use crate::output::Output;

pub(crate) fn run(args: &SchemaArgs, output: &Output) -> anyhow::Result<u8> {
    if let Some(page) = args.reference {
        output.result(&match page {
            ReferencePage::Configuration => reference_page(),
            ReferencePage::Commands => commands::page(),
            ReferencePage::Rest => reference::rest_page(),
            ReferencePage::Permissions => reference::permissions_page(),
            ReferencePage::Metrics => reference::metrics_page(),
            ReferencePage::Records => toolgate_audit::records_page(),
            ReferencePage::Errors => reference::errors_page(),
        });
        return Ok(DONE);
    }
    let of = match args.of {
        SchemaName::Project => SchemaKind::Project,
        SchemaName::Tools => SchemaKind::Tools,
        SchemaName::Mcp => SchemaKind::Mcp,
        SchemaName::Agent => SchemaKind::Agent,
    };
    output.document(&schema(of))?;
    Ok(DONE)
}
