//! `cargo xtask release`: the version, the changelog, and the packages for this host.
//!
//! With a version it first writes `Cargo.toml`, `Cargo.lock` and `CHANGELOG.md`, and removes the fragments of
//! `changelog.d/` that went into the changelog. Then, as without one, it builds the archive, the `.deb` and their
//! checksums below `target/dist`. Invariant: commits, tags and pushes nothing; that is left to a person.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};

use crate::metadata::Metadata;
use crate::step::Console;
use crate::{program, tools};

const CHANGELOG: &str = "CHANGELOG.md";
const FRAGMENTS: &str = "changelog.d";
/// Kinds of changes in the order of a release, each with its heading.
const KINDS: [(&str, &str); 6] = [
    ("added", "Added"),
    ("changed", "Changed"),
    ("deprecated", "Deprecated"),
    ("removed", "Removed"),
    ("fixed", "Fixed"),
    ("security", "Security"),
];
/// Shells that get a completion script, with the file name each expects.
const COMPLETIONS: [(&str, &str); 4] =
    [("bash", "toolgate.bash"), ("zsh", "_toolgate"), ("fish", "toolgate.fish"), ("elvish", "toolgate.elv")];
/// Files of the repository that go into the archive.
const DOCUMENTS: [&str; 6] =
    ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE", "deploy/toolgate.service"];

/// The flags of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseOptions {
    /// The new version, for example 0.2.0. Without it only the packages of the current version are built.
    version: Option<String>,
    /// The day of the release in the changelog. Default: today, in UTC.
    #[arg(long, value_name = "YYYY-MM-DD", requires = "version")]
    date: Option<String>,
    /// Write the version and the changelog, and build no packages.
    #[arg(long, requires = "version")]
    no_packages: bool,
}

/// Runs the command.
pub(crate) fn run(options: &ReleaseOptions) -> anyhow::Result<bool> {
    if let Some(version) = &options.version {
        prepare(version, options.date.as_deref())?;
    }
    if !options.no_packages {
        build_packages()?;
    }
    match &options.version {
        Some(version) => println!(
            "Next: read `git diff`, then `git commit --all --message 'release: {version}'` and `git tag v{version}`."
        ),
        None => println!("Next: `cargo xtask release VERSION` writes the version and the changelog."),
    }
    Ok(true)
}

/// Writes the version and the changelog.
fn prepare(version: &str, date: Option<&str>) -> anyhow::Result<()> {
    ensure!(is_version(version), "`{version}` is not a version\nhint: three numbers, for example 0.2.0");
    let changed = program::stdout(program::git(["status", "--porcelain"]))?;
    ensure!(changed.is_empty(), "the working tree has uncommitted changes\nhint: commit or stash them first");
    let date = match date {
        Some(date) => date.to_owned(),
        None => today()?,
    };
    let root = program::root();
    let fragments = read_fragments(&root.join(FRAGMENTS))?;
    ensure!(
        !fragments.is_empty(),
        "no changes in `{FRAGMENTS}`\nhint: a release without changes needs no release"
    );
    let changelog = read(&root.join(CHANGELOG))?;
    write(&root.join(CHANGELOG), &with_release(&changelog, version, &date, &fragments)?)?;
    let manifest = read(&root.join("Cargo.toml"))?;
    write(&root.join("Cargo.toml"), &with_version(&manifest, version)?)?;
    program::stdout(program::cargo(["update", "--workspace", "--offline", "--quiet"]))?;
    for Fragment { path, .. } in &fragments {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    println!("Wrote version {version} and {} changes to {CHANGELOG}.", fragments.len());
    Ok(())
}

/// One file of `changelog.d/`.
struct Fragment {
    path: PathBuf,
    kind: String,
    text: String,
}

/// All fragments, in the order of their names.
fn read_fragments(folder: &Path) -> anyhow::Result<Vec<Fragment>> {
    let mut fragments = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let kind =
            name.strip_suffix(".md").and_then(|name| name.rsplit_once('.')).map(|(_, kind)| kind.to_owned());
        let Some(kind) = kind.filter(|kind| KINDS.iter().any(|(known, _)| kind == known)) else {
            bail!(
                "{FRAGMENTS}/{name} is not called AREA.KIND.md\nhint: {FRAGMENTS}/README.md lists the kinds"
            );
        };
        fragments.push(Fragment { text: read(&path)?, path, kind });
    }
    fragments.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(fragments)
}

/// The changelog with a section for this release below `[Unreleased]`.
fn with_release(
    changelog: &str,
    version: &str,
    date: &str,
    fragments: &[Fragment],
) -> anyhow::Result<String> {
    ensure!(
        !changelog.contains(&format!("## [{version}]")),
        "{CHANGELOG} has a section for {version} already\nhint: choose a newer version"
    );
    let heading =
        changelog.find("## [Unreleased]").context("CHANGELOG.md has no section `## [Unreleased]`")?;
    let next = changelog[heading + 1..].find("\n## [").map_or(changelog.len(), |at| heading + 1 + at + 1);
    let mut section = format!("## [{version}] - {date}\n");
    for (kind, title) in KINDS {
        let mut of_kind = fragments.iter().filter(|fragment| fragment.kind == kind).peekable();
        if of_kind.peek().is_none() {
            continue;
        }
        let _ = write!(section, "\n### {title}\n\n");
        for fragment in of_kind {
            let _ = writeln!(section, "- {}", fragment.text.trim().replace('\n', "\n  "));
        }
    }
    let (before, after) = changelog.split_at(next);
    let gap = if after.is_empty() { "" } else { "\n" };
    Ok(format!("{}\n\n{section}{gap}{after}", before.trim_end()))
}

/// The workspace manifest with this version.
fn with_version(manifest: &str, version: &str) -> anyhow::Result<String> {
    let section = manifest.find("[workspace.package]").context("Cargo.toml has no [workspace.package]")?;
    let key = "version = \"";
    let start =
        manifest[section..].find(key).context("[workspace.package] has no version")? + section + key.len();
    let end = manifest[start..].find('"').context("the version has no closing quote")? + start;
    Ok(format!("{}{version}{}", &manifest[..start], &manifest[end..]))
}

fn is_version(text: &str) -> bool {
    let parts: Vec<_> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// Today in UTC, from `date`: one line is not worth a library of dates.
fn today() -> anyhow::Result<String> {
    let mut command = std::process::Command::new("date");
    command.args(["-u", "+%Y-%m-%d"]);
    Ok(program::stdout(command)?.trim().to_owned())
}

/// Builds the release binary and packs it: archive, `.deb`, checksums.
fn build_packages() -> anyhow::Result<()> {
    let root = program::root();
    let metadata = Metadata::read(Path::new("Cargo.toml"))?;
    let target = metadata.target_directory;
    println!("Building the release binary, which takes some minutes …");
    let build = ["build", "--release", "--locked", "--package", "toolgate"];
    ensure!(program::stream(program::cargo(build))?, "the release build failed");
    let binary = target.join("release").join(format!("toolgate{}", std::env::consts::EXE_SUFFIX));

    let version = program::stdout(of_binary(&binary, &["--version"]))?;
    let version = version.split_whitespace().nth(1).context("`toolgate --version` names no version")?;
    let name = format!("toolgate-{version}-{}", host()?);
    let dist = target.join("dist");
    let folder = dist.join(&name);
    recreate(&folder)?;
    copy(&binary, &folder.join("toolgate"))?;
    for document in DOCUMENTS {
        let file_name = Path::new(document).file_name().unwrap_or_default();
        copy(&root.join(document), &folder.join(file_name))?;
    }
    write_generated(&binary, &folder)?;
    // `[package.metadata.deb]` of crates/toolgate/Cargo.toml names these files.
    let generated = target.join("release").join("generated");
    recreate(&generated)?;
    write_generated(&binary, &generated)?;
    // Debian wants them compressed, and `cargo deb` does not compress what a build made.
    let mut gzip = std::process::Command::new("gzip");
    gzip.args(["--best", "--no-name", "--recursive"]).arg(generated.join("man"));
    program::stdout(gzip)?;
    let unit = read(&root.join("deploy/toolgate.service"))?;
    write(&generated.join("toolgate.service"), &debian_unit(&unit)?)?;

    let archive = dist.join(format!("{name}.tar.gz"));
    let mut tar = std::process::Command::new("tar");
    if cfg!(target_os = "linux") {
        // Options of GNU tar.
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    }
    tar.args(["-czf"]).arg(&archive).arg("-C").arg(&dist).arg(&name);
    program::stdout(tar)?;

    let mut packages = vec![archive];
    if cfg!(target_os = "linux") {
        tools::DEB.ensure(&mut Console::stdout())?;
        let deb = dist.join(format!("toolgate_{version}_{}.deb", debian_architecture()));
        let mut command = program::cargo(["deb", "--no-build", "--package", "toolgate", "--output"]);
        command.arg(&deb);
        ensure!(program::stream(command)?, "`cargo deb` failed");
        packages.push(deb);
    }
    let mut sums = String::new();
    for package in &packages {
        let bytes = fs::read(package).with_context(|| format!("cannot read {}", package.display()))?;
        let file_name = package.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(sums, "{}  {file_name}", hex(&Sha256::digest(&bytes)));
        println!("{} ({:.1} MiB)", package.display(), bytes.len() as f64 / f64::from(1 << 20));
    }
    write(&dist.join("SHA256SUMS"), &sums)?;
    println!("{}", dist.join("SHA256SUMS").display());
    Ok(())
}

/// Writes completion scripts and man pages, as the binary makes them.
fn write_generated(binary: &Path, folder: &Path) -> anyhow::Result<()> {
    let completions = folder.join("completions");
    create(&completions)?;
    for (shell, file_name) in COMPLETIONS {
        write(&completions.join(file_name), &program::stdout(of_binary(binary, &["completions", shell]))?)?;
    }
    let pages = folder.join("man");
    create(&pages)?;
    let mut command = of_binary(binary, &["man", "--output"]);
    command.arg(&pages);
    program::stdout(command)?;
    Ok(())
}

fn of_binary(binary: &Path, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(binary);
    command.args(arguments);
    command
}

/// The target triple of this machine.
fn host() -> anyhow::Result<String> {
    let mut rustc = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--version", "--verbose"]);
    let version = program::stdout(rustc)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// The systemd unit with the place of the binary in a Debian package.
fn debian_unit(unit: &str) -> anyhow::Result<String> {
    let (local, packaged) = ("ExecStart=/usr/local/bin/toolgate ", "ExecStart=/usr/bin/toolgate ");
    ensure!(unit.contains(local), "deploy/toolgate.service has no `{local}`");
    Ok(unit.replace(local, packaged))
}

fn debian_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Creates an empty folder: files of an earlier build would go into the packages.
fn recreate(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    create(folder)
}

fn create(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(name: &str, kind: &str, text: &str) -> Fragment {
        Fragment { path: name.into(), kind: kind.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn collects_fragments_by_kind_below_unreleased() {
        let fragments = [
            fragment("a.fixed.md", "fixed", "Fix a.\n"),
            fragment("b.added.md", "added", "Add b.\nIt has two lines.\n"),
        ];
        let changelog = "# Changelog\n\n## [Unreleased]\n\nFragments.\n\n## [0.1.0] - 2026-01-01\n\nOld.\n";
        let written = with_release(changelog, "0.2.0", "2026-02-01", &fragments).unwrap();
        assert_eq!(
            written,
            "# Changelog\n\n## [Unreleased]\n\nFragments.\n\n## [0.2.0] - 2026-02-01\n\n### Added\n\n- Add b.\n  \
             It has two lines.\n\n### Fixed\n\n- Fix a.\n\n## [0.1.0] - 2026-01-01\n\nOld.\n"
        );
        assert!(with_release(&written, "0.2.0", "2026-02-01", &fragments).is_err());
    }

    #[test]
    fn sets_the_version_of_the_workspace_only() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\n[x]\nversion = \"9\"\n";
        let expected = "[workspace.package]\nversion = \"0.2.0\"\n[x]\nversion = \"9\"\n";
        assert_eq!(with_version(manifest, "0.2.0").unwrap(), expected);
    }

    #[test]
    fn a_version_has_three_numbers() {
        assert!(is_version("0.1.0") && is_version("10.20.30"));
        assert!(!is_version("0.1") && !is_version("v0.1.0") && !is_version("0.1.x") && !is_version("0..1"));
    }

    #[test]
    fn the_unit_of_the_package_starts_the_packaged_binary() {
        let unit = read(&program::root().join("deploy/toolgate.service")).unwrap();
        let unit = debian_unit(&unit).unwrap();
        assert!(unit.contains("\nExecStart=/usr/bin/toolgate -C ") && !unit.contains("/usr/local"), "{unit}");
    }
}
