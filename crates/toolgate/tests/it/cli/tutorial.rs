//! The tutorial of docs/tools.md: a project, a tool, an edit, a call, its examples.

use serde_json::{Value as Json, json};

use crate::support::gateway::wait_until;
use crate::support::program::Program;
use crate::support::typed_page::block;

/// Edits a file of the project `cards`.
fn edit(program: &Program, file: &str, change: impl FnOnce(&mut Json)) {
    let path = format!("cards/{file}");
    let mut document: Json = serde_json::from_str(&program.read(&path)).expect("a document");
    change(&mut document);
    program.write(&path, serde_json::to_string_pretty(&document).expect("a document"));
}

#[test]
fn the_tutorial_works_as_written() {
    let page = include_str!("../../../../../docs/tools.md");
    let program = Program::new(&[]);
    let type_in = |line: &str| {
        assert!(page.contains(&format!("$ toolgate {line}\n")), "docs/tools.md does not say `{line}`");
        program.run(&format!("-C cards {line}"))
    };
    assert!(page.contains("$ toolgate init cards && cd cards\n"));
    assert_eq!(program.run("init cards").code, 0);
    let run = type_in("tools new shout");
    assert_eq!(run.code, 0, "{run}");
    assert!(page.contains("added tool shout in tools/tools.json, revision …\nwrote tools/shout.py\n"));
    assert!(run.stdout.starts_with("added tool shout in tools/tools.json, revision "), "{run}");
    assert!(run.stderr.starts_with("wrote tools/shout.py\n"), "{run}");
    assert_eq!(type_in("tools call shout text=hello").stdout, "{\"text\":\"hello\",\"length\":5}\n");

    // Adds the argument `loud`.
    let script = program.read("cards/tools/shout.py").replace(
        "    text = args[\"text\"]\n",
        "    text = args[\"text\"].upper() + \"!\" * args.get(\"marks\", 0)\n",
    );
    program.write("cards/tools/shout.py", script);
    // The existing example still passes.
    let run = type_in("tools test shout");
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stdout.contains("    got      {\"text\":\"HELLO\",\"length\":5}"), "{run}");

    edit(&program, "tools/tools.json", |tools| {
        let tools = tools["tools"].as_array_mut().expect("a list");
        let shout = tools.iter_mut().find(|tool| tool["name"] == "shout").expect("the new one");
        shout["description"] =
            json!("Says a text aloud. Use it where nobody listens. Returns it with its length.");
        shout["input_schema"]["properties"]["marks"] =
            json!({ "type": "integer", "minimum": 0, "maximum": 3, "description": "Marks behind it." });
        shout["examples"][0]["params"]["marks"] = json!(2);
        shout["examples"][0]["expected_result"] = json!({ "text": "HELLO!!", "length": 7 });
    });
    let check = program.run("-C cards check");
    assert_eq!(check.code, 0, "{check}");
    let call = |line: &str| program.run(&format!("-C cards tools call shout {line}"));
    assert_eq!(call("text=hey marks=1").stdout, "{\"text\":\"HEY!\",\"length\":4}\n");
    let refused = call("text=hey marks=9");
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("`marks`: 9 is greater than the maximum of 3"), "{refused}");
    wait_until("the examples hold", || {
        let run = type_in("tools test shout");
        run.code == 0 && run.stdout.lines().last() == Some("1 passed, 0 failed")
    });
}

/// The functions of the page become tools, and the commands print what the page says.
#[test]
fn the_functions_work_as_written() {
    let page = include_str!("../../../../../docs/tools.md");
    let program = Program::new(&[]);
    assert_eq!(program.run("init").code, 0);
    program.write("tools/cards.py", block(page, "python"));
    let expect = |arguments: &[&str], output: &str| {
        assert!(page.contains(output), "docs/tools.md does not show `{output}`");
        let run = program.run_list(arguments);
        assert!(run.code == 0 && run.stdout.contains(output), "{run}");
    };
    let added = "added score(cards, [bonus])  tools/cards.py:9  Scores a hand of cards. Use it at the end of a round.\n";
    expect(&["tools", "add", "tools/cards.py"], added);
    expect(&["tools", "call", "score", r#"cards=[{"rank": 3}]"#, "bonus=1"], "{\"score\":4.0}\n");
}
