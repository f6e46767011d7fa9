//! Each rule: change one thing that happened, and see the value move.

use super::*;

fn contract() -> Contract {
    Contract { version: "1".to_owned(), risk: Risk::High, idempotent: false, cacheable: false }
}

fn facts(contract: &Contract) -> Facts<'_> {
    Facts {
        source: Source::Own,
        contract,
        deprecated: None,
        fit: Fit::Checked,
        attempts: 1,
        cached: None,
        cache_ttl: None,
        record: Record { calls: 10, good: 10, micros: 1_000_000 },
        next: Vec::new(),
        follow_ups: &[],
        preferences: None,
        related: Vec::new(),
        cut: None,
        error: None,
    }
}

fn error(code: ErrorCode, stage: Stage, outcome: Outcome) -> CallError {
    CallError::new(code, stage, "no").with_outcome(outcome)
}

#[test]
fn confidence_falls_with_every_doubt() {
    let contract = contract();
    let base = || facts(&contract);
    let confident = |facts: Facts<'_>| attach(&facts).confidence.get();
    let all = confident(base());
    let cut = Cut { uri: None, shown: 1, of: 10 };
    let doubts: [(&str, Facts<'_>); 8] = [
        ("a preview", Facts { cut: Some(&cut), ..base() }),
        ("a server", Facts { source: Source::Trusted, ..base() }),
        ("any server", Facts { source: Source::Untrusted, ..base() }),
        ("no schema", Facts { fit: Fit::Unchecked, ..base() }),
        ("a misfit", Facts { fit: Fit::Misfit("x".to_owned()), ..base() }),
        ("retries", Facts { attempts: 3, ..base() }),
        ("age", Facts { cached: Some((Duration::from_secs(30), Duration::from_secs(60))), ..base() }),
        ("a bad record", Facts { record: Record { calls: 10, good: 5, micros: 0 }, ..base() }),
    ];
    for (doubt, facts) in doubts {
        let less = confident(facts);
        assert!(less < all && less > 0.0, "{doubt}: {less} of {all}");
    }
    let older = |age| {
        confident(Facts { cached: Some((Duration::from_secs(age), Duration::from_secs(60))), ..base() })
    };
    assert!(older(50) < older(10));
}

#[test]
fn confidence_in_an_error() {
    let contract = contract();
    let confident = |error: &CallError, source| {
        attach(&Facts { error: Some(error), source, ..facts(&contract) }).confidence.get()
    };
    let before = error(ErrorCode::InvalidArguments, Stage::ValidateInput, Outcome::NotStarted);
    assert_eq!(confident(&before, Source::Untrusted), 1.0, "we found out ourselves");
    let unknown = error(ErrorCode::ProviderFailure, Stage::Invoke, Outcome::Unknown);
    let finished = error(ErrorCode::ToolExecutionError, Stage::Invoke, Outcome::Finished);
    assert!(confident(&unknown, Source::Own) < confident(&finished, Source::Own));
    assert!(confident(&finished, Source::Untrusted) < confident(&finished, Source::Own));
}

#[test]
fn reliability_takes_calls_and_not_one_lucky_one() {
    let of = |calls, good| reliability(Record { calls, good, micros: 0 });
    assert!(of(0, 0) < of(1, 1) && of(1, 1) < of(10, 10) && of(10, 10) < of(1_000, 1_000));
    assert!(of(10, 5) < of(10, 10) && of(1_000, 500) < 0.5);
    assert!(of(1_000_000, 1_000_000) > 0.99 && of(1_000_000, 0) < 0.01);
}

#[test]
fn the_way_on_follows_the_error() {
    let contract = contract();
    let way = |code, stage, outcome, contract: &Contract| {
        let error = error(code, stage, outcome);
        attach(&Facts { error: Some(&error), ..facts(contract) }).suggested_next_actions[0].action.clone()
    };
    let ways = [
        (ErrorCode::InvalidArguments, Stage::ValidateInput, Outcome::NotStarted, "correct-arguments"),
        (ErrorCode::ToolNotFound, Stage::Resolve, Outcome::NotStarted, "list-tools"),
        (ErrorCode::Unauthorized, Stage::Authorize, Outcome::NotStarted, "request-permission"),
        (ErrorCode::RateLimited, Stage::RateLimit, Outcome::NotStarted, "wait-and-retry"),
        (ErrorCode::Timeout, Stage::Invoke, Outcome::Unknown, "check-outcome"),
        (ErrorCode::ProviderFailure, Stage::Invoke, Outcome::NotStarted, "retry"),
        (ErrorCode::DeprecatedRemoved, Stage::Resolve, Outcome::NotStarted, "use-replacement"),
    ];
    for (code, stage, outcome, expected) in ways {
        assert_eq!(way(code, stage, outcome, &contract), expected, "{code:?}");
    }
    let repeatable = Contract { idempotent: true, ..contract.clone() };
    assert_eq!(way(ErrorCode::Timeout, Stage::Invoke, Outcome::Unknown, &repeatable), "retry");
    let mut limited = error(ErrorCode::RateLimited, Stage::RateLimit, Outcome::NotStarted);
    limited.retry_after = Some(Duration::from_secs(600));
    let hints = attach(&Facts { error: Some(&limited), ..facts(&contract) });
    assert_eq!(hints.suggested_next_actions[0].data, Some(json!({ "retryAfterMs": 600_000 })));
    assert_eq!(hints.validity_period, ValidityPeriod::Short);
}

#[test]
fn what_followed_before_is_suggested() {
    let contract = contract();
    let next = vec![("pay".to_owned(), 6), ("look".to_owned(), 2)];
    let hints = attach(&Facts { next, ..facts(&contract) });
    let suggested: Vec<_> = hints
        .suggested_next_actions
        .iter()
        .map(|action| (action.action.as_str(), action.confidence.map(Share::get)))
        .collect();
    assert_eq!(suggested, [("pay", Some(0.75)), ("look", Some(0.25))]);
    assert_eq!(hints.estimated_impact.benefit.get(), 0.75);
    // A tool that takes longer is more effort.
    let effort = |micros| {
        let record = Record { calls: 10, good: 10, micros };
        let next = vec![("pay".to_owned(), 1)];
        attach(&Facts { record, next, ..facts(&contract) }).estimated_impact.effort.get()
    };
    assert!(effort(100_000_000) > effort(1_000_000));
}

#[test]
fn warnings_risks_and_the_rest() {
    let contract = contract();
    let base = || facts(&contract);
    let deprecated = Deprecation {
        since: "1.0.0".to_owned(),
        replacement: "pay-card".parse().unwrap(),
        removal_date: "2027-01-01".to_owned(),
    };
    let hints = attach(&Facts { deprecated: Some(&deprecated), ..base() });
    assert_eq!(hints.warnings[0].kind, WarningKind::Deprecation);
    assert_eq!(hints.suggested_next_actions[0].action, "pay-card");
    let hints = attach(&Facts { fit: Fit::Misfit("`n` is missing".to_owned()), attempts: 2, ..base() });
    assert_eq!(
        hints.warnings.iter().map(|warning| warning.kind).collect::<Vec<_>>(),
        [WarningKind::Validation, WarningKind::Performance]
    );
    assert_eq!(hints.source_quality, SourceQuality::Low);
    assert_eq!(attach(&base()).risk_factors, []);
    let risks =
        |good| attach(&Facts { record: Record { calls: 20, good, micros: 0 }, ..base() }).risk_factors;
    assert!(risks(8)[0].probability < risks(2)[0].probability);
    let unknown = error(ErrorCode::Timeout, Stage::Invoke, Outcome::Unknown);
    let hints = attach(&Facts { error: Some(&unknown), ..base() });
    assert_eq!(hints.risk_factors[0].severity, Severity::Critical);
    let qualities = [Source::Own, Source::Trusted, Source::Untrusted]
        .map(|source| attach(&Facts { source, ..base() }).source_quality);
    assert_eq!(qualities, [SourceQuality::High, SourceQuality::Medium, SourceQuality::Low]);
    let new = Record::default();
    let hints = attach(&Facts { source: Source::Untrusted, record: new, fit: Fit::Unchecked, ..base() });
    assert_eq!(hints.source_quality, SourceQuality::Unknown);
    assert_eq!(hints.context_needed.len(), 2);
    assert_eq!(hints.assumptions.len(), 1);
    let period = |ttl| attach(&Facts { cache_ttl: Some(Duration::from_secs(ttl)), ..base() }).validity_period;
    assert_eq!((period(10), period(7_200)), (ValidityPeriod::Immediate, ValidityPeriod::Medium));
}

#[test]
fn what_is_not_shown_is_told() {
    let contract = contract();
    let hints = |cut: &Cut| attach(&Facts { cut: Some(cut), ..facts(&contract) });
    let kept = hints(&Cut { uri: Some("toolgate://results/1".to_owned()), shown: 1, of: 10 });
    assert_eq!(kept.suggested_next_actions[0].action, "read_result");
    assert_eq!(kept.suggested_next_actions[0].data, Some(json!({ "uri": "toolgate://results/1" })));
    assert_eq!(kept.related_resources[0].id, "toolgate://results/1");
    assert_eq!(kept.warnings[0].message, "1 of 10 bytes of the result are shown");
    let lost = hints(&Cut { uri: None, shown: 9, of: 10 });
    assert!(lost.suggested_next_actions.is_empty() && lost.related_resources.is_empty());
    assert!(lost.confidence > kept.confidence, "more of it is shown");
    assert!(lost.warnings[0].severity < kept.warnings[0].severity, "what is lost is worse");
}

#[test]
fn declared_steps_come_with_what_they_wait_for() {
    let contract = contract();
    let follow_up = |action: &str, after: &[&str]| FollowUp {
        action: action.to_owned(),
        priority: Severity::High,
        description: None,
        after: after.iter().map(|&one| one.to_owned()).collect(),
    };
    let declared = [follow_up("review-card", &["get-card"]), follow_up("get-card", &[])];
    let next = vec![("get-card".to_owned(), 3), ("list-cards".to_owned(), 1)];
    let base = || Facts { follow_ups: &declared, next: next.clone(), ..facts(&contract) };
    let hints = attach(&base());
    let actions: Vec<_> = hints.suggested_next_actions.iter().map(|action| action.action.as_str()).collect();
    assert_eq!(actions, ["review-card", "get-card", "list-cards"], "each once, what is declared first");
    assert_eq!(hints.suggested_next_actions[0].prerequisites, ["get-card"]);
    assert_eq!(hints.dependencies.len(), 1);
    assert_eq!(
        (&*hints.dependencies[0].action, &*hints.dependencies[0].depends_on[0]),
        ("review-card", "get-card")
    );
    let error = error(ErrorCode::Timeout, Stage::Invoke, Outcome::Unknown);
    let failed = attach(&Facts { error: Some(&error), ..base() });
    assert!(failed.dependencies.is_empty(), "nothing follows what failed");
}

#[test]
fn suggestions_are_held_against_preferences() {
    let contract = contract();
    let next = vec![("review".to_owned(), 1), ("delete".to_owned(), 1)];
    let preferences = json!({ "learning": { "review": 0.8, "unheard-of": 1 }, "caution": { "delete": -5, "review": 0.05 } });
    let hints = attach(&Facts { next, preferences: Some(&preferences), ..facts(&contract) });
    let seen: Vec<_> = hints
        .preference_alignment
        .iter()
        .map(|one| (one.preference.as_str(), one.action.as_str(), one.alignment, one.score))
        .collect();
    assert_eq!(
        seen,
        [
            ("learning", "review", Alignment::Strong, 0.8),
            ("caution", "review", Alignment::Neutral, 0.05),
            ("caution", "delete", Alignment::Conflict, -1.0),
        ]
    );
    assert!(attach(&facts(&contract)).preference_alignment.is_empty());
}
