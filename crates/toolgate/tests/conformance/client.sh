#!/bin/sh
# Runs Toolgate as the client under test of the MCP conformance suite, which appends the URL of the server.
# `TOOLGATE` is the executable; see README.md in this folder.
set -u
for url in "$@"; do :; done
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
# The state folder is new, so tokens of earlier runs are not used. The browser follows every redirect of the login.
export XDG_STATE_HOME="$folder/state" BROWSER="curl -sL -o /dev/null"
scenario=${MCP_CONFORMANCE_SCENARIO:-}
toolgate() { "${TOOLGATE:?the toolgate executable}" -C "$folder" "$@"; }

# Prints a string member of the context, with its quotes.
member() {
    printf '%s' "${MCP_CONFORMANCE_CONTEXT:-}" | tr '\n' ' ' | sed -n "s/.*\"$1\" *: *\(\"[^\"]*\"\).*/\1/p"
}
oauth=
add() { if [ -n "$2" ]; then oauth="$oauth${oauth:+,}\"$1\":$2"; fi; }
case $scenario in
auth/*)
    add client_id "$(member client_id)"
    add client_secret "$(member client_secret)"
    # A secret, or a token to exchange, goes only to the issuer that the operator names. The operator reads it in the
    # metadata of the server.
    if [ -n "$(member client_secret)$(member valid_jwt)" ]; then
        add issuer "$(python3 -c '
import json, re, sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], b"{}", {"Content-Type": "application/json"}))
except urllib.error.HTTPError as error:
    metadata = re.search("resource_metadata=\"([^\"]+)", error.headers.get("WWW-Authenticate", ""))
    if metadata:
        print(json.dumps(json.load(urllib.request.urlopen(metadata.group(1)))["authorization_servers"][0]))' "$url")"
    fi
    add private_key "$(member private_key_pem)"
    ;;
esac
case $scenario in
auth/basic-cimd) add client_metadata_url '"https://conformance-test.local/client-metadata.json"' ;;
auth/client-credentials-*) add grant '"client_credentials"' ;;
auth/wif-jwt-bearer)
    # The platform of a workload writes its token to a file.
    member valid_jwt | tr -d '"' >"$folder/workload.jwt"
    add grant '"workload_identity"'
    add subject_token_file '"workload.jwt"'
    ;;
auth/enterprise-managed-authorization)
    member idp_id_token | tr -d '"' >"$folder/id_token.jwt"
    add grant '"identity_assertion"'
    add subject_token_file '"id_token.jwt"'
    add identity_provider "{\"issuer\":$(member idp_issuer),\"client_id\":$(member idp_client_id)}"
    ;;
esac
printf '{"servers":{"s":{"type":"http","url":"%s","timeout":10%s}}}' \
    "$url" "${oauth:+,\"oauth\":{$oauth\}}" >"$folder/mcp.json"

case $scenario in
tools_call) toolgate tools call s__add_numbers a=5 b=3 ;;
sse-retry) toolgate tools call s__test_reconnection ;;
json-schema-2020-12-preservation)
    # Sends the schema of one tool, as it was received, to the other.
    toolgate tools list --json >"$folder/tools" || exit 1
    python3 -c '
import json, sys
tools = {tool["name"].removeprefix("s__"): tool["inputSchema"] for tool in json.load(sys.stdin)}
print(json.dumps({"schema": tools["json_schema_2020_12_tool"]}))' <"$folder/tools" >"$folder/arguments"
    toolgate tools call s__json_schema_echo --args "$(cat "$folder/arguments")"
    ;;
elicitation*) toolgate tools call s__test_client_elicitation_defaults --answers defaults ;;
http-custom-headers)
    # The context lists the calls, one line with name and arguments each. A null does not match the schema of its tool,
    # so the call would never be sent; null arguments are left out.
    printf '%s' "$MCP_CONFORMANCE_CONTEXT" | python3 -c '
import json, sys
for call in json.load(sys.stdin)["toolCalls"]:
    given = {name: value for name, value in call["arguments"].items() if value is not None}
    print(call["name"], json.dumps(given))' | while read -r tool arguments; do
        toolgate tools call "s__$tool" --args "$arguments"
    done
    ;;
*)
    # Calls every tool once, with values for its required arguments that match their types.
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
