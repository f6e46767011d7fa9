//! Projects above this process: a server of a project may itself be Toolgate, on another project.
//!
//! Servers get the folders of the projects above them in an environment variable. Invariant: a project never starts
//! itself, not even through others.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::PROJECTS_VARIABLE;

/// Projects that this process runs.
static OWN_PROJECTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The project is among the projects above this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("project `{}` lists itself: one of its MCP servers runs Toolgate on the same folder", .0.display())]
pub struct NestedProject(pub PathBuf);

impl NestedProject {
    /// The suggested fix.
    pub fn hint(&self) -> String {
        format!("remove the server that runs `toolgate` from the configuration in `{}`", self.0.display())
    }
}

/// Registers a project of this process, so that its servers get it in their environment.
///
/// # Errors
/// If this process was started by a server of the same project.
pub fn enter(project: &Path) -> Result<(), NestedProject> {
    let project = fs_err::canonicalize(project).unwrap_or_else(|_| project.to_owned());
    check(&project, std::env::var_os(PROJECTS_VARIABLE).as_deref())?;
    let mut own = OWN_PROJECTS.lock();
    if !own.contains(&project) {
        own.push(project);
    }
    Ok(())
}

fn check(project: &Path, above: Option<&std::ffi::OsStr>) -> Result<(), NestedProject> {
    let is_above = above.is_some_and(|above| std::env::split_paths(above).any(|other| other == project));
    if is_above { Err(NestedProject(project.to_owned())) } else { Ok(()) }
}

/// The value of the variable for servers: the projects above this process, and its own.
pub(crate) fn projects_for_children() -> Option<String> {
    let above = std::env::var_os(PROJECTS_VARIABLE).unwrap_or_default();
    let above = std::env::split_paths(&above).filter(|path| !path.as_os_str().is_empty());
    let all: Vec<PathBuf> = above.chain(OWN_PROJECTS.lock().iter().cloned()).collect();
    if all.is_empty() {
        return None;
    }
    // A folder with a `:` in its name cannot be passed on.
    std::env::join_paths(all).ok()?.into_string().ok()
}

#[test]
fn a_project_below_itself_is_refused() {
    let above = std::ffi::OsStr::new("/a:/b/c");
    assert_eq!(check(Path::new("/b"), Some(above)), Ok(()));
    assert_eq!(check(Path::new("/b/c"), None), Ok(()));
    let nested = check(Path::new("/b/c"), Some(above)).unwrap_err();
    assert_eq!(
        nested.to_string(),
        "project `/b/c` lists itself: one of its MCP servers runs Toolgate on the same folder"
    );
}
