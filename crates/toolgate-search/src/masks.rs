//! Masks: replaces URLs, paths and file names in a query by words for their type.
//!
//! The parts of a path say nothing about the request, and would outweigh the words that do. Invariant: a word that is
//! not clearly one of these stays as it is.

/// File name extensions. `js` is missing on purpose: names of libraries have it more often.
const FILE_EXTENSIONS: &[&str] = &[
    "bmp", "c", "conf", "cpp", "css", "csv", "doc", "docx", "gif", "go", "gz", "h", "html", "ini", "ipynb",
    "java", "jpeg", "jpg", "json", "jsonl", "log", "md", "mp3", "mp4", "pdf", "png", "ppt", "pptx", "py",
    "rs", "sh", "sql", "svg", "tar", "toml", "ts", "tsv", "txt", "wav", "xls", "xlsx", "xml", "yaml", "yml",
    "zip",
];

/// Top-level domains that identify a host name without a scheme.
const TOP_LEVEL_DOMAINS: &[&str] =
    &["ai", "app", "cn", "com", "de", "dev", "edu", "eu", "gov", "io", "net", "org", "uk"];

/// The type of a word that is masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaskKind {
    Email,
    Url,
    Path,
    File,
}

impl MaskKind {
    /// Classifies a word, ignoring punctuation around it.
    pub(crate) fn classify(word: &str) -> Option<Self> {
        let word = bare(word);
        let ending = word.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        let ends_in = |known: &[&str]| ending.as_deref().is_some_and(|ending| known.contains(&ending));
        let is_scheme = word.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty()
                && !rest.is_empty()
                && scheme.bytes().all(|letter| letter.is_ascii_alphanumeric())
        });
        if is_scheme || word.starts_with("www.") {
            return Some(Self::Url);
        }
        if let Some((user, host)) = word.split_once('@') {
            return (!user.is_empty() && host.contains('.')).then_some(Self::Email);
        }
        if is_path(word) {
            return Some(Self::Path);
        }
        let host = word.split(['/', '\'', '’']).next().unwrap_or_default();
        let host_ending = host.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        if host_ending.is_some_and(|ending| TOP_LEVEL_DOMAINS.contains(&ending.as_str())) {
            return Some(Self::Url);
        }
        ends_in(FILE_EXTENSIONS).then_some(Self::File)
    }

    /// Returns the replacement.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Email => "email address",
            Self::Url => "url",
            Self::Path => "path",
            Self::File => "file",
        }
    }
}

/// Replaces all masked words of a query.
pub(crate) fn mask_query(query: &str) -> String {
    let mut out = String::with_capacity(query.len());
    for word in query.split_whitespace() {
        out.push_str(if out.is_empty() { "" } else { " " });
        match MaskKind::classify(word) {
            Some(mask) => out.push_str(mask.words()),
            None => out.push_str(word),
        }
    }
    out
}

/// Strips punctuation and quotes around a word.
pub(crate) fn bare(word: &str) -> &str {
    let quotes = |letter: char| "\"'`“”‘’()[]{}<>,;:!?".contains(letter);
    word.trim_matches(quotes).trim_end_matches('.').trim_matches(quotes)
}

fn is_path(word: &str) -> bool {
    let begins =
        ["./", "../", "~/", "/"].iter().any(|begin| word.len() > begin.len() && word.starts_with(begin));
    let drive = matches!(word.as_bytes(), [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    let slashes = word.matches('/').count();
    begins
        || drive
        || (slashes > 1 && !word.contains("//") && word.contains(char::is_alphabetic))
        || (slashes == 1 && word.contains('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &str) {
        assert_eq!(mask_query(query), expected, "{query}");
    }

    #[test]
    fn masks_urls_paths_and_files() {
        check("write to ann@example.org, please", "write to email address please");
        check("open https://example.org/a?b=c.", "open url");
        check("what is on www.example.net?", "what is on url");
        check("list example.com's pages", "list url pages");
        check("read ./notes/today.txt", "read path");
        check("read 'C:\\notes'", "read path");
        check("read notes.txt and `b.md`!", "read file and file");
        check("list tests/unit_tests", "list path");
    }

    #[test]
    fn plain_words_are_unchanged() {
        for query in [
            "and/or",
            "moment.js",
            "version 1.2.3",
            "e.g. this",
            "@ann",
            "a / b",
            "i.e.",
            "3.5",
            "rust-lang/rust",
        ] {
            check(query, query);
        }
    }
}
