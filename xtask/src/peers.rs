//! Third-party MCP servers, clients and proxies for the tests of the executable, and a library that fakes the clock.
//!
//! Invariant: they are installed below `target`, at the versions in `crates/toolgate/tests/peers`, and nothing outside
//! of the repository changes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::program;
use crate::step::{Console, Outcome};

/// Environment variable that tells the tests the folder.
pub(crate) const VARIABLE: &str = "TOOLGATE_PEERS";

/// The folder of the installed peers.
pub(crate) fn folder() -> PathBuf {
    program::root().join("target/peers")
}

/// Dependency lists, each with the folder for its packages. A copy of the list is stored beside the packages, to detect
/// changes of the list.
const LISTS: [(&str, &str); 5] = [
    ("package.json", "npm"),
    ("requirements.txt", "python"),
    ("requirements-v1.txt", "python-v1"),
    ("requirements-frameworks.txt", "frameworks"),
    ("requirements-frameworks-v2.txt", "frameworks-v2"),
];
/// Installs the many packages of the agent frameworks in seconds.
const UV: &str = "uv==0.13.8";

/// Returns true if `uv` installs the list.
fn is_large(name: &str) -> bool {
    name.starts_with("frameworks")
}

fn source() -> PathBuf {
    program::root().join("crates/toolgate/tests/peers")
}

fn stamp(name: &str) -> PathBuf {
    folder().join(name).join("installed")
}

/// Folder of the source of the Python SDK, whose everything-server is in no other package.
const PYTHON_SDK: &str = "python-sdk";

/// The version of the Python SDK, as a requirement such as `mcp==2.3.0`.
fn python_sdk_version() -> anyhow::Result<String> {
    let list = source().join("requirements.txt");
    let text = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let version = text.lines().find(|line| line.starts_with("mcp=="));
    Ok(version.with_context(|| format!("`mcp` is missing in {}", list.display()))?.to_owned())
}

/// The folder of the everything-server of the Python SDK.
pub(crate) fn python_sdk_server() -> anyhow::Result<PathBuf> {
    let version = python_sdk_version()?.replace("==", "-");
    Ok(folder().join(PYTHON_SDK).join(version).join("examples/servers/everything-server"))
}

/// Downloads the source of the Python SDK. Returns the output of the failed command, if any.
fn python_sdk(console: &mut Console<impl Write>) -> anyhow::Result<Option<String>> {
    let (folder, stamp, wanted) = (folder().join(PYTHON_SDK), stamp(PYTHON_SDK), python_sdk_version()?);
    if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted.as_bytes()) {
        return Ok(None);
    }
    console.say("fetching the source of the Python SDK …")?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut download = Command::new(self::folder().join("python/bin/pip"));
    download.args([
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-binary",
        ":all:",
    ]);
    download.arg("--dest").arg(&folder).arg(&wanted);
    let archive = format!("{}.tar.gz", wanted.replace("==", "-"));
    let mut extract = Command::new("tar");
    extract.arg("-xzf").arg(archive).current_dir(&folder);
    let failed = run(vec![download, extract])?;
    if failed.is_none() {
        std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    Ok(failed)
}

/// Returns true if all of them are installed at the listed versions.
pub(crate) fn are_installed() -> bool {
    let sdk = std::fs::read_to_string(stamp(PYTHON_SDK)).ok();
    if sdk.is_none() || sdk != python_sdk_version().ok() {
        return false;
    }
    let debian =
        std::fs::read(stamp("debian")).is_ok_and(|installed| installed == PACKAGES.join(" ").as_bytes());
    let is_unpacked =
        |name: &str| std::fs::read(stamp(name)).is_ok_and(|installed| installed == name.as_bytes());
    debian
        && PROGRAMS.iter().all(|name| is_unpacked(name))
        && LISTS.iter().all(|(list, name)| {
            let (wanted, installed) = (std::fs::read(source().join(list)), std::fs::read(stamp(name)));
            matches!((wanted, installed), (Ok(wanted), Ok(installed)) if wanted == installed)
        })
}

/// Debian packages that tests need, unpacked below `target`: the system stays unchanged.
const PACKAGES: [&str; 4] = ["libfaketime", "nginx", "caddy", "prometheus"];

/// Programs that are unpacked with the libraries that this system lacks: the browser of the tests of the console, and the
/// database of the tests of clusters. Installed programs are used from there.
const PROGRAMS: [&str; 2] = ["chromium", "postgresql"];

/// Downloads a program with the packages that it needs. Returns the output of the failed command, if any.
fn with_libraries(package: &str, console: &mut Console<impl Write>) -> anyhow::Result<Option<String>> {
    let (folder, stamp) = (folder().join(package), stamp(package));
    if std::fs::read(&stamp).is_ok_and(|installed| installed == package.as_bytes()) {
        return Ok(None);
    }
    console.say(&format!("fetching {package} …"))?;
    let archives = folder.join("archives");
    std::fs::create_dir_all(archives.join("partial"))
        .with_context(|| format!("cannot create {}", archives.display()))?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        // Nothing is installed, so the lock of the system is not needed.
        command.args(["-o", "Debug::NoLocking=1", "-o"]);
        command.arg(format!("Dir::Cache::archives={}", archives.display())).args(words);
        program::capture(command)
    };
    let download = ["install", "--download-only", "--yes", "--no-install-recommends", package];
    let mut done = apt(&download)?;
    if !done.success {
        // A fresh machine has no package lists yet.
        apt(&["update"])?;
        done = apt(&download)?;
    }
    if !done.success {
        return Ok(Some(done.output));
    }
    if let Some(why) = unpack(&archives, &folder)? {
        return Ok(Some(why));
    }
    std::fs::remove_dir_all(&archives).with_context(|| format!("cannot remove {}", archives.display()))?;
    std::fs::write(&stamp, package).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(None)
}

/// Downloads the packages. Returns the output of `apt-get` if that fails.
fn debian(console: &mut Console<impl Write>) -> anyhow::Result<Option<String>> {
    let (folder, stamp) = (folder().join("debian"), stamp("debian"));
    let wanted = PACKAGES.join(" ");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted.as_bytes()) {
        return Ok(None);
    }
    console.say("fetching nginx, Caddy and Prometheus …")?;
    for package in PACKAGES {
        if let Some(why) = debian_package(package, &folder)? {
            return Ok(Some(why));
        }
    }
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(None)
}

/// Downloads a package and unpacks it into a folder. Returns the output of the failed command, if any.
pub(crate) fn debian_package(package: &str, folder: &Path) -> anyhow::Result<Option<String>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(words).current_dir(folder);
        program::capture(command)
    };
    let download = ["download", package];
    let mut done = apt(&download)?;
    if !done.success {
        // A fresh machine has no package lists yet.
        apt(&["update"])?;
        done = apt(&download)?;
    }
    if !done.success {
        return Ok(Some(done.output));
    }
    unpack(folder, folder)
}

/// Unpacks the packages of a folder into another. Returns the output of the failed command, if any.
fn unpack(packages: &Path, folder: &Path) -> anyhow::Result<Option<String>> {
    for file in std::fs::read_dir(packages)?.filter_map(Result::ok).map(|entry| entry.path()) {
        if file.extension().is_some_and(|end| end == "deb") {
            let mut extract = Command::new("dpkg");
            extract.arg("-x").arg(&file).arg(folder);
            let done = program::capture(extract)?;
            if !done.success {
                return Ok(Some(done.output));
            }
        }
    }
    Ok(None)
}

/// Installs missing peers.
pub(crate) fn step(console: &mut Console<impl Write>) -> anyhow::Result<Outcome> {
    let (source, target) = (source(), folder());
    std::fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    for (list, name) in LISTS {
        let (list, folder) = (source.join(list), target.join(name));
        let wanted = std::fs::read(&list).with_context(|| format!("cannot read {}", list.display()))?;
        let stamp = stamp(name);
        if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
            continue;
        }
        console.say(&format!("installing the MCP servers of {name} …"))?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut failed = match name {
            "npm" => run(npm(&list, &folder))?,
            _ if is_large(name) => run(python_with_uv(&list, &folder))?,
            _ => run(python(&list, &folder))?,
        };
        if failed.is_some() && is_large(name) {
            // Where `uv` reaches no registry, `pip` may, with its own settings.
            failed = run(python(&list, &folder))?;
        }
        if let Some(output) = failed {
            let hint = "hint: this step needs npm and python3, and network access the first time";
            return Ok(Outcome::Failed(format!("{}\n{hint}", output.trim_end())));
        }
        std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    if let Some(why) = python_sdk(console)? {
        let hint = "hint: this step needs network access the first time";
        return Ok(Outcome::Failed(format!("{}\n{hint}", why.trim_end())));
    }
    if let Some(why) = debian(console)? {
        let hint = "hint: this step needs apt-get, and network access the first time";
        return Ok(Outcome::Failed(format!("{}\n{hint}", why.trim_end())));
    }
    for package in PROGRAMS {
        if let Some(why) = with_libraries(package, console)? {
            let hint = "hint: this step needs apt-get, and network access the first time";
            return Ok(Outcome::Failed(format!("{}\n{hint}", why.trim_end())));
        }
    }
    Ok(Outcome::Passed)
}

/// Runs commands one after the other. Returns the output of the first that fails.
fn run(commands: Vec<Command>) -> anyhow::Result<Option<String>> {
    for command in commands {
        let done = program::capture(command)?;
        if !done.success {
            return Ok(Some(done.output));
        }
    }
    Ok(None)
}

fn npm(list: &Path, folder: &Path) -> Vec<Command> {
    let mut copy = Command::new("cp");
    copy.arg(list).arg(folder);
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]).current_dir(folder);
    vec![copy, install]
}

fn python(list: &Path, folder: &Path) -> Vec<Command> {
    let mut install = pip(folder);
    install.arg("--requirement").arg(list);
    vec![venv(folder), install]
}

/// The same for a list with many packages.
fn python_with_uv(list: &Path, folder: &Path) -> Vec<Command> {
    let mut uv = pip(folder);
    uv.arg(UV);
    let mut install = Command::new(folder.join("bin/uv"));
    install.args(["pip", "install", "--quiet", "--python"]).arg(folder.join("bin/python"));
    install.arg("--requirement").arg(list);
    vec![venv(folder), uv, install]
}

fn venv(folder: &Path) -> Command {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(folder);
    venv
}

fn pip(folder: &Path) -> Command {
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check"]);
    install
}
