//! Groups the commands of `toolgate --help` under headings.
//!
//! clap has no headings for subcommands, so the list is part of the help template, generated from the command tree.
//! Invariant: every visible command is in exactly one group; a test checks it.

use clap::{Command, CommandFactory as _, FromArgMatches as _};

use super::Cli;

/// Headings with their commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Set up", &["init", "import", "connect", "schema", "completions", "man"]),
    ("Run", &["serve", "stdio", "run", "chat"]),
    ("Look", &["check", "plan", "doctor", "why", "log", "runs", "prompts", "resources", "eval"]),
    ("Manage", &["servers", "tools", "callers", "credentials", "questions", "policy", "cluster"]),
];

impl Cli {
    /// Parses the command line. Prints help or a usage error and exits if there is nothing to run.
    pub(crate) fn from_args() -> Self {
        let mut command = grouped_command();
        let matches = command.get_matches_mut();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// Returns the command tree with the grouped help.
pub(crate) fn grouped_command() -> Command {
    let command = unwrap_notes(Cli::command());
    let template = help_template(&command);
    command.help_template(template)
}

/// Joins the lines of each paragraph in the notes below the options, so that clap wraps them at the width of the terminal.
fn unwrap_notes(command: Command) -> Command {
    let notes = command.get_after_help().map(|notes| join_paragraphs(&notes.to_string()));
    let command = match notes {
        Some(notes) => command.after_help(notes),
        None => command,
    };
    command.mut_subcommands(unwrap_notes)
}

/// Joins adjacent lines that are not indented. Examples are indented and keep their lines.
fn join_paragraphs(text: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
    let mut joined = String::with_capacity(text.len());
    let mut previous = "";
    for (index, line) in text.lines().enumerate() {
        if index > 0 {
            joined.push(if is_prose(previous) && is_prose(line) { ' ' } else { '\n' });
        }
        joined.push_str(line);
        previous = line;
    }
    joined
}

fn help_template(command: &Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        template.push_str(&format!("\n{header}{heading}:{header:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            template.push_str(&format!("  {literal}{name:width$}{literal:#}  {about}\n"));
        }
    }
    template.push_str("\nRun `toolgate help COMMAND` for the options and examples of a command.\n");
    template.push_str(&format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}"));
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest summary, so that a summary fits on one line of the command list.
    const MAX_SUMMARY: usize = 60;
    const MAX_COLUMNS: usize = 100;

    /// Calls `check` with every visible command and its full name.
    fn for_each_command(command: &mut Command, name: &str, check: &mut impl FnMut(&str, &mut Command)) {
        check(name, command);
        for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        {
            let name = format!("{name} {}", sub.get_name());
            for_each_command(sub, &name, check);
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut visible: Vec<_> = visible.map(Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn summaries_fit_on_one_line() {
        for_each_command(&mut grouped_command(), "toolgate", &mut |name, command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let is_good = !about.is_empty() && about.chars().count() <= MAX_SUMMARY && !about.contains('\n');
            assert!(is_good && !about.ends_with('.') && !about.contains('{'), "{name}: {about}");
        });
    }

    #[test]
    fn help_fits_100_columns() {
        let mut command = grouped_command();
        command.build();
        for_each_command(&mut command, "toolgate", &mut |name, command| {
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                let long = help.lines().find(|line| line.chars().count() > MAX_COLUMNS);
                assert_eq!(long, None, "{name}");
            }
        });
    }

    #[test]
    fn paragraphs_are_joined_and_examples_kept() {
        let text = "Examples:\n  one\n    two\n\nA first\nsentence. And\nmore.\n\nExit codes: 0.";
        assert_eq!(
            join_paragraphs(text),
            "Examples:\n  one\n    two\n\nA first sentence. And more.\n\nExit codes: 0."
        );
    }

    #[test]
    fn every_argument_has_help() {
        let mut command = grouped_command();
        command.build();
        for_each_command(&mut command, "toolgate", &mut |name, command| {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{name}: {}", argument.get_id());
            }
        });
    }
}
