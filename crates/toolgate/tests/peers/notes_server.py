"""An MCP server that remembers notes and asks questions, on the Python SDK: v1 or v2, as installed. Over stdio."""

import sys

from pydantic import BaseModel

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context

    server = MCPServer("notes")
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("notes")

notes: list[str] = []


class Size(BaseModel):
    size: int


@server.tool()
def remember(note: str) -> str:
    """Remembers the note, and repeats all of them."""
    notes.append(note)
    return " ".join(notes)


@server.tool()
async def ask(ctx: Context) -> str:
    """Asks the client for a size."""
    answer = await ctx.elicit(message="How large?", schema=Size)
    return f"{answer.action} {answer.data.size}"


server.run("stdio")
