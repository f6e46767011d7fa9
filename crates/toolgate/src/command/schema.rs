//! `toolgate schema [FILE]`.

use toolgate_config::{SchemaOf, reference, schema};

use crate::DONE;
use crate::cli::{SchemaArgs, SchemaName};
use crate::output::Output;

pub(crate) fn run(args: &SchemaArgs, output: &Output) -> anyhow::Result<u8> {
    if args.reference {
        output.result(&reference());
        return Ok(DONE);
    }
    let of = match args.of {
        SchemaName::Project => SchemaOf::Project,
        SchemaName::Tools => SchemaOf::Tools,
        SchemaName::Mcp => SchemaOf::Mcp,
        SchemaName::Agent => SchemaOf::Agent,
    };
    output.document(&schema(of))?;
    Ok(DONE)
}
