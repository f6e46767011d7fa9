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
    # The calls to make are in the context, a line of name and arguments each.
    printf '%s' "$MCP_CONFORMANCE_CONTEXT" | python3 -c '
import json, sys
for call in json.load(sys.stdin)["toolCalls"]:
    print(call["name"], json.dumps(call["arguments"]))' | while read -r tool arguments; do
        toolgate tools call "s__$tool" --args "$arguments"
    done
    ;;
*)
    tools=$(toolgate tools list --color never) || exit 1
    printf '%s\n' "$tools" | while read -r tool _; do
        if [ -n "$tool" ]; then toolgate tools call "s__$tool" --args '{}' --answers defaults || :; fi
    done
    ;;
esac
