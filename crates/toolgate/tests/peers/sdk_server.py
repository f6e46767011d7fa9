"""An MCP server over streamable HTTP, on the Python SDK of the second generation: `PORT`."""

import sys

from mcp.server import MCPServer

server = MCPServer("sdk")


@server.tool()
def echo(message: str) -> str:
    """Says it back."""
    return "sdk: " + message


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
