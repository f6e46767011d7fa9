//! Profiles, and the profiles of callers.

use crate::LoadOutcome;
use crate::test_support::{config, loaded, messages};

fn project(text: &str) -> LoadOutcome {
    loaded(&[("toolgate.yaml", text)], &[])
}

#[test]
fn list_is_short_for_include() {
    let short =
        project("profiles: {a: {tools: [echo, say_*], prompts: hello}}\ncode_execution: {enabled: true}\n");
    let long = project("profiles: {a: {tools: {include: [echo, say_*]}, prompts: {include: hello}}}\n");
    assert_eq!(config(&short)["profiles"], config(&long)["profiles"]);
    insta::assert_snapshot!(config(&short)["profiles"], @r#"{"all":{"a":{"name":"a","tools":{"include":["echo","say_*"]},"prompts":{"include":["hello"]},"resources":{},"exposure":"full","hints":"brief"}},"callers":{},"hints":"brief"}"#);
}

#[test]
fn callers_choose_profiles() {
    let text = "
profiles: {small: {tools: []}, desk: {}}
callers:
  - {id: ann, profile: desk}
  - {id: bob, profiles: [small, desk]}
  - {id: eve, profiles: small, profile: small}
";
    insta::assert_snapshot!(config(&project(text))["profiles"]["callers"], @r#"{"ann":{"default":"desk"},"bob":{"only":["small","desk"]},"eve":{"default":"small","only":["small"]}}"#);
}

#[test]
fn hints_come_from_the_toolbox_unless_the_profile_sets_them() {
    let hints = |text: &str| {
        let profiles = config(&project(text))["profiles"].clone();
        [&profiles["hints"], &profiles["all"]["a"]["hints"], &profiles["all"]["b"]["hints"]]
            .map(|one| one.to_string())
    };
    let text = "profiles: {a: {}, b: {hints: full}}\n";
    assert_eq!(hints(text), [r#""brief""#, r#""brief""#, r#""full""#]);
    assert_eq!(hints(&format!("{text}toolbox: {{hints: off}}\n")), [r#""off""#, r#""off""#, r#""full""#]);
    // The name of `full` in earlier versions.
    assert_eq!(hints("profiles: {a: {hints: text}, b: {hints: meta}}\n")[1..], [r#""text""#, r#""full""#]);
    let only = config(&project("toolbox: {hints: text}"));
    assert_eq!(only["profiles"]["hints"], "text");
    assert_eq!(only["origins"]["profiles.hints"], "toolgate.yaml:1:18");
    insta::assert_snapshot!(messages(&project("toolbox: {hints: ful}\n")), @"error toolgate.yaml:1:18 `ful` is not a hints mode in toolbox (did you mean `full`?)");
}

#[test]
fn reports_every_mistake_with_location() {
    let text = "
profiles:
  a b: {}
  messages: {}
  desk:
    tols: [echo]
    exposure: serch
    provider: opnai
    hints: txt
    tools:
      includes: [x]
      as:
        a: {name: one two}
        b: {name: one}
        c: {name: one}
        d: {nam: x}
callers:
  - {id: ann, profile: dsk}
  - {id: bob, profiles: []}
  - {id: eve, profiles: [desk], profile: other}
";
    insta::assert_snapshot!(messages(&project(text)), @"
    error toolgate.yaml:3:3 `a b` is not a profile's name (a profile's name has 1 to 64 letters, digits, `_` and `-`)
    error toolgate.yaml:4:3 `messages` is not a profile's name (`messages` is reserved for another endpoint)
    error toolgate.yaml:6:5 unknown key `tols` in profile `desk` (did you mean `tools`?)
    error toolgate.yaml:7:15 `serch` is not an exposure mode in profile `desk` (did you mean `search`?)
    error toolgate.yaml:8:15 `opnai` is not a model provider in profile `desk` (did you mean `openai`?)
    error toolgate.yaml:9:12 `txt` is not a hints mode in profile `desk` (did you mean `text`?)
    error toolgate.yaml:11:7 unknown key `includes` in selection (did you mean `include`?)
    warning toolgate.yaml:13:9 `a` in profile `desk` matches no tool (`toolgate tools list` shows them all)
    error toolgate.yaml:13:19 `one two` is not a tool's name in profile `desk` (a tool's name is made of letters, digits, `_`, `.` and `-`)
    warning toolgate.yaml:14:9 `b` in profile `desk` matches no tool (`toolgate tools list` shows them all)
    warning toolgate.yaml:15:9 `c` in profile `desk` matches no tool (`toolgate tools list` shows them all)
    error toolgate.yaml:15:19 two tools are shown as `one` in profile `desk` (give `c` another name)
    warning toolgate.yaml:16:9 `d` in profile `desk` matches no tool (`toolgate tools list` shows them all)
    error toolgate.yaml:16:13 unknown key `nam` in alias `d` (did you mean `name`?)
    error toolgate.yaml:18:24 caller `ann` uses an unknown profile: `dsk` (did you mean `desk`?)
    error toolgate.yaml:19:25 caller `bob` may use no profile (name one, or leave `profiles` out)
    error toolgate.yaml:20:42 `profile` of caller `eve` is none of its `profiles` (add `other` to `profiles`)
    error toolgate.yaml:20:42 caller `eve` uses an unknown profile: `other` (there is `desk`)
    ");
}

#[test]
fn warns_about_patterns_without_match() {
    let text = "
profiles:
  desk:
    tools: {include: [githb__search, github__*, \"*\", other__x], exclude: [anything], as: {gitub__a: {name: a}}}
toolbox: {mcps: [{name: github, command: x, mode: strict}]}
";
    insta::assert_snapshot!(messages(&project(text)), @"
    warning toolgate.yaml:4:23 `githb__search` in profile `desk` matches no tool (did you mean `github__search`?)
    warning toolgate.yaml:4:54 `other__x` in profile `desk` matches no tool (`toolgate tools list` shows them all)
    warning toolgate.yaml:4:91 `gitub__a` in profile `desk` matches no tool (did you mean `github__a`?)
    ");
    // Without a server, every possible tool is known.
    let text = "
profiles: {desk: {tools: [code_executon, code_*, wholly_unknown]}}
code_execution: {enabled: true}
";
    insta::assert_snapshot!(messages(&project(text)), @"
    warning toolgate.yaml:2:27 `code_executon` in profile `desk` matches no tool (did you mean `code_execution`?)
    warning toolgate.yaml:2:50 `wholly_unknown` in profile `desk` matches no tool (`toolgate tools list` shows them all)
    ");
}
