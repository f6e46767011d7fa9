//! Tests of the redaction, and that the fast path gives the same result as the thorough one.

use proptest::prelude::*;

use super::*;

/// Redacts on the fast and on the thorough path; both must agree.
fn redacted(json: &str) -> String {
    let known = vec![Secret::new("hun\"ter\n22"), Secret::new("98765432")];
    let patterns = || vec!["ACME-[0-9]+".parse().unwrap()];
    let more = KnownSecrets::new(&[Secret::new("swordfish")]);
    let mut out = String::new();
    let redactor = Redactor::new(known.clone(), patterns());
    redactor.write(&more, &mut out, |line, out| line.json(json, &SecretFields::default(), out));
    let all = known.into_iter().chain([Secret::new("swordfish")]).collect();
    assert_eq!(Redactor::new(all, patterns()).json(json), out);
    out
}

fn check(json: &str, expected: &str) {
    assert_eq!(redacted(json), expected);
}

#[test]
fn values_under_secret_names_are_masked() {
    check(r#"{"password": "abc", "mode": 1}"#, r#"{"password":"***","mode":1}"#);
    check(r#"{"pass\u0077ord": "abc"}"#, r#"{"pass\u0077ord":"***"}"#);
    check(
        r#"{"api_key": ["a", {"b": "c"}, 5], "x": ["a"]}"#,
        r#"{"api_key":["***",{"b":"***"},"***"],"x":["a"]}"#,
    );
    check(
        r#"{"token": 12345, "secret": null, "max_tokens": 5}"#,
        r#"{"token":"***","secret":null,"max_tokens":5}"#,
    );
    check(r#"["--token", "abc", "--verbose", "x", 7]"#, r#"["--token","***","--verbose","x",7]"#);
    check(r#"["\u002d-token", "abc"]"#, r#"["\u002d-token","***"]"#);
    check(r#"["--token=abc123", "x"]"#, r#"["--token=***","x"]"#);
    check(
        r#"[{"name": "Authorization", "value": "abc"}, {"name": "Accept", "value": "abc"}]"#,
        r#"[{"name":"Authorization","value":"***"},{"name":"Accept","value":"abc"}]"#,
    );
    check(r#"{"key": "color", "value": "red"}"#, r#"{"key":"color","value":"red"}"#);
}

#[test]
fn known_secrets_and_shapes_are_masked_anywhere() {
    check(r#"{"a": "saw hun\"ter\n22"}"#, r#"{"a":"saw ***"}"#);
    check(r#"{"a": "saw \u0068un\u0022ter\n22"}"#, r#"{"a":"saw ***"}"#);
    check(r#"{"a": 98765432, "98765432": 1}"#, r#"{"a":"***","***":1}"#);
    check(r#""Bearer abcdefghij12""#, r#""Bearer ***""#);
    check(r#"{"url": "https://ann:pw@x.test/"}"#, r#"{"url":"https://ann:***@x.test/"}"#);
    check(r#"["AKIAABCDEFGHIJKLMNOP"]"#, r#"["***"]"#);
}

#[test]
fn configured_patterns_and_call_secrets_are_masked() {
    check(r#"["ACME-1", "x ACME-22.", {"ACME-3": 1}, "ACME-"]"#, r#"["***","x ***.",{"***":1},"ACME-"]"#);
    check(r#"{"a": "a swordfish"}"#, r#"{"a":"a ***"}"#);
}

#[test]
fn known_secrets_are_masked_in_urls_and_nested_json() {
    check(r#""https://x.test/?q=hun%22ter%0A22&a=1""#, r#""https://x.test/?q=***&a=1""#);
    check(r#""{\"a\":\"hun\\\"ter\\n22\"}""#, r#""{\"a\":\"***\"}""#);
}

#[test]
fn known_secrets_are_masked_in_every_encoding() {
    // `swordfish` in base64, at each alignment; in hexadecimal; percent-encoded; as a number.
    check(
        r#"["c3dvcmRmaXNo", "eHN3b3JkZmlzaHg=", "eHhzd29yZGZpc2h4eA=="]"#,
        r#"["***","eH***Hg=","eHh***h4eA=="]"#,
    );
    check(r#"["73776f726466697368", "73776F726466697368"]"#, r#"["***","***"]"#);
    check(r#"["s%77ordfi%73h", "%73%77%6f%72%64%66%69%73%68!"]"#, r#"["***","***!"]"#);
    check(r#"{"a": 3938373635343332}"#, r#"{"a":"***"}"#);
    check(r#"["hun%22ter%0a22", "sword%fish", "100% sword"]"#, r#"["***","sword%fish","100% sword"]"#);
}

#[test]
fn private_keys_are_masked_over_lines() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";
    let key = format!(r"-----BEGIN PRIVATE KEY-----\n{line}\n{line}\n-----END PRIVATE KEY-----");
    check(&format!(r#"{{"a":"b\n{key}\nc"}}"#), r#"{"a":"b\n***\nc"}"#);
}

#[test]
fn finds_values_under_secret_names() {
    let named = |json: &str| -> Vec<String> {
        named_secrets(json).iter().map(|secret| secret.expose().to_owned()).collect()
    };
    assert_eq!(
        named(r#"{"password":"sword fish","x":"y","api_key":["k1\n23",{"b":1234567}],"token":true}"#),
        ["sword fish", "k1\n23", "1234567"]
    );
    assert_eq!(
        named(r#"[{"name":"Authorization","value":"abc123"},"--token","def456"]"#),
        ["abc123", "def456"]
    );
    assert_eq!(named(r#"{"pass\u0077ord":"hunter2"}"#), ["hunter2"]);
    assert_eq!(named(r#"{"token":"none","password":"abc","secret":"","token_ttl":3600}"#), [""; 0]);
    assert_eq!(named(r#"{"query":"a few words","password":"#), [""; 0]);
}

#[test]
fn schema_secrets_are_masked() {
    let schema = serde_json::json!({ "properties": {
        "a": { "x-secret": true },
        "line\nbreak": { "x-secret": true },
        "list": { "items": { "properties": { "pin": { "format": "password" } } } },
    } });
    let fields = SecretFields::from_schema(&schema);
    let json = r#"{"a":{"b":["x",1,true,null,""]},"list":[{"pin":12,"mode":12},{"p\u0069n":"z"}],"b":"x","line\nbreak":"x"}"#;
    let mut out = String::new();
    Redactor::new(Vec::new(), Vec::new())
        .write(&KnownSecrets::default(), &mut out, |line, out| line.json(json, &fields, out));
    let expected = r#"{"a":{"b":["***","***",true,null,""]},"list":[{"pin":"***","mode":12},{"p\u0069n":"***"}],"b":"x","line\nbreak":"***"}"#;
    assert_eq!(out, expected);
    let whole = SecretFields::from_schema(&serde_json::json!({ "writeOnly": true }));
    for (json, expected) in [(r#""x""#, r#""***""#), ("[1]", r#"["***"]"#)] {
        let mut out = String::new();
        Redactor::new(Vec::new(), Vec::new())
            .write(&KnownSecrets::default(), &mut out, |line, out| line.json(json, &whole, out));
        assert_eq!(out, expected);
    }
}

#[test]
fn other_values_are_unchanged() {
    for json in
        [r#"{"a":[1,-2.50e3,true,null,{}],"b":"ä\n\ud800"}"#, "[]", "5", r#""""#, r#"{"password":""}"#]
    {
        check(json, json);
    }
    check("{ \"a\" :\n 1 }", r#"{"a":1}"#);
}

#[test]
fn invalid_json_is_written_as_a_string() {
    for (text, expected) in [
        ("{", r#""{""#),
        ("[}", r#""[}""#),
        ("1 2", r#""1 2""#),
        ("", r#""""#),
        ("\"a", r#""\"a""#),
        ("nul", r#""nul""#),
        ("password: abc1", r#""password: ***""#),
    ] {
        check(text, expected);
    }
}

const SECRETS: [&str; 4] = ["hun\"ter\\22", "98765432", "line\nbreak", "grüße-an-alle"];

/// Generates values with secrets in their strings, names and numbers.
fn value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let text = prop_oneof![
        "[a-z:= ]{0,8}",
        (0..SECRETS.len(), "[a-z\"\\\\ ]{0,3}", "[a-z\"\n ]{0,3}")
            .prop_map(|(at, before, after)| format!("{before}{}{after}", SECRETS[at])),
        Just("ACME-77".to_owned()),
    ];
    let leaf = prop_oneof![
        text.clone().prop_map(Value::from),
        Just(Value::from(98_765_432)),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..4)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

/// Counts arrays and leaves; object members may coincide once their names are masked.
fn parts(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(parts).sum::<usize>(),
        serde_json::Value::Object(_) => 1,
        _ => 1,
    }
}

fn texts(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Array(items) => items.iter().flat_map(texts).collect(),
        serde_json::Value::Object(members) => {
            members.iter().flat_map(|(name, value)| [vec![name.clone()], texts(value)].concat()).collect()
        }
        other => vec![other.as_str().map_or_else(|| other.to_string(), str::to_owned)],
    }
}

proptest! {
    /// The fast path agrees with the thorough one.
    #[test]
    fn short_strings_are_masked_like_long_ones(text in "(Basic |bearer |AKIA|sk|key|token|[a-z0-9 :=_-]){0,20}") {
        let mut out = String::new();
        Redactor::new(Vec::new(), Vec::new()).write(&KnownSecrets::default(), &mut out, |line, out| line.write_string(&text, out));
        prop_assert_eq!(out, serde_json::to_string(&mask_all(&text, SecretSources::default())).unwrap());
    }

    /// Wherever secrets are in a value, the line contains none and is JSON of the same shape.
    #[test]
    fn no_secret_is_written(value in value()) {
        let mut out = String::new();
        let known = SECRETS.map(Secret::new).to_vec();
        let patterns = vec!["ACME-[0-9]+".parse().unwrap()];
        let json = value.to_string();
        out.push_str(&Redactor::new(known, patterns).json(&json));
        let parsed: serde_json::Value = serde_json::from_str(&out).unwrap();
        prop_assert_eq!(parts(&parsed), parts(&value), "{}", out);
        for text in texts(&parsed) {
            for secret in SECRETS.into_iter().chain(["ACME-77"]) {
                prop_assert!(!text.contains(secret), "{} in {}", secret, out);
            }
        }
    }

    #[test]
    fn result_is_one_line_of_json(text in "([\\[\\]{}\",:0-9 a\\\\\n]|token|--key|\"a\":|\\PC){0,40}") {
        let out = redacted(&text);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok() || serde_json::from_str::<serde_json::Value>(&text).is_err(), "{}", out);
        prop_assert!(!out.contains('\n'));
    }
}

/// A string with an invalid escape is taken literally as a whole.
#[test]
fn invalid_escape_is_taken_literally() {
    let out = Redactor::new(Vec::new(), Vec::new()).json(r#"["a\x\npassword: abc1", "a\npassword: abc1"]"#);
    assert_eq!(out, r#"["a\\x\\npassword: ***","a\npassword: ***"]"#);
}

/// Parts of strings: secrets, names that make a value secret, and characters with several encodings.
const PARTS: [&str; 46] = [
    "hun\"ter\\22",
    "98765432",
    "line\nbreak",
    "grüße-an-alle",
    "a/b/c/d",
    "hun",
    "ter",
    "\\22",
    "line",
    "break",
    "password",
    "token: ",
    "key",
    "=",
    ":",
    "Bearer ",
    "abcdefghij",
    "sk-abcdefghijklmnop",
    "AKIA",
    "ABCDEFGHIJKLMNOP",
    "--",
    "-",
    "://ann:pw@x",
    "/",
    "\"",
    "\\",
    "\n",
    "\t",
    "\u{8}",
    "\u{1f}",
    " ",
    "x",
    "ä",
    "😀",
    "name",
    "value",
    "some words of a longer text, ",
    "%22",
    "null",
    "",
    "OTg3NjU0MzI=",
    "3938373635343332",
    "%39876543%32",
    "-----BEGIN PRIVATE KEY-----",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "-----END PRIVATE KEY-----",
];
const PLANTED: [&str; 5] = ["hun\"ter\\22", "98765432", "line\nbreak", "grüße-an-alle", "a/b/c/d"];

/// Appends a JSON string, choosing one of the possible encodings for every character.
fn spell(text: &str, random: &mut fastrand::Rng, out: &mut String) {
    let odd = random.u8(..) < 40;
    out.push('"');
    for c in text.chars() {
        let must = c < ' ' || matches!(c, '"' | '\\');
        if odd && random.u8(..) < 60 || must && random.u8(..) < 8 {
            for unit in c.encode_utf16(&mut [0; 2]) {
                *out += &format!("\\u{unit:04x}");
            }
        } else if c == '/' && odd {
            out.push_str("\\/");
        } else if c < ' ' && odd && random.bool() {
            out.push(c);
        } else {
            let quoted = serde_json::to_string(&c).unwrap();
            out.push_str(&quoted[1..quoted.len() - 1]);
        }
    }
    out.push('"');
}

fn text(random: &mut fastrand::Rng) -> String {
    (0..random.usize(..7)).map(|_| PARTS[random.usize(..PARTS.len())]).collect()
}

/// Appends a value, with or without whitespace between its parts.
fn write_value(depth: usize, random: &mut fastrand::Rng, out: &mut String) {
    let space = if random.u8(..) < 30 { " " } else { "" };
    match random.usize(..if depth == 0 { 4 } else { 8 }) {
        0 => out.push_str(["true", "null", "98765432", "1.5e3", "0", "1987654321"][random.usize(..6)]),
        1..4 => spell(&text(random), random, out),
        kind => {
            let object = kind % 2 == 0;
            out.push(if object { '{' } else { '[' });
            for index in 0..random.usize(..4) {
                out.push_str(if index > 0 { "," } else { space });
                if object {
                    spell(&text(random), random, out);
                    out.push(':');
                    out.push_str(space);
                }
                write_value(depth - 1, random, out);
            }
            out.push(if object { '}' } else { ']' });
        }
    }
}

#[test]
fn only_plain_values_are_copied() {
    let copy = |json: &str| {
        let mut out = "before".to_owned();
        let copied = copy_plain(json, &mut out);
        let copy = out.strip_prefix("before").unwrap().to_owned();
        assert!(copied || copy.is_empty(), "{copy}");
        copied.then_some(copy)
    };
    let plain = " {\"text\" : \"a, b\" ,\"n\":[1, -2.5e3,true,null,{}]}\n";
    assert_eq!(copy(plain).as_deref(), Some(r#"{"text":"a, b","n":[1,-2.5e3,true,null,{}]}"#));
    for other in [
        r#"{"password":"x"}"#,
        r#"{"name":"Authorization","value":"x"}"#,
        r#"["--token","x"]"#,
        r#"{"text":"sk-abcdefghijklmnop1234"}"#,
        r#"{"text":"a\n"}"#,
        r#"{"p\u0061ssword":1}"#,
        "{\"text\":\"a\u{1}\"}",
        "{} {}",
        "[1}",
        "[01]",
        r#"{"a":"b"#,
        "",
    ] {
        assert_eq!(copy(other), None, "{other}");
    }
    assert!(copy(&"[".repeat(63)).is_none() && copy(&("[".repeat(63) + &"]".repeat(63))).is_some());
    assert!(copy(&("[".repeat(64) + &"]".repeat(64))).is_none());
}

/// The fast path writes the same bytes as the thorough one, and no encoding gets a secret past either.
#[test]
fn fast_path_agrees_with_thorough_path() {
    let known: Vec<_> = PLANTED.map(Secret::new).into();
    let redactors = [
        Redactor::new(known.clone(), Vec::new()),
        Redactor::new(known, vec!["wo[a-z]+s".parse().unwrap()]),
        Redactor::new(Vec::new(), Vec::new()),
    ];
    let mut random = fastrand::Rng::with_seed(11);
    let (mut masked, mut same) = (0, 0);
    for case in 0..120_000 {
        let redactor = &redactors[case % redactors.len()];
        let mut json = String::new();
        write_value(2, &mut random, &mut json);
        let quick = redactor.json(&json);
        let mut careful = String::new();
        redactor.call_redaction(&redactor.known.read(), &KnownSecrets::default(), false).json(
            &json,
            &SecretFields::default(),
            &mut careful,
        );
        assert_eq!(quick, careful, "{json}");
        masked += usize::from(quick.contains(MASK));
        same += usize::from(quick == json);
        if redactor.known.read().is_empty() {
            continue;
        }
        // A parser drops duplicate members, so the line itself is checked too.
        let parsed: serde_json::Value = serde_json::from_str(&quick).unwrap();
        for said in texts(&parsed).into_iter().chain([quick]) {
            for secret in PLANTED {
                assert!(!said.contains(secret), "{secret} in {said}");
            }
        }
    }
    assert!(masked > 20_000 && same > 20_000, "{masked} masked, {same} as they came");
}
