#!/bin/sh
# Toolgate as the client under test of the MCP conformance suite, which appends the server's address.
# `TOOLGATE` is the executable; see README.md beside this file.
set -u
for url in "$@"; do :; done
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
# Tokens of a run are of no use to the next. The browser follows the login wherever it leads.
export XDG_STATE_HOME="$folder/state" BROWSER="curl -sL -o /dev/null"
scenario=${MCP_CONFORMANCE_SCENARIO:-}
toolgate() { "${TOOLGATE:?the toolgate executable}" -C "$folder" "$@"; }

# A member of the context, as the JSON text that it is.
member() {
    printf '%s' "${MCP_CONFORMANCE_CONTEXT:-}" | tr '\n' ' ' | sed -n "s/.*\"$1\" *: *\(\"[^\"]*\"\).*/\1/p"
}
oauth=
add() { if [ -n "$2" ]; then oauth="$oauth${oauth:+,}\"$1\":$2"; fi; }
case $scenario in
auth/*)
    add client_id "$(member client_id)"
    add client_secret "$(member client_secret)"
    add private_key "$(member private_key_pem)"
    ;;
esac
case $scenario in
auth/basic-cimd) add client_metadata_url '"https://conformance-test.local/client-metadata.json"' ;;
auth/client-credentials-*) add grant '"client_credentials"' ;;
esac
printf '{"servers":{"s":{"type":"http","url":"%s","timeout":10%s}}}' \
    "$url" "${oauth:+,\"oauth\":{$oauth\}}" >"$folder/mcp.json"

case $scenario in
tools_call) toolgate tools call s__add_numbers a=5 b=3 ;;
sse-retry) toolgate tools call s__test_reconnection ;;
elicitation*) toolgate tools call s__test_client_elicitation_defaults --answers defaults ;;
http-custom-headers)
    # The calls to make are in the context, a line of name and arguments each. What is null does not fit
    # the schema of its tool, so it would never be sent; it is left out.
    printf '%s' "$MCP_CONFORMANCE_CONTEXT" | python3 -c '
import json, sys
for call in json.load(sys.stdin)["toolCalls"]:
    given = {name: value for name, value in call["arguments"].items() if value is not None}
    print(call["name"], json.dumps(given))' | while read -r tool arguments; do
        toolgate tools call "s__$tool" --args "$arguments"
    done
    ;;
*)
    # Every tool once, with the arguments that it requires, as its schema wants them.
    toolgate tools list --json >"$folder/tools" || exit 1
    python3 -c '
import json, sys
values = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None}
for tool in json.load(sys.stdin):
    schema = tool["inputSchema"]
    kinds = {name: schema.get("properties", {}).get(name, {}).get("type") for name in schema.get("required", [])}
    print(tool["name"], json.dumps({name: values.get(kind, "x") for name, kind in kinds.items()}))' <"$folder/tools" |
        while read -r tool arguments; do
            toolgate tools call "s__${tool#s__}" --args "$arguments" --answers defaults || :
        done
    ;;
esac
