//! Skills: folders with a `SKILL.md`. A model always sees the name and the description; it reads the body and the files
//! when it needs them.
//!
//! Invariant: no file outside the folder of a skill can be read through it, neither by path nor by symlink; sizes and
//! counts are limited.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// File that makes a folder a skill.
const SKILL_FILE: &str = "SKILL.md";
/// Bytes of a file that is read.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Skills per agent.
const MAX_SKILLS: usize = 256;
/// Characters of a name, and of a description, as specified by the skill format.
const MAX_NAME_CHARS: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Files listed per skill.
const MAX_LISTED_FILES: usize = 100;

/// All skills of an agent.
#[derive(Debug, Clone, Default)]
pub struct SkillSet(Vec<Skill>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    /// Purpose of the skill, and when to use it.
    pub description: String,
    folder: PathBuf,
    /// Line of the name in `SKILL.md`.
    line: usize,
}

/// Error of a folder that should be a skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {why}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct SkillError {
    /// The file or folder.
    pub path: PathBuf,
    /// Line in the file, counted from 1.
    pub line: Option<usize>,
    pub why: String,
}

impl SkillSet {
    /// Reads the skills in these folders. A folder is a skill, or contains skills.
    pub fn read(folders: &[PathBuf]) -> (Self, Vec<SkillError>) {
        let (mut skills, mut errors) = (Vec::<Skill>::new(), Vec::new());
        for folder in folders.iter().flat_map(|folder| skill_folders(folder, &mut errors)).collect::<Vec<_>>()
        {
            match Skill::read(&folder) {
                Ok(skill) if skills.iter().any(|known| known.name == skill.name) => {
                    let why = format!("duplicate skill name `{}`", skill.name);
                    errors.push(SkillError { path: folder.join(SKILL_FILE), line: Some(skill.line), why });
                }
                Ok(skill) => skills.push(skill),
                Err(error) => errors.push(error),
            }
        }
        skills.truncate(MAX_SKILLS);
        (Self(skills), errors)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> &[Skill] {
        &self.0
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|skill| skill.name.as_str())
    }

    /// Returns the body of a skill, followed by a list of its files.
    pub(crate) fn load(&self, name: &str) -> Result<String, String> {
        let skill = self.get(name)?;
        let text = read_text(&skill.folder.join(SKILL_FILE)).map_err(|error| error.why)?;
        let (_, body) = split_front_matter(&text).ok_or("the front matter is missing")?;
        let mut files = Vec::new();
        list_files(&skill.folder, &skill.folder, &mut files);
        files.retain(|file| file != SKILL_FILE);
        files.sort();
        let files =
            if files.is_empty() { String::new() } else { format!("\n\n[files: {}]", files.join(", ")) };
        Ok(format!("{}{files}", body.trim()))
    }

    /// Reads a file of a skill.
    pub(crate) fn read_file(&self, name: &str, path: &str) -> Result<String, String> {
        let skill = self.get(name)?;
        let outside = || format!("`{path}` is not a file of skill `{name}`");
        let root = fs_err::canonicalize(&skill.folder).map_err(|_| outside())?;
        let whole = fs_err::canonicalize(root.join(path)).map_err(|_| outside())?;
        if !whole.starts_with(&root) || !whole.is_file() {
            return Err(outside());
        }
        read_text(&whole).map_err(|error| error.why)
    }

    fn get(&self, name: &str) -> Result<&Skill, String> {
        let known = || self.names().collect::<Vec<_>>().join("`, `");
        self.0
            .iter()
            .find(|skill| skill.name == name)
            .ok_or_else(|| format!("no such skill: `{name}` (available: `{}`)", known()))
    }
}

impl Skill {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn read(folder: &Path) -> Result<Self, SkillError> {
        let path = folder.join(SKILL_FILE);
        let error = |line: usize, why: String| SkillError { path: path.clone(), line: Some(line), why };
        let text = read_text(&path)?;
        let (front, _) = split_front_matter(&text).ok_or_else(|| {
            error(1, "front matter expected: `---`, `name: …`, `description: …`, `---`".to_owned())
        })?;
        // Line 1 is the opening `---`.
        let line = |key: &str| {
            let stands = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
            front.lines().position(stands).map_or(1, |at| at + 2)
        };
        let front_json = toolgate_config::parse_document(front).map_err(|why| error(1, why))?;
        let values: Json =
            serde_json::from_str(front_json.get()).map_err(|cause| error(1, cause.to_string()))?;
        let field = |name: &str, longest: usize| {
            let value = values[name].as_str().map(str::trim).unwrap_or_default();
            match value.chars().count() {
                0 => Err(error(line(name), format!("`{name}` is missing in the front matter"))),
                length if length > longest => {
                    Err(error(line(name), format!("`{name}` has more than {longest} characters")))
                }
                _ => Ok(value.to_owned()),
            }
        };
        let (name, description) =
            (field("name", MAX_NAME_CHARS)?, field("description", MAX_DESCRIPTION_CHARS)?);
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            let why = format!("invalid skill name `{name}`: use letters, digits, `-` and `_`");
            return Err(error(line("name"), why));
        }
        Ok(Self { name, description, folder: folder.to_owned(), line: line("name") })
    }
}

/// Returns the folders that are skills. A subfolder without `SKILL.md` is an error.
fn skill_folders(folder: &Path, errors: &mut Vec<SkillError>) -> Vec<PathBuf> {
    if folder.join(SKILL_FILE).is_file() {
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
    // Hidden folders and folders such as `__pycache__` are left by programs and are not skills.
    found.retain(|path| {
        !path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(['.', '_']))
    });
    found.sort();
    for path in found.extract_if(.., |path| !path.join(SKILL_FILE).is_file()) {
        wrong(&path, format!("`{SKILL_FILE}` is missing"));
    }
    found
}

fn read_text(path: &Path) -> Result<String, SkillError> {
    let error = |why: String| SkillError { path: path.to_owned(), line: None, why };
    let size = fs_err::metadata(path).map_err(|cause| error(cause.to_string()))?.len();
    if size > MAX_FILE_BYTES {
        return Err(error(format!("the file exceeds {MAX_FILE_BYTES} bytes")));
    }
    fs_err::read_to_string(path).map_err(|cause| error(cause.to_string()))
}

/// Splits a file into front matter and body.
fn split_front_matter(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches('\u{feff}').strip_prefix("---")?;
    let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'))?;
    let end = rest.match_indices("---").find(|(at, _)| *at == 0 || rest[..*at].ends_with('\n'))?.0;
    let body = &rest[end + 3..];
    Some((&rest[..end], body))
}

fn list_files(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        if files.len() >= MAX_LISTED_FILES {
            return;
        }
        let path = entry.path();
        // Symlinks may lead out of the folder.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            list_files(root, &path, files);
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
        fs_err::write(folder.join(SKILL_FILE), text).unwrap();
        folder
    }

    #[test]
    fn loads_body_and_files_of_skill() {
        let all = tempfile::tempdir().unwrap();
        let text = "---\nname: csv-report\ndescription: >\n  Sums up a CSV file.\n  Use it for tables.\n---\n# Do\nRun scripts/sum.py.\n";
        let folder = skill(all.path(), "csv", text);
        fs_err::create_dir(folder.join("scripts")).unwrap();
        fs_err::write(folder.join("scripts/sum.py"), "print(1)").unwrap();
        let (skills, errors) = SkillSet::read(&[all.path().to_owned()]);
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
        assert_eq!(skills.read_file("csv-report", "scripts/sum.py").unwrap(), "print(1)");
        assert_eq!(skills.load("x").unwrap_err(), "no such skill: `x` (available: `csv-report`)");
    }

    #[test]
    fn rejects_files_outside_the_folder() {
        let all = tempfile::tempdir().unwrap();
        fs_err::write(all.path().join("secret"), "no").unwrap();
        let folder = skill(all.path(), "a", "---\nname: a\ndescription: A.\n---\n");
        std::os::unix::fs::symlink(all.path().join("secret"), folder.join("link")).unwrap();
        let (skills, _) = SkillSet::read(&[folder]);
        for path in ["../secret", "link", "/etc/passwd", "missing", "."] {
            let error = skills.read_file("a", path).unwrap_err();
            assert_eq!(error, format!("`{path}` is not a file of skill `a`"));
        }
    }

    #[test]
    fn reports_errors_with_line() {
        let all = tempfile::tempdir().unwrap();
        for (name, text, line, why) in [
            ("a", "no front matter", 1, "front matter expected"),
            ("b", "---\nname: b\n---\n", 1, "`description` is missing"),
            ("c", "---\ndescription: x\nname: b c\n---\n", 3, "invalid skill name `b c`"),
            ("d", "---\nname: [\n---\n", 1, ""),
            ("e", "---\nlicense: x\nname:\ndescription: x\n---\n", 3, "`name` is missing"),
        ] {
            let folder = skill(all.path(), name, text);
            let (skills, errors) = SkillSet::read(&[folder]);
            assert!(skills.is_empty() && errors.len() == 1, "{name}");
            assert!(errors[0].why.contains(why), "{}", errors[0]);
            assert_eq!(errors[0].line, Some(line), "{}", errors[0]);
        }
    }

    #[test]
    fn reports_subfolders_without_skill_file() {
        let all = tempfile::tempdir().unwrap();
        skill(all.path(), "a", "---\nname: a\ndescription: A.\n---\n");
        skill(all.path(), "b", "---\ndescription: A.\nname: a\n---\n");
        for folder in ["c", ".git", "__pycache__"] {
            fs_err::create_dir(all.path().join(folder)).unwrap();
        }
        let (skills, errors) = SkillSet::read(&[all.path().to_owned()]);
        assert_eq!(skills.names().collect::<Vec<_>>(), ["a"]);
        let messages: Vec<_> =
            errors.iter().map(|error| error.to_string().replace(path_text(all.path()), "")).collect();
        assert_eq!(messages, ["/c: `SKILL.md` is missing", "/b/SKILL.md:3: duplicate skill name `a`"]);
    }

    fn path_text(path: &Path) -> &str {
        path.to_str().unwrap()
    }
}
