//! `toolgate tools new --lang rust`: the created files, and no files after an error.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::program::Program;

fn sdk() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..").to_owned()
}

#[test]
fn creates_a_rust_tool() {
    let program = Program::new(&[]);
    assert_eq!(program.run("init").code, 0);
    let description = "Counts the words of a text. Use it before sending one. Returns their number.";
    let run = program.run_list(&[
        "tools",
        "new",
        "count-words",
        "--lang",
        "rust",
        "--sdk",
        &sdk(),
        "--description",
        description,
    ]);
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.starts_with("added MCP server count-words in mcp.json"), "{run}");
    assert!(run.stderr.contains("wrote tools/count-words\n"), "{run}");
    assert!(run.stderr.contains("`cargo build --manifest-path tools/count-words/Cargo.toml`"), "{run}");
    let library = program.read("tools/count-words/src/lib.rs");
    assert!(library.contains(&format!("/// {description}\n#[tool(")), "{library}");
    assert!(library.contains("pub async fn count_words(params: Params)"), "{library}");
    let texts: Vec<_> = program.files().into_values().collect();
    assert!(!texts.iter().any(|text| String::from_utf8_lossy(text).contains("say-hello")));
    let manifest = program.read("tools/count-words/Cargo.toml");
    assert!(
        manifest.contains("name = \"count-words\"") && manifest.contains("/crates/toolgate-sdk\" }"),
        "{manifest}"
    );
    assert!(program.read("mcp.json").contains("\"./tools/count-words/target/debug/count-words\""));
    assert_eq!(program.run("check").code, 0);
    // The hint is to build it first.
    let run = program.run("tools call count-words text=hello");
    assert_ne!(run.code, 0, "{run}");
    assert!(run.stderr.contains("tools/count-words/target/debug/count-words"), "{run}");
}

#[test]
fn errors_leave_no_files() {
    let program = Program::new(&[]);
    program.run("init");
    program.write("tools/get-card/mine.txt", "mine");
    let before = program.files();
    let sdk = sdk();
    for (arguments, expected) in [
        (format!("count --lang rust --sdk {sdk}"), "invalid tool name `count`"),
        (format!("2-words --lang rust --sdk {sdk}"), "invalid tool name `2-words`"),
        ("count-words --lang rust".to_owned(), "toolgate-sdk is not on crates.io: its location is needed"),
        ("count-words --lang rust --sdk nowhere".to_owned(), "there is no toolgate-sdk in `nowhere`"),
        (format!("count-words --lang rust --sdk {sdk} --description short"), "the description is too short"),
        (format!("get-card --lang rust --sdk {sdk}"), "tools/get-card was not written"),
        (format!("count-words --lang rust --sdk {sdk} --if-revision 0000000000000000"), ""),
    ] {
        let run = program.run(&format!("tools new {arguments}"));
        assert_eq!(run.code, 1, "{arguments}: {run}");
        assert!(run.stderr.contains(expected), "{arguments}: {run}");
    }
    assert_eq!(program.files(), before);
    // A git repository is accepted as well, and so is the variable.
    let from = Program::new(&[]).with("TOOLGATE_SDK", "https://example.com/toolgate.git");
    from.run("init");
    let run = from.run("tools new count-words --lang rust");
    assert_eq!(run.code, 0, "{run}");
    assert!(
        from.read("tools/count-words/Cargo.toml").contains("{ git = \"https://example.com/toolgate.git\" }")
    );
}

/// A first tool builds in less than a minute: without the feature `http`, the SDK has no HTTP, TLS or OAuth library.
#[test]
#[expect(clippy::disallowed_methods, reason = "cargo knows the dependencies")]
fn the_sdk_has_few_dependencies() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = |features: &str| -> BTreeSet<String> {
        let arguments = [
            "tree",
            "--offline",
            "-p",
            "toolgate-sdk",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--features",
            features,
        ];
        let run = Command::new(&cargo).args(arguments).current_dir(sdk()).output().expect("cargo starts");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    };
    let (small, with_http) = (tree(""), tree("http"));
    assert!(small.len() <= 145, "{} crates: {small:?}", small.len());
    for large in ["hyper", "reqwest", "rustls", "aws-lc-rs", "oauth2", "tokio-tungstenite", "toolgate-http"] {
        assert!(!small.contains(large), "{large}");
    }
    assert!(with_http.contains("hyper") && !with_http.contains("reqwest"));
}
