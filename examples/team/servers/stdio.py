"""A small MCP server over stdio, in nothing but the standard library: functions become tools.

Real servers use an SDK. This one shows that none is needed, and starts on any machine with Python.
"""

import json
import sys

REVISION = "2025-06-18"
TOOLS = {}


def tool(description, properties=None, required=(), read_only=True):
    """Registers the function below as a tool. `properties` describes its arguments."""

    def register(function):
        schema = {
            "type": "object",
            "properties": properties or {},
            "required": list(required),
            "additionalProperties": False,
        }
        TOOLS[function.__name__] = (
            function,
            {
                "name": function.__name__,
                "description": description,
                "inputSchema": schema,
                "annotations": {"readOnlyHint": read_only},
            },
        )
        return function

    return register


def call(name, arguments):
    try:
        result = TOOLS[name][0](**arguments)
    except LookupError as error:
        return {"content": [{"type": "text", "text": str(error.args[0])}], "isError": True}
    text = {"type": "text", "text": json.dumps(result)}
    return {"content": [text], "structuredContent": result}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": REVISION,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": sys.argv[0], "version": "1.0.0"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [definition for _, definition in TOOLS.values()]}
    if method == "tools/call" and params["name"] in TOOLS:
        return call(params["name"], params.get("arguments", {}))
    return None


def serve():
    """Answers requests, one per line, until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = answer(request["method"], request.get("params") or {})
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": f"no such method: {request['method']}"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)
