//! `examples/team`: five questions, an approval, a blocked flow of information, and its README, typed line by line.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::mcp_client::{McpSession, request_message};
use crate::support::program::Program;
use crate::support::typed_page::{follow, free_port};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/team")
}

/// Copies the files of the example that are part of the repository.
fn copy(from: &Path, program: &Program, prefix: &str) {
    for entry in fs_err::read_dir(from).expect("it is in the repository").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        let path = format!("{prefix}{name}");
        // A developer may have run the example.
        if [".toolgate", "toolgate.lock", "__pycache__"].contains(&name.as_str()) {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), program, &format!("{path}/"));
        } else {
            program.write(&path, fs_err::read(entry.path()).expect("it is in the repository"));
        }
    }
}

fn example() -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    copy(&folder(), &program, "");
    program.with("SHOP_PORT", &free_port().to_string())
}

/// Creates a key for a caller of the example.
fn key_of(program: &Program, caller: &str) -> String {
    let run = program.run(&format!("callers keys add {caller} --json"));
    run.json()["key"].as_str().unwrap_or_else(|| panic!("no key: {run}")).to_owned()
}

#[test]
fn answers_five_questions_without_a_model() {
    let program = example();
    let questions = [
        ("which frame size fits a height of 178?", "frame_size", json!({ "frame_cm": 54 })),
        ("show order 1003", "get_order", json!({ "customer": "Omar Diaz", "total": 1190 })),
        ("read message 2", "read_message", json!({ "from": "omar@example.com" })),
        ("which city bikes do you have?", "find_bikes", json!({})),
        ("what is 640 with a discount of 10 percent?", "price_after_discount", json!({ "price": 576.0 })),
    ];
    for (question, tool, expected) in questions {
        let run = program.run_list(&["run", question]);
        assert_eq!(run.code, 0, "{question}: {run}");
        assert!(run.stderr.contains(&format!("[1] {tool} ")), "{question}: {run}");
        // A note about an untrusted source may follow the result.
        let result = run.stdout.lines().next().unwrap_or_default();
        let result: Json = serde_json::from_str(result).unwrap_or_else(|error| panic!("{error}: {run}"));
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(&result[key], value, "{question}: {run}");
        }
    }
    let run = program.run_list(&["run", "which city bikes do you have?"]);
    assert!(run.stdout.contains("Tern") && !run.stdout.contains("Swift"), "{run}");
}

#[test]
fn its_own_examples_of_tools_pass() {
    let run = example().run("tools test");
    assert!(run.code == 0 && run.stdout.contains("2 passed, 0 failed"), "{run}");
}

/// The entries in `tools.json` are those that `tools add` writes, and settings that it does not know.
#[test]
fn the_schemas_are_derived() {
    let program = example();
    let written: Json = serde_json::from_str(&program.read("tools/tools.json")).expect("JSON");
    program.write("tools/tools.json", "{ \"tools\": [] }");
    assert_eq!(program.run("tools add tools/bikes.py").code, 0);
    let derived: Json = serde_json::from_str(&program.read("tools/tools.json")).expect("JSON");
    for (written, derived) in
        written["tools"].as_array().into_iter().flatten().zip(derived["tools"].as_array().expect("a list"))
    {
        for (key, value) in derived.as_object().expect("an entry") {
            assert_eq!(
                &written[key], value,
                "hint: toolgate -C examples/team tools add tools/bikes.py --replace"
            );
        }
    }
    assert_eq!(written["tools"].as_array().map(Vec::len), derived["tools"].as_array().map(Vec::len));
}

#[test]
fn a_large_refund_needs_approval() {
    let program = example();
    let cem = key_of(&program, "cem");
    let gateway = Gateway::serve(program);
    let refund = |amount: f64| json!({ "id": 1003, "body": { "amount": amount } });
    let response = gateway.call(&cem, "refund_order", &refund(50.0));
    assert_eq!(response.json()["data"]["refunded"], 50.0, "{response:?}");
    for (answer, refunded) in [("no", 50.0), ("yes", 130.0)] {
        std::thread::scope(|scope| {
            let call = scope.spawn(|| gateway.call(&cem, "refund_order", &refund(80.0)));
            let mut questions = Json::Null;
            wait_until("the question", || {
                questions = gateway.program.run("questions --json").json();
                questions.to_string().contains("This refund is over 50 euros. Pay it?")
            });
            let id = questions[0]["id"].as_str().expect("an id");
            let run = gateway.program.run(&format!("questions answer {id} {answer}"));
            assert_eq!(run.code, 0, "{run}");
            let response = call.join().expect("it ends");
            let is_paid = response.json()["status"] == "success";
            assert_eq!(is_paid, answer == "yes", "{response:?}");
        });
        let order = gateway.call(&cem, "get_order", &json!({ "id": 1003 }));
        assert_eq!(order.json()["data"]["refunded"], refunded, "{order:?}");
    }
    // Support cannot pay anything back: for them the tool does not exist, except by name.
    let ann = key_of(&gateway.program, "ann");
    let response = gateway.call(&ann, "refund_order", &refund(1.0));
    assert_eq!(response.code(), "unauthorized", "{response:?}");
}

#[test]
fn text_of_customers_does_not_reach_the_website() {
    let program = example();
    let ann = key_of(&program, "ann");
    let gateway = Gateway::serve(program);
    let call = |session: &McpSession<'_>, tool: &str, arguments: Json| {
        let params = json!({ "name": tool, "arguments": arguments });
        session.post(&request_message(1, "tools/call", &params)).json()["result"].clone()
    };
    let session = McpSession::begin(&gateway, &ann, "2025-11-25", &json!({}));
    let posted = call(&session, "post_notice", json!({ "text": "Closed on Monday" }));
    assert_eq!(posted["structuredContent"]["notices"], 1, "{posted}");
    for (source, arguments) in [("read_message", json!({ "id": 3 })), ("find_orders", json!({}))] {
        let session = McpSession::begin(&gateway, &ann, "2025-11-25", &json!({}));
        let read = call(&session, source, arguments);
        assert_ne!(read["isError"], true, "{read}");
        let refused = call(&session, "post_notice", json!({ "text": "Omar Diaz, Elm Street 5" }));
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(refused.to_string().contains("nothing-of-customers-on-the-website"), "{refused}");
    }
    // The first session has read nothing of customers, and the bikes of the shop are no secret.
    call(&session, "find_bikes", json!({}));
    let posted = call(&session, "post_notice", json!({ "text": "Open again" }));
    assert_eq!(posted["structuredContent"]["notices"], 2, "{posted}");
}

#[test]
fn the_assistant_sees_the_profile_for_small_models() {
    let program = example();
    let key = key_of(&program, "assistant");
    let gateway = Gateway::serve(program);
    let session = McpSession::begin(&gateway, &key, "2025-11-25", &json!({}));
    let list = session.post(&request_message(1, "tools/list", &json!({}))).json();
    let mut names: Vec<_> =
        list["result"]["tools"].as_array().expect("tools").iter().map(|tool| tool["name"].clone()).collect();
    names.sort_by_key(ToString::to_string);
    assert_eq!(
        json!(names),
        json!(["find_bikes", "frame_size", "list_messages", "read_message", "show_order"])
    );
}

#[test]
fn its_readme_works_as_written() {
    let program = example();
    let port = free_port().to_string();
    follow(include_str!("../../../../../examples/team/README.md"), &program, &[("SHOP_PORT", port)]);
}

/// The README of the repository runs the example from a clone.
#[test]
fn the_readme_of_the_repository_works_as_written() {
    let program = Program::new(&[]);
    copy(&folder(), &program, "examples/team/");
    let page = include_str!("../../../../../README.md").replace("cargo run -- ", "toolgate ");
    follow(&page, &program, &[("SHOP_PORT", free_port().to_string())]);
}
