//! `toolgate tools add FILE`: Python functions become tools.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER};
use crate::support::mcp_client::{McpSession, request_message};
use crate::support::program::Program;
use crate::support::scripts::{call, project};

const CARDS: &str = r#""""Tools for cards."""
import enum
from dataclasses import dataclass
from typing import Literal, Optional

__version__ = "1.4.0"


class Color(enum.Enum):
    RED = "red"
    BLACK = "black"


@dataclass
class Card:
    """A playing card.

    Attributes:
        rank: From 1 to 13.
    """

    rank: int
    color: Color = Color.RED


def score(cards: list[Card], bonus: float = 0, rule: Literal["sum", "best"] = "sum") -> dict[str, float]:
    """Scores a hand of cards.

    Use it at the end of a round.

    Args:
        cards: The cards of the hand.
        bonus: Added to the score.
        rule: Which cards count.

    Returns:
        The score.
    """
    ranks = [card.rank + (card.color is Color.BLACK) for card in cards]
    return {"score": (sum(ranks) if rule == "sum" else max(ranks)) + bonus}


async def swap(card: Card, color: Optional[Color] = None) -> Card:
    """Changes the color of a card."""
    return Card(card.rank, color or card.color)


def _private():
    pass
"#;

/// The lines that an author of Python tools types, from a fresh folder.
#[test]
fn an_author_of_python_tools() {
    let program = Program::new(&[]);
    assert_eq!(program.run("init").code, 0);
    program.write("tools/cards.py", CARDS);
    let run = program.run("tools add tools/cards.py --preview");
    assert!(
        run.code == 0 && run.stdout.starts_with("score(cards, [bonus], [rule])  tools/cards.py:26  Scores"),
        "{run}"
    );
    let before = program.read("tools/tools.json");
    let run = program.run("tools add tools/cards.py");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (
            0,
            "added score(cards, [bonus], [rule])  tools/cards.py:26  Scores a hand of cards.\n\
             added swap(card, [color])  tools/cards.py:43  Changes the color of a card.\n"
        ),
        "{run}"
    );
    let after = program.read("tools/tools.json");
    assert!(after.starts_with(before.split("\n  ]").next().expect("the tools")), "{after}");
    assert_eq!(program.run("check").code, 0);

    let cards = json!({ "cards": [{ "rank": 3 }, { "rank": 5, "color": "black" }], "bonus": 1 });
    let scored = call(&program, "score", &cards);
    assert_eq!(
        (&scored["data"], &scored["metadata"]["toolVersion"]),
        (&json!({ "score": 10.0 }), &json!("1.4.0"))
    );
    let swapped = call(&program, "swap", &json!({ "card": { "rank": 7 }, "color": "black" }));
    assert_eq!(swapped["data"], json!({ "rank": 7, "color": "black" }));

    // A wrong call names file, line and parameter.
    let wrong = call(&program, "score", &json!({ "cards": [], "bonsu": 1 }));
    let error = &wrong["error"];
    assert_eq!(error["code"], "invalid_arguments", "{wrong}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("bonsu")), "{wrong}");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("tools/cards.py:26")), "{wrong}");

    // The function changes, and its entry with it.
    let run = program.run("tools add tools/cards.py");
    assert!(
        run.code == 1 && run.stderr.contains("left out `score`: exists already; `--replace` updates it"),
        "{run}"
    );
    program.write("tools/cards.py", CARDS.replace("bonus: float = 0, ", "").replace(" + bonus", ""));
    let run = program.run("tools add tools/cards.py score --replace");
    assert!(run.code == 0 && run.stdout.starts_with("changed score(cards, [rule])"), "{run}");
    assert_eq!(call(&program, "score", &json!({ "cards": [{ "rank": 2 }] }))["data"], json!({ "score": 2 }));
    let run = program.run_list(&["tools", "call", "score", "cards=[]", "bonus=1"]);
    assert!(run.code == 1 && run.stderr.contains("'bonus' was unexpected"), "{run}");
}

/// Every part of a schema comes from the signature.
#[test]
fn schemas_come_from_signatures() {
    let source = r#"
from __future__ import annotations
import datetime
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

class Options(TypedDict):
    deep: bool
    names: NotRequired[list[str]]

@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)

class Model:
    """Has the methods of a Pydantic model."""
    def __init__(self, size):
        self.size = size
    @classmethod
    def model_json_schema(cls, ref_template):
        return {"type": "object", "properties": {"size": {"$ref": ref_template.format(model="Size")}}, "$defs": {"Size": {"type": "integer"}}}
    @classmethod
    def model_validate(cls, value):
        if not isinstance(value.get("size"), int): raise ValueError("size: Input should be a valid integer")
        return cls(value["size"])
    def model_dump(self, mode, by_alias):
        return {"size": self.size}

def every(a, b: Any, c: Optional[int], d: Union[int, str, None], e: Literal["x", 1], f: dict[str, int], g: tuple[int, str],
          h: Annotated[int, "How many."], i: Options, j: Tree, k: Model, l: datetime.date, m: set[str], *, n: str | None = None,
          o: list = [1], **rest) -> Model:
    """Takes everything.

    :param a: the first
    """
    return k

def plain(text: str, context: dict) -> str:
    """Returns a string."""
    return f"{text} for {context['agentId']}"

def binary(data: bytes): pass
def many(*values): pass
"#;
    let program = project(&[("all.py", source, json!({}))]);
    let run = program.run("tools add tools/all.py --preview --json");
    assert_eq!(run.code, 1, "two functions are left out: {run}");
    let shown: Json = serde_json::from_str(&run.stdout).expect("a document");
    let schema = &shown["tools"][0]["input_schema"];
    let properties = json!({
        "a": { "description": "the first" }, "b": {}, "c": { "type": ["integer", "null"] },
        "d": { "type": ["integer", "string", "null"] }, "e": { "enum": ["x", 1] },
        "f": { "type": "object", "additionalProperties": { "type": "integer" } },
        "g": { "type": "array", "prefixItems": [{ "type": "integer" }, { "type": "string" }], "minItems": 2, "maxItems": 2 },
        "h": { "type": "integer", "description": "How many." },
        "i": { "type": "object", "properties": { "deep": { "type": "boolean" }, "names": { "type": "array", "items": { "type": "string" } } },
               "required": ["deep"], "additionalProperties": false },
        "j": { "$ref": "#/$defs/Tree" },
        "k": { "type": "object", "properties": { "size": { "$ref": "#/$defs/Size" } } },
        "l": { "type": "string", "format": "date" },
        "m": { "type": "array", "items": { "type": "string" }, "uniqueItems": true },
        "n": { "type": ["string", "null"], "default": null },
        "o": { "type": "array", "default": [1] },
    });
    assert_eq!(schema["properties"], properties);
    assert_eq!(schema["required"].as_array().map(Vec::len), Some(13), "{schema}");
    assert_eq!(
        (&schema["additionalProperties"], &schema["$defs"]["Size"]),
        (&json!(true), &json!({ "type": "integer" }))
    );
    let plain = &shown["tools"][1];
    assert_eq!(plain["input_schema"]["properties"], json!({ "text": { "type": "string" } }));
    assert_eq!(plain.get("output_schema"), None, "a string has none");
    let left_out: Vec<_> =
        shown["left_out"].as_array().expect("a list").iter().map(|one| &one["reason"]).collect();
    assert_eq!(left_out[0], "parameter `data`: the type `bytes` has no JSON form (tools/all.py:43)");
    assert_eq!(left_out[1], "the parameter `*values` cannot be passed by name (tools/all.py:44)");

    assert_eq!(program.run("tools add tools/all.py every plain").code, 0);
    let good = json!({ "a": 1, "b": 2, "c": null, "d": "x", "e": "x", "f": {}, "g": [1, "a"], "h": 1, "i": { "deep": true },
        "j": { "value": 1, "children": [{ "value": 2 }] }, "k": { "size": 3 }, "l": "2026-01-31", "m": [] });
    assert_eq!(call(&program, "every", &good)["data"], json!({ "size": 3 }));
    assert_eq!(call(&program, "plain", &json!({ "text": "hi" }))["data"][0]["text"], "hi for owner");
    // The schema allows it, the type does not.
    let mut wrong = good;
    wrong["l"] = json!("tomorrow");
    let error = &call(&program, "every", &wrong)["error"];
    assert_eq!(
        (&error["code"], &error["outcome"]),
        (&json!("invalid_arguments"), &json!("not_started")),
        "{error}"
    );
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.starts_with("`every` in tools/all.py:30: `l`: ") && message.contains("tomorrow"),
        "{message}"
    );
}

/// The file is run like a tool: without the variables of the user, and an error shows the way out.
#[test]
fn describing_a_file_is_limited_like_a_call() {
    let source = "import os\nif 'SECRET_TOKEN' in os.environ: raise SystemExit('leaked')\ndef look() -> str:\n  'Looks.'\n  return ''\n";
    let program = Program::new(&[]).with("SECRET_TOKEN", "x");
    assert_eq!(program.run("init").code, 0);
    program.write("tools/look.py", source);
    program.write("tools/broken.py", "import no_such_module\n");
    program.write("tools/empty.py", "_x = 1\n");
    program.write("away.py", source);
    for (arguments, message, hint) in [
        ("tools/lok.py", "there is no file `tools/lok.py`", "did you mean `tools/look.py`?"),
        ("tools/look.py loook", "`tools/look.py` has no public function `loook`", "did you mean `look`?"),
        (
            "tools/broken.py",
            "`tools/broken.py` cannot be loaded: ModuleNotFoundError",
            "pip install no_such_module",
        ),
        (
            "tools/empty.py",
            "`tools/empty.py` has no public function",
            "names that begin with `_` are private",
        ),
        ("away.py", "`away.py` is not in `tools`", "run `toolgate tools add tools/away.py`"),
    ] {
        let run = program.run(&format!("tools add {arguments}"));
        assert!(
            run.code == 1 && run.stderr.contains(message) && run.stderr.contains(hint),
            "{arguments}: {run}"
        );
    }
    assert_eq!(program.run("tools add look").code, 2, "a name needs a description");
    let run = program.run("tools add look.py --json");
    let added: Json = serde_json::from_str(&run.stdout).expect("a document");
    assert_eq!(
        (run.code, &added["tools"][0]["name"], &added["via"]),
        (0, &json!("look"), &json!("files")),
        "{run}"
    );
}

/// Hints, errors and the version of a script are in its result, at every front end.
#[test]
fn own_hints_errors_and_version_arrive() {
    let good = r#"{"data": {"n": 1}, "agentHints": {"suggestedNextActions": [{"action": "review-card", "priority": "high", "description": "Look at it."}], "confidence": 0.5, "constraints": ["today"]}, "metadata": {"toolVersion": "3.1.4"}}"#;
    let bad = r#"{"status": "error", "error": {"code": "deck_full", "message": "the deck is full", "hint": "use another deck"}, "agentHints": {}}"#;
    let python = format!("import json\ndef run(args): return json.loads('''{good}''')\n");
    let raising = "class Full(Exception):\n  code = 'deck_full'\n  hint = 'use another deck'\ndef run(args): raise Full('the deck is full')\n";
    let program = project(&[
        ("good_py.py", &python, json!({ "permissions": [] })),
        ("good_sh.sh", &format!("#!/bin/sh\necho '{good}'\n"), json!({})),
        ("bad_py.py", raising, json!({})),
        ("bad_sh.sh", &format!("#!/bin/sh\necho '{bad}'\n"), json!({})),
        ("plain.py", "def run(args): return {'n': 1}\n", json!({})),
    ])
    .with("TOOLGATE_API_KEY", OWNER);
    let plain = call(&program, "plain", &json!({}));
    let gateway = Gateway::serve(program);
    for kind in ["py", "sh"] {
        let tool = format!("good_{kind}");
        let over_rest = gateway.call(OWNER, &tool, &json!({})).json();
        for envelope in [call(&gateway.program, &tool, &json!({})), over_rest] {
            let hints = &envelope["agentHints"];
            assert_eq!(envelope["data"], json!({ "n": 1 }), "{envelope}");
            assert_eq!(hints["suggestedNextActions"][0]["action"], "review-card", "{hints}");
            assert_eq!(
                (&hints["constraints"], &envelope["metadata"]["toolVersion"]),
                (&json!(["today"]), &json!("3.1.4"))
            );
            let (own, usual) = (hints["confidence"].as_f64(), plain["agentHints"]["confidence"].as_f64());
            assert!(own < usual.map(|usual| usual * 0.7), "the confidence of the tool counts: {hints}");
        }
        let failed = gateway.call(OWNER, &format!("bad_{kind}"), &json!({})).json();
        let error = &failed["error"];
        assert_eq!(
            (&error["code"], &error["toolCode"], &error["hint"]),
            (&json!("tool_execution_error"), &json!("deck_full"), &json!("use another deck")),
            "{failed}"
        );
        assert!(error["message"].as_str().is_some_and(|text| text.ends_with("the deck is full")), "{failed}");
    }
    let session = McpSession::begin(&gateway, OWNER, "2025-06-18", &json!({}));
    let message = request_message(1, "tools/call", &json!({ "name": "good_py", "arguments": {} }));
    let result = session.post(&message).json();
    let own = &result["result"]["_meta"]["toolgate/result"];
    assert_eq!((&own["next"], &own["reason"]), (&json!("review-card"), &json!("Look at it.")), "{result}");
    assert_eq!(result["result"]["structuredContent"], json!({ "n": 1 }));
}
