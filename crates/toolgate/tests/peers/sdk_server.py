"""An MCP server over streamable HTTP, on the Python SDK v2: `PORT`."""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("sdk")


@server.tool()
def echo(message: str) -> str:
    """Returns the message."""
    return "sdk: " + message


def grown() -> str:
    """Did not exist before."""
    return "grown"


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool, and notifies the clients."""
    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "there is one more"


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
