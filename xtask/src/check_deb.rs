//! `cargo xtask check-deb`: the `.deb` in a container with systemd.
//!
//! The container is Debian, unpacked below `target` by debootstrap, and booted by systemd-nspawn with all changes in
//! memory. `check_deb/check.sh` runs in it. Invariant: the system outside stays as it is; programs that it lacks are
//! unpacked below `target` too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::metadata::Metadata;
use crate::{peers, program};

/// The release of Debian whose libraries are the oldest that the package runs with.
const RELEASE: &str = "bookworm";
/// Packages of the check, beside the smallest system with the libraries of the package itself.
const PACKAGES: &str = "--include=systemd,systemd-sysv,ca-certificates,curl";
/// The last line of the check.
const PASSED: &str = "check-deb: passed";

/// Checks a package, by default the newest one of `cargo xtask release`. Returns true if it passed.
pub(crate) fn run(package: Option<&Path>) -> anyhow::Result<bool> {
    let target = Metadata::read(Path::new("Cargo.toml"))?.target_directory;
    let package = match package {
        Some(package) => package.to_owned(),
        None => newest_package(&target.join("dist"))?,
    };
    let package = fs::canonicalize(&package).with_context(|| format!("cannot find {}", package.display()))?;
    let user = program::stdout(id())?;
    ensure!(
        user.trim() == "0",
        "a container needs root\nhint: sudo --preserve-env=PATH cargo xtask check-deb"
    );
    let folder = target.join("container");
    let root = folder.join("root");
    install(&folder, &root)?;
    println!("Checking {} …", package.display());
    let checks = program::root().join("xtask/src/check_deb");
    let bind = |from: &Path, to: &str| format!("--bind-ro={}:{to}", from.display());
    let mut boot = Command::new(folder.join("tools/usr/bin/systemd-nspawn"));
    boot.arg("--directory").arg(&root).args(["--machine=toolgate-check-deb", "--volatile=overlay"]);
    // Without the services of a host that runs systemd.
    boot.args(["--register=no", "--keep-unit", "--private-network"]);
    boot.arg(bind(&package, "/mnt/toolgate.deb")).arg(bind(&checks.join("check.sh"), "/mnt/check.sh"));
    boot.arg(bind(&checks.join("check-deb.service"), "/etc/systemd/system/check-deb.service"));
    boot.args(["--boot", "--", "--unit=check-deb.service"]);
    // Its exit code may be that of the clean-up.
    let booted = program::capture(boot)?;
    let passed = booted.output.lines().any(|line| line.trim_end().ends_with(&format!(": {PASSED}")));
    match passed {
        true => println!("{PASSED}"),
        false => println!("{}", booted.output),
    }
    Ok(passed)
}

fn id() -> Command {
    let mut id = Command::new("id");
    id.arg("--user");
    id
}

/// The package that was built last.
fn newest_package(dist: &Path) -> anyhow::Result<PathBuf> {
    let hint = "hint: `cargo xtask release` builds it";
    let entries = fs::read_dir(dist).with_context(|| format!("cannot read {}\n{hint}", dist.display()))?;
    let packages = entries.filter_map(Result::ok).map(|entry| entry.path());
    let packages = packages.filter(|path| path.extension().is_some_and(|kind| kind == "deb"));
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    packages.max_by_key(changed).with_context(|| format!("no `.deb` in {}\n{hint}", dist.display()))
}

/// Unpacks the container and the programs for it, unless they are there.
fn install(folder: &Path, root: &Path) -> anyhow::Result<()> {
    let (tools, done) = (folder.join("tools"), folder.join("installed"));
    if fs::read_to_string(&done).is_ok_and(|packages| packages == PACKAGES) {
        return Ok(());
    }
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    println!("Installing a container …");
    for package in ["debootstrap", "systemd-container"] {
        if let Some(why) = peers::debian_package(package, &tools)? {
            anyhow::bail!("cannot download {package}\n{why}");
        }
    }
    let mut debootstrap = Command::new(tools.join("usr/sbin/debootstrap"));
    debootstrap.env("DEBOOTSTRAP_DIR", tools.join("usr/share/debootstrap"));
    debootstrap.args(["--variant=minbase", PACKAGES, RELEASE]).arg(root);
    let made = program::capture(debootstrap)?;
    ensure!(made.success, "debootstrap failed\n{}", made.output);
    fs::write(&done, PACKAGES).with_context(|| format!("cannot write {}", done.display()))
}
