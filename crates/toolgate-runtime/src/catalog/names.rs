//! Tool names: normalization, and detection of look-alikes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use sha2::{Digest, Sha256};
use toolgate_types::{ServerName, ToolName};
use unicode_security::skeleton;

use super::{CatalogTool, SEPARATOR, Upstream};

/// Prefix of own tools that lost their name to a server.
const OWN: &str = "own";
/// Longest name of a tool.
const MAX_NAME_LENGTH: usize = 128;

/// Replaces every character that is not allowed in a tool name with `-`.
pub(crate) fn normalize_name(name: &str) -> Cow<'_, str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.chars().all(is_allowed) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().map(|c| if is_allowed(c) { c } else { '-' }).collect())
}

/// Names of a server's tools, by their original names: normalized, with a suffix where several would be the same.
/// `keeps` names the tool that had a normalized name so far, and `is_pinned` tells known tools from new ones, so that no
/// new tool takes over the name of another.
pub(super) fn distinct_names<'a>(
    originals: impl IntoIterator<Item = &'a str>,
    keeps: impl Fn(&str) -> Option<&'a str>,
    is_pinned: impl Fn(&str) -> bool,
) -> HashMap<&'a str, String> {
    let mut groups: BTreeMap<Cow<'a, str>, BTreeSet<&'a str>> = BTreeMap::new();
    for original in originals {
        groups.entry(normalize_name(original)).or_default().insert(original);
    }
    let mut taken: HashSet<String> = groups.keys().map(|name| name.clone().into_owned()).collect();
    let mut names = HashMap::new();
    for (name, group) in groups {
        let kept = keeps(&name).filter(|kept| group.contains(kept));
        let first = || group.iter().copied().min_by_key(|one| (**one != *name, !is_pinned(one)));
        let owner = kept.or_else(first);
        for original in group.iter().copied() {
            let assigned = match owner == Some(original) {
                true => name.clone().into_owned(),
                false => suffixed_name(&name, original, &mut taken),
            };
            names.insert(original, assigned);
        }
    }
    names
}

/// A name with a suffix that depends on the original name alone, so that it is the same after every restart.
fn suffixed_name(name: &str, original: &str, taken: &mut HashSet<String>) -> String {
    let digest: String = Sha256::digest(original).iter().map(|byte| format!("{byte:02x}")).collect();
    let suffixed = |digits: usize| {
        let room = name.floor_char_boundary(MAX_NAME_LENGTH - 1 - digits);
        format!("{}-{}", &name[..room], &digest[..digits])
    };
    let free = [4, 16, 64].map(suffixed).into_iter().find(|name| !taken.contains(name));
    let name = free.unwrap_or_else(|| suffixed(64));
    taken.insert(name.clone());
    name
}

/// Confusable skeletons of a name. Names that people mistake for one another, such as `send_email` and `sеnd_emaiI`,
/// share at least one. There are two, because a capital may look like a different lowercase letter.
pub(super) fn skeletons(name: &str) -> [String; 2] {
    [ascii_skeleton(&name.to_lowercase()), ascii_skeleton(name).to_lowercase()]
}

/// The confusable skeleton of a name. ASCII names, the common case, use a lookup table.
fn ascii_skeleton(name: &str) -> String {
    if !name.is_ascii() {
        return skeleton(name).collect();
    }
    name.bytes().flat_map(|byte| ASCII_SKELETONS[usize::from(byte)].chars()).collect()
}

static ASCII_SKELETONS: LazyLock<[String; 128]> = LazyLock::new(|| {
    std::array::from_fn(|at| {
        let letter = char::from(u8::try_from(at).unwrap_or_default());
        skeleton(letter.encode_utf8(&mut [0; 4])).collect()
    })
});

/// `{server}__`, the beginning of names that belong to one server, in every spelling that looks like it.
#[derive(Debug)]
pub(super) struct NamePrefix([String; 2]);

impl NamePrefix {
    pub(super) fn of(server: &ServerName) -> Self {
        Self(skeletons(&format!("{}{SEPARATOR}", server.prefix())))
    }

    /// Returns true if a name with this skeleton begins with the prefix.
    pub(super) fn is_start_of(&self, skeleton: &str) -> bool {
        self.0.iter().any(|prefix| skeleton.starts_with(prefix.as_str()))
    }
}

/// `{server}__{tool}`. Own tools that lost their name to a server get the prefix `own__`.
pub(super) fn qualified_name(tool: &CatalogTool) -> String {
    let prefix = tool.server.as_ref().map_or_else(|| OWN.to_owned(), ServerName::prefix);
    format!("{prefix}{SEPARATOR}{}", tool.bare_name())
}

/// The qualified name of an own tool.
pub(super) fn own_name(name: &ToolName) -> String {
    format!("{OWN}{SEPARATOR}{name}")
}

pub(super) fn describe_source(tool: &CatalogTool) -> String {
    let kind = if matches!(tool.upstream, Upstream::OpenApi(_)) { "API" } else { "MCP" };
    tool.server.as_ref().map_or_else(|| "your own tools".to_owned(), |server| format!("{kind} '{server}'"))
}

#[test]
fn detects_look_alikes() {
    let alike = |a: &str, b: &str| skeletons(a).iter().any(|value| skeletons(b).contains(value));
    // Cyrillic `е`, capital `I` for `l`, `1` for `l`, Latin alpha, capitals.
    let pairs = ["s\u{0435}nd_email", "send_emaiI", "send_emai1", "send_em\u{0251}il", "SEND_EMAIL"];
    for other in pairs {
        assert!(alike("send_email", other), "{other}");
    }
    assert!(alike("tool", "t0ol"));
    assert!(alike("send", "\u{ff53}end"));
    assert!(!alike("send_email", "send_mail"));
    assert!(!alike("get_a", "get_b"));
    assert!(!alike("read_file", "read-file"));
}

#[cfg(test)]
proptest::proptest! {
    /// The lookup table gives the same skeletons as the library.
    #[test]
    fn ascii_table_matches_the_library(name in "[ -~]{0,20}") {
        proptest::prop_assert_eq!(ascii_skeleton(&name), skeleton(&name).collect::<String>());
    }
}

#[test]
fn names_that_normalize_alike_get_a_suffix() {
    let names = |originals: &[&'static str], kept: Option<&'static str>, pinned: &[&str]| {
        let names = distinct_names(originals.iter().copied(), |_| kept, |one| pinned.contains(&one));
        originals.iter().map(|original| names[original].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["a b", "c"], None, &[]), ["a-b", "c"]);
    let (slash, space) = ("a-b-c14c", "a-b-c868");
    assert_eq!(names(&["a b", "a-b", "a/b"], None, &[]), [space, "a-b", slash]);
    // Neither the order of the list nor a new tool changes a name.
    assert_eq!(names(&["a/b", "a b"], None, &[]), [slash, "a-b"]);
    assert_eq!(names(&["a b", "a/b"], None, &["a/b"]), [space, "a-b"]);
    assert_eq!(
        names(&["a b", "a-b", "a/b"], Some("a/b"), &[]).iter().filter(|name| *name == "a-b").count(),
        1
    );
    assert_eq!(names(&["a/b", "a-b"], Some("a/b"), &[])[0], "a-b");
    let long = "x".repeat(127);
    let (one, two): (&'static str, &'static str) = (format!("{long}/").leak(), format!("{long} ").leak());
    assert!(names(&[one, two], None, &[]).iter().all(|name| name.len() == 128));
}
