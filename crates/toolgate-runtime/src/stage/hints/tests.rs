//! One test per rule: changes a single fact and checks that the value moves.

use super::*;

pub(super) fn contract() -> ToolContract {
    ToolContract { version: "1".to_owned(), risk: RiskLevel::High, idempotent: false, cacheable: false }
}

pub(super) static NO_FOLLOW_UPS: FollowUps = FollowUps { steps: Vec::new(), prepared: Vec::new() };

pub(super) fn facts(contract: &ToolContract) -> CallFacts<'_, '_> {
    CallFacts {
        tool: "find",
        is_visible: &|name| (name != "gone").then_some(name != "hidden"),
        may_destroy: &|name| name == "erase",
        source: ResultSource::Own,
        contract,
        deprecated: None,
        schema_fit: SchemaFit::Valid,
        attempts: 1,
        cached: None,
        cache_ttl: None,
        stats: StatsSnapshot { calls: 10, succeeded: 10, micros: 1_000_000 },
        next_tools: NextTools::default(),
        follow_ups: &NO_FOLLOW_UPS,
        preferences: None,
        related: Vec::new(),
        truncated: None,
        error: None,
        own_hints: OwnHints::default(),
    }
}

fn next_tools(often: &[(&str, u64)]) -> NextTools {
    NextTools {
        often: often.iter().map(|(tool, count)| ((*tool).to_owned(), *count)).collect(),
        total: often.iter().map(|(_, count)| count).sum(),
    }
}

fn error(code: ErrorCode, stage: Stage, outcome: ExecutionState) -> CallError {
    CallError::new(code, stage, "no").with_outcome(outcome)
}

#[test]
fn each_doubt_lowers_the_confidence() {
    let contract = contract();
    let base = || facts(&contract);
    let confident = |facts: CallFacts<'_, '_>| attach(&facts).confidence.get();
    let all = confident(base());
    let truncated = TruncatedResult { uri: None, shown: 1, total: 10 };
    let doubts: [(&str, CallFacts<'_, '_>); 8] = [
        ("a preview", CallFacts { truncated: Some(&truncated), ..base() }),
        ("a server", CallFacts { source: ResultSource::Trusted, ..base() }),
        ("any server", CallFacts { source: ResultSource::Untrusted, ..base() }),
        ("no schema", CallFacts { schema_fit: SchemaFit::NoSchema, ..base() }),
        ("a misfit", CallFacts { schema_fit: SchemaFit::Mismatch("x".to_owned()), ..base() }),
        ("retries", CallFacts { attempts: 3, ..base() }),
        ("age", CallFacts { cached: Some((Duration::from_secs(30), Duration::from_secs(60))), ..base() }),
        ("a bad record", CallFacts { stats: StatsSnapshot { calls: 10, succeeded: 5, micros: 0 }, ..base() }),
    ];
    for (doubt, facts) in doubts {
        let less = confident(facts);
        assert!(less < all && less > 0.0, "{doubt}: {less} of {all}");
    }
    let older = |age| {
        confident(CallFacts { cached: Some((Duration::from_secs(age), Duration::from_secs(60))), ..base() })
    };
    assert!(older(50) < older(10));
}

#[test]
fn errors_have_confidence_too() {
    let contract = contract();
    let confident = |error: &CallError, source| {
        attach(&CallFacts { error: Some(error), source, ..facts(&contract) }).confidence.get()
    };
    let before = error(ErrorCode::InvalidArguments, Stage::ValidateInput, ExecutionState::NotStarted);
    assert_eq!(confident(&before, ResultSource::Untrusted), 1.0, "the gateway detected the error itself");
    let unknown = error(ErrorCode::ProviderFailure, Stage::Invoke, ExecutionState::Unknown);
    let finished = error(ErrorCode::ToolExecutionError, Stage::Invoke, ExecutionState::Finished);
    assert!(confident(&unknown, ResultSource::Own) < confident(&finished, ResultSource::Own));
    assert!(confident(&finished, ResultSource::Untrusted) < confident(&finished, ResultSource::Own));
}

#[test]
fn reliability_grows_with_the_number_of_calls() {
    let of = |calls, good| reliability(StatsSnapshot { calls, succeeded: good, micros: 0 });
    assert!(of(0, 0) < of(1, 1) && of(1, 1) < of(10, 10) && of(10, 10) < of(1_000, 1_000));
    assert!(of(10, 5) < of(10, 10) && of(1_000, 500) < 0.5);
    assert!(of(1_000_000, 1_000_000) > 0.99 && of(1_000_000, 0) < 0.01);
}

#[test]
fn suggests_an_action_for_each_error() {
    let contract = contract();
    let next_action = |code, stage, outcome, contract: &ToolContract| {
        let error = error(code, stage, outcome);
        attach(&CallFacts { error: Some(&error), ..facts(contract) }).suggested_next_actions[0].action.clone()
    };
    let cases = [
        (ErrorCode::InvalidArguments, Stage::ValidateInput, ExecutionState::NotStarted, "correct-arguments"),
        (ErrorCode::ToolNotFound, Stage::Resolve, ExecutionState::NotStarted, "list-tools"),
        (ErrorCode::Unauthorized, Stage::Authorize, ExecutionState::NotStarted, "request-permission"),
        (ErrorCode::RateLimited, Stage::RateLimit, ExecutionState::NotStarted, "wait-and-retry"),
        (ErrorCode::Timeout, Stage::Invoke, ExecutionState::Unknown, "check-outcome"),
        (ErrorCode::ProviderFailure, Stage::Invoke, ExecutionState::NotStarted, "retry"),
        (ErrorCode::DeprecatedRemoved, Stage::Resolve, ExecutionState::NotStarted, "use-replacement"),
    ];
    for (code, stage, outcome, expected) in cases {
        assert_eq!(next_action(code, stage, outcome, &contract), expected, "{code:?}");
    }
    let mut late = error(ErrorCode::Timeout, Stage::Invoke, ExecutionState::Unknown);
    late.repeatable = true;
    assert_eq!(action_after_error(&late).action, "retry");
    let mut limited = error(ErrorCode::RateLimited, Stage::RateLimit, ExecutionState::NotStarted);
    limited.retry_after = Some(Duration::from_secs(600));
    let hints = attach(&CallFacts { error: Some(&limited), ..facts(&contract) });
    assert_eq!(hints.suggested_next_actions[0].data, Some(json!({ "retryAfterMs": 600_000 })));
    assert_eq!(hints.validity_period, ValidityPeriod::Short);
}

/// The suggested action never contradicts `retryable`.
#[test]
fn a_retry_is_suggested_if_and_only_if_it_is_safe() {
    use ExecutionState::{Finished, NotStarted, Unknown};
    for code in ErrorCode::ALL {
        for (outcome, repeatable, wait) in [NotStarted, Unknown, Finished].into_iter().flat_map(|outcome| {
            [
                (outcome, false, None),
                (outcome, true, None),
                (outcome, false, Some(9)),
                (outcome, true, Some(9)),
            ]
        }) {
            let mut error = error(code, Stage::Invoke, outcome);
            (error.repeatable, error.retry_after) = (repeatable, wait.map(Duration::from_secs));
            let action = action_after_error(&error);
            let suggests_retry = ["retry", "wait-and-retry"].contains(&action.action.as_str());
            assert_eq!(suggests_retry, error.is_retryable(), "{code:?} {outcome:?} {repeatable}: {action:?}");
            let description = action.description.as_deref().unwrap_or_default();
            assert_eq!(suggests_retry, description.contains("call again"), "{action:?}");
            assert_eq!(action.data.is_some(), suggests_retry && wait.is_some(), "{action:?}");
            if outcome != NotStarted && !repeatable {
                assert!(!suggests_retry, "{code:?} {outcome:?} may have had an effect");
            }
        }
    }
}

#[test]
fn suggests_the_usual_next_tools() {
    let contract = contract();
    let suggested = |contract: &ToolContract, next: &[(&str, u64)]| {
        let hints = attach(&CallFacts { next_tools: next_tools(next), ..facts(contract) });
        let share = |action: &NextAction| (action.action.clone(), action.confidence.map(Ratio::get));
        let suggested: Vec<_> = hints.suggested_next_actions.iter().map(share).collect();
        (format!("{suggested:?}"), hints.estimated_impact.benefit.get())
    };
    let next = [("pay", 6), ("look", 2)];
    insta::assert_snapshot!(suggested(&contract, &next).0, @r#"[("pay", Some(0.498)), ("look", Some(0.154))]"#);
    assert_eq!(suggested(&contract, &next).1, 0.498);
    // Only visible tools, none that may destroy something, and never the same change again.
    let next = [("hidden", 5), ("gone", 5), ("erase", 5), ("find", 5), ("look", 5)];
    insta::assert_snapshot!(suggested(&contract, &next).0, @r#"[("look", Some(0.137))]"#);
    let reads = ToolContract { risk: RiskLevel::Low, ..contract.clone() };
    insta::assert_snapshot!(suggested(&reads, &next).0, @r#"[("find", Some(0.137)), ("look", Some(0.137))]"#);
    // Slower tools take more effort.
    let effort = |micros| {
        let record = StatsSnapshot { calls: 10, succeeded: 10, micros };
        let next = next_tools(&[("pay", 1)]);
        attach(&CallFacts { stats: record, next_tools: next, ..facts(&contract) })
            .estimated_impact
            .effort
            .get()
    };
    assert!(effort(100_000_000) > effort(1_000_000));
}

#[test]
fn reports_warnings_risks_and_quality() {
    let contract = contract();
    let base = || facts(&contract);
    let deprecated = Deprecation {
        since: "1.0.0".to_owned(),
        replacement: "pay-card".parse().unwrap(),
        removal_date: "2027-01-01".to_owned(),
        announced: None,
    };
    let hints = attach(&CallFacts { deprecated: Some(&deprecated), ..base() });
    assert_eq!(hints.warnings[0].kind, WarningKind::Deprecation);
    assert_eq!(hints.suggested_next_actions[0].action, "pay-card");
    let hints = attach(&CallFacts {
        schema_fit: SchemaFit::Mismatch("`n` is missing".to_owned()),
        attempts: 2,
        ..base()
    });
    assert_eq!(
        hints.warnings.iter().map(|warning| warning.kind).collect::<Vec<_>>(),
        [WarningKind::Validation, WarningKind::Performance]
    );
    assert_eq!(hints.source_quality, SourceQuality::Low);
    assert_eq!(attach(&base()).risk_factors, []);
    let risks = |good| {
        attach(&CallFacts { stats: StatsSnapshot { calls: 20, succeeded: good, micros: 0 }, ..base() })
            .risk_factors
    };
    assert!(risks(8)[0].probability < risks(2)[0].probability);
    let unknown = error(ErrorCode::Timeout, Stage::Invoke, ExecutionState::Unknown);
    let hints = attach(&CallFacts { error: Some(&unknown), ..base() });
    assert_eq!(hints.risk_factors[0].severity, Severity::Critical);
    let qualities = [ResultSource::Own, ResultSource::Trusted, ResultSource::Untrusted]
        .map(|source| attach(&CallFacts { source, ..base() }).source_quality);
    assert_eq!(qualities, [SourceQuality::High, SourceQuality::Medium, SourceQuality::Low]);
    let new = StatsSnapshot::default();
    let hints = attach(&CallFacts {
        source: ResultSource::Untrusted,
        stats: new,
        schema_fit: SchemaFit::NoSchema,
        ..base()
    });
    assert_eq!(hints.source_quality, SourceQuality::Unknown);
    assert_eq!(hints.context_needed.len(), 2);
    assert_eq!(hints.assumptions.len(), 1);
    let period =
        |ttl| attach(&CallFacts { cache_ttl: Some(Duration::from_secs(ttl)), ..base() }).validity_period;
    assert_eq!((period(10), period(7_200)), (ValidityPeriod::Immediate, ValidityPeriod::Medium));
}

#[test]
fn reports_truncated_results() {
    let contract = contract();
    let hints =
        |truncated: &TruncatedResult| attach(&CallFacts { truncated: Some(truncated), ..facts(&contract) });
    let stored =
        hints(&TruncatedResult { uri: Some("toolgate://results/1".to_owned()), shown: 1, total: 10 });
    assert_eq!(stored.suggested_next_actions[0].action, "read_result");
    assert_eq!(stored.suggested_next_actions[0].data, Some(json!({ "uri": "toolgate://results/1" })));
    assert_eq!(stored.related_resources[0].id, "toolgate://results/1");
    assert_eq!(stored.warnings[0].message, "1 of 10 bytes of the result are shown");
    let lost = hints(&TruncatedResult { uri: None, shown: 9, total: 10 });
    assert!(lost.suggested_next_actions.is_empty() && lost.related_resources.is_empty());
    assert!(lost.confidence > stored.confidence, "more of it is shown");
    assert!(lost.warnings[0].severity < stored.warnings[0].severity, "a lost rest is worse");
}

#[test]
fn declared_steps_list_their_prerequisites() {
    let contract = contract();
    let follow_up = |action: &str, after: &[&str]| FollowUp {
        action: action.to_owned(),
        priority: Severity::High,
        description: None,
        after: after.iter().map(|&one| one.to_owned()).collect(),
    };
    let declared = FollowUps::from(vec![
        follow_up("review-card", &["get-card"]),
        follow_up("get-card", &[]),
        follow_up("hidden", &[]),
        follow_up("delete-card", &["hidden"]),
    ]);
    let next = next_tools(&[("get-card", 3), ("list-cards", 1)]);
    let base = || CallFacts { follow_ups: &declared, next_tools: next.clone(), ..facts(&contract) };
    let hints = attach(&base());
    let actions: Vec<_> = hints.suggested_next_actions.iter().map(|action| action.action.as_str()).collect();
    assert_eq!(
        actions,
        ["review-card", "get-card", "list-cards"],
        "declared steps come first, without duplicates"
    );
    assert_eq!(hints.suggested_next_actions[0].prerequisites, ["get-card"]);
    assert_eq!(hints.dependencies.len(), 1);
    assert_eq!(
        (&*hints.dependencies[0].action, &*hints.dependencies[0].depends_on[0]),
        ("review-card", "get-card")
    );
    let error = error(ErrorCode::Timeout, Stage::Invoke, ExecutionState::Unknown);
    let failed = attach(&CallFacts { error: Some(&error), ..base() });
    assert!(failed.dependencies.is_empty(), "failed calls have no next steps");
}

#[test]
fn scores_suggestions_against_preferences() {
    let contract = contract();
    let next = next_tools(&[("review", 1), ("delete", 1)]);
    let preferences = json!({ "learning": { "review": 0.8, "unheard-of": 1 }, "caution": { "delete": -5, "review": 0.05 } });
    let hints = attach(&CallFacts { next_tools: next, preferences: Some(&preferences), ..facts(&contract) });
    let alignments: Vec<_> = hints
        .preference_alignment
        .iter()
        .map(|one| (one.preference.as_str(), one.action.as_str(), one.alignment, one.score))
        .collect();
    assert_eq!(
        alignments,
        [
            ("learning", "review", Alignment::Strong, 0.8),
            ("caution", "review", Alignment::Neutral, 0.05),
            ("caution", "delete", Alignment::Conflict, -1.0),
        ]
    );
    assert!(attach(&facts(&contract)).preference_alignment.is_empty());
}

/// The short form has the actions of the full hints, without those from statistics.
#[test]
fn suggests_the_same_actions_in_short_form() {
    let contract = contract();
    let step = |action: &str, priority, description: Option<String>| FollowUp {
        action: action.to_owned(),
        priority,
        description,
        after: Vec::new(),
    };
    let declared = FollowUps::from(vec![
        step("later", Severity::Low, Some("ä".repeat(60))),
        step("hidden", Severity::Critical, None),
        step("first", Severity::Critical, None),
    ]);
    let stored = TruncatedResult { uri: Some("toolgate://results/1".to_owned()), shown: 1, total: 10 };
    let failed = error(ErrorCode::Timeout, Stage::Invoke, ExecutionState::Unknown);
    let usual = next_tools(&[("usual", 9)]);
    let cases = [
        CallFacts { next_tools: usual.clone(), ..facts(&contract) },
        CallFacts { follow_ups: &declared, truncated: Some(&stored), ..facts(&contract) },
        CallFacts { follow_ups: &declared, error: Some(&failed), ..facts(&contract) },
    ];
    let found = cases.map(|facts| {
        let short = suggested_actions(&facts);
        let full = attach(&CallFacts { next_tools: NextTools::default(), ..facts });
        let names = |actions: Vec<NextAction>| actions.into_iter().map(|one| one.action).collect::<Vec<_>>();
        assert_eq!(
            short.iter().map(|one| one.action.to_string()).collect::<Vec<_>>(),
            names(full.suggested_next_actions)
        );
        let members = short.iter().map(|one| format!("{{{}}}", one.json_members()));
        members.collect::<Vec<_>>().join(" ")
    });
    insta::assert_snapshot!(found[1..].join("\n"), @r#"
    {"next":"first","reason":"declared as a next step of this tool"} {"next":"read_result","reason":"read the rest of the result"} {"next":"later","reason":"ääääääääääääääääääääääääääääääääääääää…"}
    {"next":"check-outcome","reason":"check what the tool has done before anything else"}
    "#);
    assert_eq!(found[0], "", "statistics suggest nothing here");
}
