//! `cargo xtask docs`: builds the book from `docs/` with mdBook, and checks every link of the result.
//!
//! Pages link to files of the repository that are not part of the book, such as those in `deploy/`. They are copied
//! beside it, below `files/`, and the links are adapted, so that the book is complete on its own. A page that only
//! includes another file of the repository stands for that file. Invariant: every relative link of the finished book
//! leads to a file, and to an anchor of it if the link names one. Links to other hosts are not opened.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};

use crate::metadata::Metadata;
use crate::step::Console;
use crate::{program, tools};

/// The folder in the book for files of the repository that are not pages.
const FILES: &str = "files";

/// Runs the command. Returns false if a link leads nowhere.
pub(crate) fn run() -> anyhow::Result<bool> {
    let root = program::root();
    let docs = root.join("docs");
    let book = Metadata::read(Path::new("Cargo.toml"))?.target_directory.join("book");
    tools::MDBOOK.ensure(&mut Console::stdout())?;
    check_summary(&docs)?;
    if book.exists() {
        fs::remove_dir_all(&book).with_context(|| format!("cannot remove {}", book.display()))?;
    }
    let mut command = tools::MDBOOK.command();
    command.arg("build").arg(&docs).arg("--dest-dir").arg(&book);
    ensure!(program::stream(command)?, "`mdbook build` failed");
    let links = BookLinks { root: &root, book: &book, included: included_files(&root, &docs)? };
    let mut problems = Vec::new();
    let pages = files_below(&book, "html")?;
    for page in &pages {
        links.adapt(page)?;
    }
    for page in &pages {
        problems.extend(links.problems(page)?);
    }
    for problem in &problems {
        eprintln!("error: {problem}");
    }
    println!("{} pages, {} broken links: {}", pages.len(), problems.len(), book.join("index.html").display());
    Ok(problems.is_empty())
}

/// Fails if a page is not listed in SUMMARY.md: mdBook would leave it out without a word.
fn check_summary(docs: &Path) -> anyhow::Result<()> {
    let summary = read(&docs.join("SUMMARY.md"))?;
    for page in files_below(docs, "md")? {
        let path = page.strip_prefix(docs).unwrap_or(&page).display().to_string();
        ensure!(
            path == "SUMMARY.md" || summary.contains(&format!("]({path})")),
            "docs/SUMMARY.md does not list docs/{path}\nhint: add a line for it"
        );
    }
    Ok(())
}

/// Files that a page consists of, with the page: `ARCHITECTURE.md` → `dev/architecture.html`.
fn included_files(root: &Path, docs: &Path) -> anyhow::Result<BTreeMap<PathBuf, PathBuf>> {
    let mut included = BTreeMap::new();
    for page in files_below(docs, "md")? {
        let text = read(&page)?;
        let only = text.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
        let Some(path) = only.filter(|path| !path.contains('\n')) else { continue };
        let folder = page.parent().unwrap_or(docs);
        let file = normalized(&folder.join(path));
        let html = page.strip_prefix(docs).unwrap_or(&page).with_extension("html");
        included.insert(file.strip_prefix(root).unwrap_or(&file).to_owned(), html);
    }
    Ok(included)
}

/// The links of a finished book.
struct BookLinks<'a> {
    /// The repository.
    root: &'a Path,
    book: &'a Path,
    /// Files of the repository that a page includes, with that page.
    included: BTreeMap<PathBuf, PathBuf>,
}

impl BookLinks<'_> {
    /// Turns links to files of the repository into links to pages or copies.
    fn adapt(&self, page: &Path) -> anyhow::Result<()> {
        let text = read(page)?;
        let mut adapted = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, target, after)) = next_target(rest) {
            adapted.push_str(before);
            adapted.push_str(&self.adapted(page, target)?.unwrap_or_else(|| target.to_owned()));
            rest = after;
        }
        adapted.push_str(rest);
        if adapted != text {
            fs::write(page, adapted).with_context(|| format!("cannot write {}", page.display()))?;
        }
        Ok(())
    }

    /// Returns the new target of a link, if it changes.
    fn adapted(&self, page: &Path, target: &str) -> anyhow::Result<Option<String>> {
        let (path, anchor) = target.split_once('#').map_or((target, None), |(path, id)| (path, Some(id)));
        if !is_relative(target) || path.is_empty() || self.resolve(page, path).exists() {
            return Ok(None);
        }
        let Some(file) = self.repository_file(page, path) else { return Ok(None) };
        let in_book = match self.included.get(&file) {
            Some(page) => page.clone(),
            // A page of the book, as a file that is included names it. A link to a folder means its overview.
            None if file.starts_with("docs") => {
                let file = if self.root.join(&file).is_dir() { file.join("README.md") } else { file };
                let page = file.strip_prefix("docs").unwrap_or(&file).to_owned();
                if page.ends_with("README.md") {
                    page.with_file_name("index.html")
                } else {
                    page.with_extension("html")
                }
            }
            None => {
                let copy = Path::new(FILES).join(&file);
                self.copy(&file, &copy)?;
                copy
            }
        };
        let depth = page.strip_prefix(self.book).unwrap_or(page).components().count() - 1;
        let anchor = anchor.map(|id| format!("#{id}")).unwrap_or_default();
        Ok(Some(format!("{}{}{anchor}", "../".repeat(depth), in_book.display())))
    }

    /// Finds the file of the repository that a link of a page means. mdBook names Markdown files `.html` in links.
    fn repository_file(&self, page: &Path, path: &str) -> Option<PathBuf> {
        let source = self.root.join("docs").join(page.strip_prefix(self.book).ok()?);
        let folders = [source.parent()?.to_owned(), self.including_folder(page)];
        for folder in folders {
            let named = normalized(&folder.join(path));
            let mut candidates = vec![named.clone(), named.with_extension("md")];
            if named.ends_with("index.html") {
                candidates.push(named.with_file_name("README.md"));
            }
            if let Some(file) = candidates.iter().find(|file| file.exists()) {
                return file.strip_prefix(self.root).ok().map(Path::to_owned);
            }
        }
        None
    }

    /// Returns the folder of the file that a page includes; the root of the repository for any other page.
    fn including_folder(&self, page: &Path) -> PathBuf {
        let page = page.strip_prefix(self.book).unwrap_or(page);
        let included = self.included.iter().find(|(_, html)| *html == page).map(|(file, _)| file);
        included
            .and_then(|file| file.parent())
            .map_or_else(|| self.root.to_owned(), |folder| self.root.join(folder))
    }

    /// Copies a file, or the files of a folder, into the book.
    fn copy(&self, file: &Path, copy: &Path) -> anyhow::Result<()> {
        let (from, to) = (self.root.join(file), self.book.join(copy));
        if from.is_dir() {
            for entry in fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))? {
                let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
                if entry.path().is_file() {
                    self.copy(&file.join(entry.file_name()), &copy.join(entry.file_name()))?;
                }
            }
            return Ok(());
        }
        let folder = to.parent().unwrap_or(self.book);
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    }

    /// Returns the links of a page that lead nowhere.
    fn problems(&self, page: &Path) -> anyhow::Result<Vec<String>> {
        let text = read(page)?;
        let (mut problems, mut rest) = (Vec::new(), text.as_str());
        while let Some((_, target, after)) = next_target(rest) {
            rest = after;
            if !is_relative(target) {
                continue;
            }
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, id)| (path, Some(id)));
            let file = if path.is_empty() { page.to_owned() } else { self.resolve(page, path) };
            let is_page = file.extension().is_some_and(|extension| extension == "html");
            let found = match anchor.filter(|id| is_page && !id.is_empty()) {
                _ if !file.exists() => false,
                Some(id) => read(&file)?.contains(&format!("id=\"{id}\"")),
                None => true,
            };
            if !found {
                let page = page.strip_prefix(self.book).unwrap_or(page);
                problems.push(format!("{}: the link `{target}` leads nowhere", page.display()));
            }
        }
        Ok(problems)
    }

    /// Returns the file of the book that a link of a page leads to.
    fn resolve(&self, page: &Path, path: &str) -> PathBuf {
        normalized(&page.parent().unwrap_or(self.book).join(path))
    }
}

/// Splits HTML at the next `href` or `src`: the text up to its value, the value, and the rest.
fn next_target(html: &str) -> Option<(&str, &str, &str)> {
    let starts = [" href=\"", " src=\""].into_iter().filter_map(|name| Some(html.find(name)? + name.len()));
    let start = starts.min()?;
    let length = html[start..].find('"')?;
    Some((&html[..start], &html[start..start + length], &html[start + length..]))
}

fn is_relative(target: &str) -> bool {
    !target.is_empty() && !target.contains(':') && !target.starts_with('/')
}

/// Resolves `.` and `..` without the file system.
fn normalized(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, component| {
        match component {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            part => path.push(part),
        }
        path
    })
}

/// All files with an extension below a folder, in order.
fn files_below(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if path.is_dir() {
            files.extend(files_below(&path, extension)?);
        } else if path.extension().is_some_and(|own| own == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_targets_of_links() {
        let html = r#"<a class="x" href="a.html#b">a</a><img src="c.svg">"#;
        let (before, target, rest) = next_target(html).unwrap();
        assert_eq!((before, target), (r#"<a class="x" href=""#, "a.html#b"));
        let (_, target, rest) = next_target(rest).unwrap();
        assert_eq!(target, "c.svg");
        assert!(next_target(rest).is_none());
    }

    #[test]
    fn relative_links_have_no_host() {
        assert!(is_relative("a.html") && is_relative("../a.html#b") && is_relative("#b"));
        assert!(
            !is_relative("https://example.com") && !is_relative("/a") && !is_relative("mailto:a@example.com")
        );
    }

    /// Commands of pages, in blocks and between backticks.
    #[test]
    fn commands_of_pages_exist() {
        use clap::Parser as _;
        let root = program::root();
        let mut pages = files_below(&root.join("docs"), "md").unwrap();
        pages.extend(["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root.join(name)));
        let mut checked = 0;
        for page in pages {
            let text = read(&page).unwrap();
            for line in text.split("cargo xtask ").skip(1) {
                let command = line.split(['`', '#', '\n', ';']).next().unwrap_or_default();
                let words =
                    command.split_whitespace().map(|word| if word == "VERSION" { "1.2.3" } else { word });
                let parsed = crate::Arguments::try_parse_from(std::iter::once("xtask").chain(words));
                assert!(parsed.is_ok(), "{}: cargo xtask {command}: {}", page.display(), parsed.unwrap_err());
                checked += 1;
            }
        }
        assert!(checked > 20, "{checked}");
    }

    #[test]
    fn every_page_is_in_the_summary() {
        check_summary(&program::root().join("docs")).unwrap();
    }
}
