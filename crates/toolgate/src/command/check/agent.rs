//! The agent section of `toolgate check`: model, tools, skills and budgets.

use toolgate_agent::SkillSet;
use toolgate_agent::skills::SkillError;
use toolgate_config::{Config, ProblemEntry, Severity};

use super::{ValueRow, origin, relative_path, value_rows};

/// Characters of the instructions that are shown.
const MAX_SHOWN_CHARS: usize = 60;

/// Returns the valid skills, and the problems of the others.
pub(super) fn skills(config: &Config) -> (SkillSet, Vec<ProblemEntry>) {
    let (skills, wrong) = SkillSet::read(&config.agent.skills);
    let problem = |SkillError { path, line, why }| ProblemEntry {
        severity: Severity::Warning,
        message: format!("skill ignored: {why}"),
        file: Some(relative_path(&path, config)),
        line,
        column: line.map(|_| 1),
        hint: None,
    };
    (skills, wrong.into_iter().map(problem).collect())
}

/// Returns the rows of the agent section.
pub(super) fn rows(skills: &SkillSet, config: &Config) -> Vec<ValueRow> {
    let row = |key: String, value: String, origin: String| ValueRow { key, value, origin };
    let mut rows = Vec::new();
    if config.agent.model.is_none() {
        let value = "(none: the built-in planner)".to_owned();
        rows.push(row("model".to_owned(), value, "default".to_owned()));
    }
    if let Some(text) = &config.agent.instructions {
        let first: String = text.lines().next().unwrap_or_default().chars().take(MAX_SHOWN_CHARS).collect();
        let more = if first.len() < text.trim_end().len() { "…" } else { "" };
        rows.push(row(
            "instructions".to_owned(),
            format!("{first}{more}"),
            origin("agent", "instructions", config),
        ));
    }
    rows.extend(value_rows(&config.agent, "agent", config, &["instructions", "skills"]));
    for skill in skills.all() {
        rows.push(row(
            format!("skill {}", skill.name),
            skill.description.clone(),
            relative_path(skill.folder(), config),
        ));
    }
    rows
}
