//! Skills: folders with a `SKILL.md`, whose name and description a model always sees, and whose body and files it reads
//! when it needs them.
//!
//! Invariant: nothing outside the folder of a skill is read through it, whatever a path says and wherever a link leads;
//! what is read is bounded.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// The file that makes a folder a skill.
const FILE: &str = "SKILL.md";
/// Bytes of a file that is read.
const LARGEST: u64 = 256 << 10;
/// Skills of one agent.
const MOST: usize = 256;
/// Characters of a name, and of a description, as the format has them.
const LONGEST_NAME: usize = 64;
const LONGEST_DESCRIPTION: usize = 1_024;
/// Files of a skill that are listed.
const MOST_FILES: usize = 100;

/// The skills of an agent.
#[derive(Debug, Clone, Default)]
pub struct Skills(Vec<Skill>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// What it is asked for by.
    pub name: String,
    /// What it is for, and when.
    pub description: String,
    folder: PathBuf,
    /// Where its name stands in its file.
    line: usize,
}

/// Why a folder is no skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {why}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct SkillError {
    /// The file, or the folder.
    pub path: PathBuf,
    /// The line, from one, where it is one.
    pub line: Option<usize>,
    /// Why.
    pub why: String,
}

impl Skills {
    /// The skills in these folders: each is one, or has some.
    pub fn read(folders: &[PathBuf]) -> (Self, Vec<SkillError>) {
        let (mut skills, mut errors) = (Vec::<Skill>::new(), Vec::new());
        for folder in folders.iter().flat_map(|folder| candidates(folder, &mut errors)).collect::<Vec<_>>() {
            match Skill::read(&folder) {
                Ok(skill) if skills.iter().any(|known| known.name == skill.name) => {
                    let why = format!("there is another skill `{}`", skill.name);
                    errors.push(SkillError { path: folder.join(FILE), line: Some(skill.line), why });
                }
                Ok(skill) => skills.push(skill),
                Err(error) => errors.push(error),
            }
        }
        skills.truncate(MOST);
        (Self(skills), errors)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn all(&self) -> &[Skill] {
        &self.0
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|skill| skill.name.as_str())
    }

    /// The body of a skill, and which files it has.
    pub(crate) fn load(&self, name: &str) -> Result<String, String> {
        let skill = self.get(name)?;
        let text = text(&skill.folder.join(FILE)).map_err(|error| error.why)?;
        let (_, body) = split(&text).ok_or("it has no front matter any more")?;
        let mut files = Vec::new();
        list(&skill.folder, &skill.folder, &mut files);
        files.retain(|file| file != FILE);
        files.sort();
        let files =
            if files.is_empty() { String::new() } else { format!("\n\n[files: {}]", files.join(", ")) };
        Ok(format!("{}{files}", body.trim()))
    }

    /// A file of a skill.
    pub(crate) fn file(&self, name: &str, path: &str) -> Result<String, String> {
        let skill = self.get(name)?;
        let outside = || format!("`{path}` is no file of skill `{name}`");
        let root = fs_err::canonicalize(&skill.folder).map_err(|_| outside())?;
        let whole = fs_err::canonicalize(root.join(path)).map_err(|_| outside())?;
        if !whole.starts_with(&root) || !whole.is_file() {
            return Err(outside());
        }
        text(&whole).map_err(|error| error.why)
    }

    fn get(&self, name: &str) -> Result<&Skill, String> {
        let known = || self.names().collect::<Vec<_>>().join("`, `");
        self.0
            .iter()
            .find(|skill| skill.name == name)
            .ok_or_else(|| format!("there is no skill `{name}`; there is `{}`", known()))
    }
}

impl Skill {
    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn read(folder: &Path) -> Result<Self, SkillError> {
        let path = folder.join(FILE);
        let error = |line: usize, why: String| SkillError { path: path.clone(), line: Some(line), why };
        let text = text(&path)?;
        let (front, _) = split(&text).ok_or_else(|| {
            error(1, "it begins with front matter: `---`, `name: …`, `description: …`, `---`".to_owned())
        })?;
        // The first line is the one that opens it.
        let line = |key: &str| {
            let stands = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
            front.lines().position(stands).map_or(1, |at| at + 2)
        };
        let front_json = toolgate_config::document(front).map_err(|why| error(1, why))?;
        let values: Json =
            serde_json::from_str(front_json.get()).map_err(|cause| error(1, cause.to_string()))?;
        let field = |name: &str, longest: usize| {
            let value = values[name].as_str().map(str::trim).unwrap_or_default();
            match value.chars().count() {
                0 => Err(error(line(name), format!("`{name}` is missing in its front matter"))),
                length if length > longest => {
                    Err(error(line(name), format!("`{name}` has more than {longest} characters")))
                }
                _ => Ok(value.to_owned()),
            }
        };
        let (name, description) = (field("name", LONGEST_NAME)?, field("description", LONGEST_DESCRIPTION)?);
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            let why = format!("`{name}` is no name: letters, digits, `-` and `_` make one");
            return Err(error(line("name"), why));
        }
        Ok(Self { name, description, folder: folder.to_owned(), line: line("name") })
    }
}

/// The folders that are skills, or should be.
fn candidates(folder: &Path, errors: &mut Vec<SkillError>) -> Vec<PathBuf> {
    if folder.join(FILE).is_file() {
        return vec![folder.to_owned()];
    }
    let mut wrong =
        |path: &Path, why: String| errors.push(SkillError { path: path.to_owned(), line: None, why });
    let inside = match fs_err::read_dir(folder) {
        Ok(inside) => inside,
        Err(error) => {
            wrong(folder, error.to_string());
            return Vec::new();
        }
    };
    let mut found: Vec<PathBuf> =
        inside.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    // What begins so is nobody's skill: what programs leave behind.
    found.retain(|path| {
        !path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(['.', '_']))
    });
    found.sort();
    for path in found.extract_if(.., |path| !path.join(FILE).is_file()) {
        wrong(&path, format!("there is no `{FILE}` in it"));
    }
    found
}

fn text(path: &Path) -> Result<String, SkillError> {
    let error = |why: String| SkillError { path: path.to_owned(), line: None, why };
    let size = fs_err::metadata(path).map_err(|cause| error(cause.to_string()))?.len();
    if size > LARGEST {
        return Err(error(format!("it has more than {LARGEST} bytes")));
    }
    fs_err::read_to_string(path).map_err(|cause| error(cause.to_string()))
}

/// The front matter and the body.
fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches('\u{feff}').strip_prefix("---")?;
    let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'))?;
    let end = rest.match_indices("---").find(|(at, _)| *at == 0 || rest[..*at].ends_with('\n'))?.0;
    let body = &rest[end + 3..];
    Some((&rest[..end], body))
}

fn list(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        if files.len() >= MOST_FILES {
            return;
        }
        let path = entry.path();
        // Links lead elsewhere.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            list(root, &path, files);
        } else if kind.is_file()
            && let Ok(path) = path.strip_prefix(root)
        {
            files.push(path.to_string_lossy().into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(folder: &Path, name: &str, text: &str) -> PathBuf {
        let folder = folder.join(name);
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::write(folder.join(FILE), text).unwrap();
        folder
    }

    #[test]
    fn a_skill_is_read_when_it_is_needed() {
        let all = tempfile::tempdir().unwrap();
        let text = "---\nname: csv-report\ndescription: >\n  Sums up a CSV file.\n  Use it for tables.\n---\n# Do\nRun scripts/sum.py.\n";
        let folder = skill(all.path(), "csv", text);
        fs_err::create_dir(folder.join("scripts")).unwrap();
        fs_err::write(folder.join("scripts/sum.py"), "print(1)").unwrap();
        let (skills, errors) = Skills::read(&[all.path().to_owned()]);
        assert_eq!(errors, []);
        let [only] = skills.all() else { panic!("{skills:?}") };
        assert_eq!(
            (only.name.as_str(), only.description.as_str()),
            ("csv-report", "Sums up a CSV file. Use it for tables.")
        );
        assert_eq!(
            skills.load("csv-report").unwrap(),
            "# Do\nRun scripts/sum.py.\n\n[files: scripts/sum.py]"
        );
        assert_eq!(skills.file("csv-report", "scripts/sum.py").unwrap(), "print(1)");
        assert_eq!(skills.load("x").unwrap_err(), "there is no skill `x`; there is `csv-report`");
    }

    #[test]
    fn nothing_outside_its_folder_is_read() {
        let all = tempfile::tempdir().unwrap();
        fs_err::write(all.path().join("secret"), "no").unwrap();
        let folder = skill(all.path(), "a", "---\nname: a\ndescription: A.\n---\n");
        std::os::unix::fs::symlink(all.path().join("secret"), folder.join("link")).unwrap();
        let (skills, _) = Skills::read(&[folder]);
        for path in ["../secret", "link", "/etc/passwd", "missing", "."] {
            let error = skills.file("a", path).unwrap_err();
            assert_eq!(error, format!("`{path}` is no file of skill `a`"));
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let all = tempfile::tempdir().unwrap();
        for (name, text, line, why) in [
            ("a", "no front matter", 1, "it begins with front matter"),
            ("b", "---\nname: b\n---\n", 1, "`description` is missing"),
            ("c", "---\ndescription: x\nname: b c\n---\n", 3, "`b c` is no name"),
            ("d", "---\nname: [\n---\n", 1, ""),
            ("e", "---\nlicense: x\nname:\ndescription: x\n---\n", 3, "`name` is missing"),
        ] {
            let folder = skill(all.path(), name, text);
            let (skills, errors) = Skills::read(&[folder]);
            assert!(skills.is_empty() && errors.len() == 1, "{name}");
            assert!(errors[0].why.contains(why), "{}", errors[0]);
            assert_eq!(errors[0].line, Some(line), "{}", errors[0]);
        }
    }

    #[test]
    fn a_folder_that_should_be_a_skill_is_told() {
        let all = tempfile::tempdir().unwrap();
        skill(all.path(), "a", "---\nname: a\ndescription: A.\n---\n");
        skill(all.path(), "b", "---\ndescription: A.\nname: a\n---\n");
        for folder in ["c", ".git", "__pycache__"] {
            fs_err::create_dir(all.path().join(folder)).unwrap();
        }
        let (skills, errors) = Skills::read(&[all.path().to_owned()]);
        assert_eq!(skills.names().collect::<Vec<_>>(), ["a"]);
        let told: Vec<_> =
            errors.iter().map(|error| error.to_string().replace(text_of(all.path()), "")).collect();
        assert_eq!(told, ["/c: there is no `SKILL.md` in it", "/b/SKILL.md:3: there is another skill `a`"]);
    }

    fn text_of(path: &Path) -> &str {
        path.to_str().unwrap()
    }
}
