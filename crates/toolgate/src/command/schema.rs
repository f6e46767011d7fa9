//! `toolgate schema [FILE]`.

use toolgate_config::{SchemaKind, reference_page, schema};

use crate::DONE;
use crate::cli::{SchemaArgs, SchemaName};
use crate::output::Output;

pub(crate) fn run(args: &SchemaArgs, output: &Output) -> anyhow::Result<u8> {
    if args.reference {
        output.result(&reference_page());
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
