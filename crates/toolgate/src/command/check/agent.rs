//! The agent of a project, as `toolgate check` shows it: its model, tools, skills and budgets.

use toolgate_agent::Skills;
use toolgate_agent::skills::SkillError;
use toolgate_config::{Config, ProblemEntry, Severity};

use super::{Row, origin, serialised, within};

/// Characters of the instructions that are shown.
const MOST_SHOWN: usize = 60;

/// The skills that can be used, and what is wrong with the others.
pub(super) fn skills(config: &Config) -> (Skills, Vec<ProblemEntry>) {
    let (skills, wrong) = Skills::read(&config.agent.skills);
    let problem = |SkillError { path, line, why }| ProblemEntry {
        severity: Severity::Warning,
        message: format!("a skill is not used: {why}"),
        file: Some(within(&path, config)),
        line,
        column: line.map(|_| 1),
        hint: None,
    };
    (skills, wrong.into_iter().map(problem).collect())
}

/// What the agent is made of.
pub(super) fn rows(skills: &Skills, config: &Config) -> Vec<Row> {
    let row = |key: String, value: String, origin: String| Row { key, value, origin };
    let mut rows = Vec::new();
    if config.agent.model.is_none() {
        let value = "(none: the planner that is built in)".to_owned();
        rows.push(row("model".to_owned(), value, "default".to_owned()));
    }
    if let Some(text) = &config.agent.instructions {
        let first: String = text.lines().next().unwrap_or_default().chars().take(MOST_SHOWN).collect();
        let more = if first.len() < text.trim_end().len() { "…" } else { "" };
        rows.push(row(
            "instructions".to_owned(),
            format!("{first}{more}"),
            origin("agent", "instructions", config),
        ));
    }
    rows.extend(serialised(&config.agent, "agent", config, &["instructions", "skills"]));
    for skill in skills.all() {
        rows.push(row(
            format!("skill {}", skill.name),
            skill.description.clone(),
            within(skill.folder(), config),
        ));
    }
    rows
}
