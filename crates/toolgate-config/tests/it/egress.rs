//! `egress`: forbidden strings are never shown.

use toolgate_config::LoadOutcome;
use toolgate_types::Secret;

use super::{loaded, messages};

fn egress(text: &str, variables: &[(&str, &str)]) -> LoadOutcome {
    loaded(&[("toolgate.yaml", &format!("egress:\n{text}"))], variables)
}

#[test]
fn canaries_and_secrets() {
    let loaded =
        egress("  canaries: [the blue heron, \"${CANARY}\"]\n  secrets: true\n", &[("CANARY", "12345678")]);
    let egress = &loaded.config.as_ref().unwrap().egress;
    let canaries: Vec<_> = egress.canaries.iter().map(Secret::expose).collect();
    assert_eq!((canaries, egress.secrets), (vec!["the blue heron", "12345678"], true));
    assert_eq!(messages(&loaded), "");
    let shown = format!("{:?}{}", loaded.config, serde_json::to_string(&loaded.config).unwrap());
    assert!(!shown.contains("heron") && !shown.contains("12345678"), "{shown}");
}

#[test]
fn egress_is_off_by_default() {
    let loaded = egress("  canaries: []\n", &[]);
    assert!(loaded.config.as_ref().unwrap().egress.is_off());
    assert!(serde_json::to_value(&loaded.config).unwrap().get("egress").is_none());
}

/// Canaries are hidden whatever the mistake and wherever the string occurs.
#[test]
fn never_shows_canaries() {
    for (text, variables) in [
        ("  canaries: [{the blue heron: the blue heron}]\n", [("A", "a")]),
        ("  canaries: the blue heron\n", [("A", "a")]),
        ("  canaries: [the blue heron, \"${NONE}\"]\n", [("A", "a")]),
        ("  {canaries: [the blue heron], secretss: true}\n", [("A", "a")]),
        ("  canaries: [the blue heron]\nname: the blue heron\nnam: the blue heron\n", [("A", "a")]),
        ("  {}\n", [("TOOLGATE__EGRESS__CANARIES__X", "the blue heron")]),
    ] {
        let loaded = egress(text, &variables);
        let shown = format!("{}{}", loaded.report.render(), messages(&loaded));
        assert!(loaded.config.is_none() && !shown.contains("heron"), "{shown}");
    }
    let short = egress("  canaries: [heron]\n", &[]);
    insta::assert_snapshot!(messages(&short), @"error toolgate.yaml:2:14 a canary has fewer than 8 characters in egress (a short string occurs in calls by chance; use a longer one)");
    assert!(!short.report.render().contains("heron"));
}
