//! Splits texts into words for the lexical index.
//!
//! Names in any spelling (`listFiles`, `list_files`, `list-files`) give the same words, and inflectional endings are
//! removed. Invariant: time is linear in the length, and words are lower case.

/// Stop words: the closed word classes of English, and polite phrases.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i",
    "if", "in", "into", "is", "it", "its", "just", "let", "may", "me", "might", "my", "need", "of", "on",
    "or", "our", "out", "please", "s", "shall", "she", "should", "so", "some", "t", "than", "that", "the",
    "their", "them", "then", "there", "these", "they", "this", "those", "to", "up", "us", "want", "was",
    "we", "were", "what", "when", "where", "which", "who", "will", "with", "would", "you", "your",
];

/// Returns true if a word is not a stop word.
pub(crate) fn is_content_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_err()
}

/// Returns the stemmed words of a text, without stop words.
pub(crate) fn terms(text: &str) -> Vec<String> {
    split(text)
        .into_iter()
        .filter(|word| STOP_WORDS.binary_search(&word.as_str()).is_err())
        .map(term)
        .collect()
}

/// Abbreviations in names of tools and parameters, and in queries, sorted, with the words they stand for.
const ABBREVIATIONS: &[(&str, &str)] = &[
    ("calc", "calculate"),
    ("config", "configuration"),
    ("db", "database"),
    ("dest", "destination"),
    ("dir", "directory"),
    ("dirs", "directory"),
    ("doc", "document"),
    ("docs", "document"),
    ("env", "environment"),
    ("img", "image"),
    ("info", "information"),
    ("msg", "message"),
    ("org", "organization"),
    ("pic", "picture"),
    ("pics", "picture"),
    ("repo", "repository"),
    ("repos", "repository"),
];

/// Returns the stem of a word without its inflection, or of the word that it abbreviates.
fn term(word: String) -> String {
    match ABBREVIATIONS.binary_search_by_key(&word.as_str(), |(short, _)| *short) {
        Ok(at) => stem(ABBREVIATIONS[at].1.to_owned()),
        Err(_) => stem(word),
    }
}

/// Returns the terms of a text to index. A compound word, such as `GitHub`, gives those of its parts and one of its own.
pub(crate) fn index_terms(text: &str) -> Vec<String> {
    let mut all = terms(text);
    all.extend(compounds(text).map(|(joined, _)| joined));
    all
}

/// Returns the terms of a query. A compound word that `is_known` is one term, any other gives those of its parts.
pub(crate) fn query_terms(query: &str, is_known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut all = terms(query);
    for (joined, parts) in compounds(query).filter(|(joined, _)| is_known(joined)) {
        for part in parts {
            if let Some(at) = all.iter().position(|term| *term == part) {
                all.remove(at);
            }
        }
        all.push(joined);
    }
    all
}

/// Returns the words that consist of several, each as one term and as the terms of its parts.
fn compounds(text: &str) -> impl Iterator<Item = (String, Vec<String>)> {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    let is_compound = |word: &&str| word.len() > 3 && !word.contains(stands_alone) && split(word).len() > 1;
    words.filter(is_compound).map(|word| (stem(word.to_lowercase()), terms(word)))
}

/// Splits a text into lower-case words: runs of letters or digits, also split where the case changes.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before: Option<char> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_alphanumeric() {
            end(&mut word, &mut words);
            before = None;
            continue;
        }
        if before.is_some_and(|before| is_border(before, letter, letters.peek().copied())) {
            end(&mut word, &mut words);
        }
        word.extend(letter.to_lowercase());
        before = Some(letter);
    }
    end(&mut word, &mut words);
    words
}

/// Returns true if a word ends between two letters: `listFiles`, `HTTPServer`, `sha256`, and around characters that are
/// words by themselves, such as Chinese ones.
fn is_border(before: char, letter: char, after: Option<char>) -> bool {
    let hump = before.is_lowercase() && letter.is_uppercase();
    let acronym = before.is_uppercase() && letter.is_uppercase() && after.is_some_and(char::is_lowercase);
    hump || acronym
        || before.is_numeric() != letter.is_numeric()
        || stands_alone(before)
        || stands_alone(letter)
}

/// Returns true for Chinese characters and Japanese syllables, which are not separated by spaces.
fn stands_alone(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

fn end(word: &mut String, words: &mut Vec<String>) {
    if !word.is_empty() {
        words.push(std::mem::take(word));
    }
}

/// Removes English endings: `files`, `listed` and `listing` become `fil` and `list`.
pub(crate) fn stem(mut word: String) -> String {
    if !word.is_ascii() || word.len() < 4 {
        return word;
    }
    if word.ends_with("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ["sses", "shes", "ches", "xes"].iter().any(|ending| word.ends_with(ending)) {
        word.truncate(word.len() - 2);
    } else if word.ends_with('s') && !["ss", "us", "is"].iter().any(|ending| word.ends_with(ending)) {
        word.truncate(word.len() - 1);
    }
    for ending in ["ing", "ed"] {
        if word.len() > ending.len() + 2
            && word.ends_with(ending)
            && has_vowel(&word[..word.len() - ending.len()])
        {
            word.truncate(word.len() - ending.len());
            let doubled =
                word.as_bytes().last_chunk::<2>().is_some_and(|[a, b]| a == b && !b"lsz".contains(b));
            if doubled {
                word.pop();
            }
            break;
        }
    }
    // `create`, `creating` and `created` share the stem `creat`.
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    word
}

fn has_vowel(text: &str) -> bool {
    text.bytes().any(|letter| b"aeiouy".contains(&letter))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(split(text), expected, "{text}");
    }

    #[test]
    fn every_spelling_of_a_name_gives_the_same_words() {
        for name in ["list_files", "listFiles", "ListFiles", "list-files", "list.files", "LIST FILES"] {
            check(name, &["list", "files"]);
        }
        check("HTTPServer2Go", &["http", "server", "2", "go"]);
        check("読むfile", &["読", "む", "file"]);
        check("  …  ", &[]);
    }

    #[test]
    fn endings_are_removed() {
        for (word, expected) in [
            ("files", "fil"),
            ("file", "fil"),
            ("creating", "creat"),
            ("created", "creat"),
            ("create", "creat"),
            ("queries", "query"),
            ("status", "status"),
            ("class", "class"),
            ("classes", "class"),
            ("running", "run"),
            ("string", "string"),
            ("called", "call"),
            ("is", "is"),
        ] {
            assert_eq!(stem(word.to_owned()), expected, "{word}");
        }
    }

    #[test]
    fn stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
        assert_eq!(terms("Please list all of my files!"), ["list", "fil"]);
    }

    proptest! {
        #[test]
        fn splits_any_text(text in ".{0,200}") {
            for word in split(&text) {
                prop_assert!(!word.is_empty());
                stem(word);
            }
        }
    }
}
