//! Measures masking on lists of texts: the share of secrets that are missed, and of harmless texts that are masked.
//!
//! A line of a list is one text, with `\n` for a line break. `«…»` marks a secret in it. Secrets are fake; a broken bar
//! splits their prefixes, so that scanners do not report them. `heldout.txt` was written before the rules were tuned and
//! is not used for tuning.

#![expect(clippy::print_stdout, reason = "this is a measurement")]

use toolgate_redact::{KnownSecrets, contains_credential, mask};

/// Maximum share of mistakes, in percent.
const MAX_MISTAKES: f64 = 2.0;
/// Maximum share of secrets in the lists that egress may miss: codes of a few digits and passwords of one word are no
/// reason to refuse a call.
const MAX_MISSED_BY_EGRESS: f64 = 5.0;
/// Maximum share of harmless texts that egress may refuse.
const MAX_REFUSED_BY_EGRESS: f64 = 0.0;

/// A text and the secrets in it.
struct MarkedText {
    text: String,
    secrets: Vec<String>,
}

fn read(list: &str) -> Vec<MarkedText> {
    list.lines()
        .map(|line| {
            let line =
                line.replace('¦', "").replace("\\\\", "\u{0}").replace("\\n", "\n").replace('\u{0}', "\\");
            let secrets = line.split('«').skip(1).filter_map(|part| part.split_once('»'));
            let secrets = secrets.map(|(secret, _)| secret.to_owned()).collect();
            MarkedText { text: line.replace(['«', '»'], ""), secrets }
        })
        .collect()
}

/// Prints and returns the share of mistakes in percent.
fn share(what: &str, mistakes: &[&str], total: usize) -> f64 {
    let share = mistakes.len() as f64 * 100.0 / total as f64;
    println!("{what}: {} of {total} ({share:.1} %)", mistakes.len());
    mistakes.iter().for_each(|text| println!("    {text}"));
    share
}

/// Returns the shares of secrets missed and of harmless texts masked, and the same for egress.
fn measure(name: &str, texts: &[MarkedText]) -> [f64; 4] {
    let (secret, harmless): (Vec<_>, Vec<_>) = texts.iter().partition(|text| !text.secrets.is_empty());
    let shows = |text: &&&MarkedText| {
        let masked = mask(&text.text, &[]);
        text.secrets.iter().any(|secret| secret.lines().any(|line| masked.contains(line)))
    };
    let refused = |text: &MarkedText| contains_credential(&text.text, &KnownSecrets::default());
    let texts_of =
        |texts: Vec<&&'_ MarkedText>| texts.into_iter().map(|text| text.text.clone()).collect::<Vec<_>>();
    let missed = texts_of(secret.iter().filter(shows).collect());
    let masked = texts_of(harmless.iter().filter(|text| mask(&text.text, &[]) != text.text).collect());
    let passed = texts_of(secret.iter().filter(|text| !refused(text)).collect());
    let refused = texts_of(harmless.iter().filter(|text| refused(text)).collect());
    let figure = |what: &str, mistakes: &[String], total: usize| {
        let mistakes: Vec<_> = mistakes.iter().map(String::as_str).collect();
        share(&format!("{name}: {what}"), &mistakes, total.max(1))
    };
    [
        figure("secrets missed", &missed, secret.len()),
        figure("harmless texts masked", &masked, harmless.len()),
        figure("secrets that egress passes", &passed, secret.len()),
        figure("harmless texts that egress refuses", &refused, harmless.len()),
    ]
}

#[test]
fn mistakes_on_the_lists_are_rare() {
    let secrets = read(include_str!("data/secrets.txt"));
    let harmless = read(include_str!("data/harmless.txt"));
    assert!(secrets.len() >= 100 && harmless.len() >= 100);
    assert!(secrets.iter().all(|text| !text.secrets.is_empty()));
    let [missed, _, passed, _] = measure("secrets.txt", &secrets);
    let [_, masked, _, refused] = measure("harmless.txt", &harmless);
    assert!(missed <= MAX_MISTAKES && masked <= MAX_MISTAKES, "{missed} % missed, {masked} % masked");
    assert!(
        passed <= MAX_MISSED_BY_EGRESS && refused <= MAX_REFUSED_BY_EGRESS,
        "{passed} % passed, {refused} % refused"
    );
}

#[test]
fn mistakes_on_the_held_out_list_are_rare() {
    let texts = read(include_str!("data/heldout.txt"));
    assert!(texts.len() >= 60);
    let [missed, masked, passed, refused] = measure("heldout.txt", &texts);
    assert!(missed <= MAX_MISTAKES && masked <= MAX_MISTAKES, "{missed} % missed, {masked} % masked");
    assert!(
        passed <= MAX_MISSED_BY_EGRESS && refused <= MAX_REFUSED_BY_EGRESS,
        "{passed} % passed, {refused} % refused"
    );
}
