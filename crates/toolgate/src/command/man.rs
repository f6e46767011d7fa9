//! `toolgate man [--output DIR]`: manual pages, generated from the command line definition.
//!
//! Invariant: a page says what `--help` says; nothing is written for one of them only.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use serde_json::json;

use crate::DONE;
use crate::cli::{ManArgs, grouped_command};
use crate::output::{Output, display_path};

/// The manual that the pages belong to, shown at the top of each.
const MANUAL: &str = "Toolgate Manual";

pub(crate) fn run(args: &ManArgs, output: &Output) -> anyhow::Result<u8> {
    let mut command = grouped_command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.output else {
        output.result(&render_page(&command)?);
        return Ok(DONE);
    };
    fs_err::create_dir_all(folder)?;
    let mut files = Vec::new();
    write_pages(&command, folder, &mut files)?;
    if output.json {
        output.document(&json!({ "ok": true, "folder": display_path(folder), "files": files }))?;
    } else {
        output.message(&format!("wrote {} manual pages to {}\n", files.len(), display_path(folder)));
    }
    Ok(DONE)
}

/// Writes the page of a command and of all its subcommands.
fn write_pages(command: &Command, folder: &Path, files: &mut Vec<String>) -> anyhow::Result<()> {
    let name = page_name(command) + ".1";
    fs_err::write(folder.join(&name), render_page(command)?)?;
    files.push(name);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_pages(sub, folder, files)?;
    }
    Ok(())
}

/// Returns the name of a page: `toolgate-tools-call` for `toolgate tools call`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn render_page(command: &Command) -> anyhow::Result<String> {
    let source = format!("toolgate {}", env!("CARGO_PKG_VERSION"));
    // Without a date the same version gives the same page. An empty argument must be quoted, or the next one replaces it.
    let command = command.clone().subcommand_value_name("command").subcommand_help_heading("COMMANDS");
    let man = Man::new(command.clone()).date("\"\"").source(source).manual(MANUAL);
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let notes = HelpNotes::parse(&help);

    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    notes.description.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    notes.rest.to_writer(&mut page)?;
    if page_name(&command) != "toolgate" {
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"]).text([bold("toolgate"), roman("(1)")]);
        roff.to_writer(&mut page)?;
    }
    Ok(String::from_utf8(page)?)
}

/// The text after the options of a help, divided into sections of a manual page.
///
/// clap_mangen would put all of it into one section and fill the lines of examples.
#[derive(Default)]
struct HelpNotes {
    /// Paragraphs that continue the description.
    description: Roff,
    /// Examples and exit codes, with their headings.
    rest: Roff,
}

impl HelpNotes {
    fn parse(help: &str) -> Self {
        let mut notes = Self::default();
        for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            let examples =
                paragraph.strip_prefix("Examples:\n").or_else(|| paragraph.strip_prefix("Example:\n"));
            if let Some(examples) = examples {
                notes.rest.control("SH", ["EXAMPLES"]);
                write_paragraph(&mut notes.rest, examples);
            } else if let Some(codes) = paragraph.strip_prefix("Exit codes: ") {
                notes.rest.control("SH", ["EXIT STATUS"]);
                write_paragraph(&mut notes.rest, codes);
            } else {
                notes.description.control("PP", []);
                write_paragraph(&mut notes.description, paragraph);
            }
        }
        notes
    }
}

/// Writes a paragraph. Indented lines keep their breaks and spaces; the others are filled.
fn write_paragraph(roff: &mut Roff, paragraph: &str) {
    let mut is_literal = false;
    for line in paragraph.lines() {
        let indented = line.strip_prefix("  ");
        if indented.is_some() != is_literal {
            is_literal = indented.is_some();
            if is_literal {
                roff.control("RS", ["4"]).control("nf", []);
            } else {
                roff.control("fi", []).control("RE", []);
            }
        }
        roff.text([roman(indented.unwrap_or(line))]);
    }
    if is_literal {
        roff.control("fi", []).control("RE", []);
    }
}
