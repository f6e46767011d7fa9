"""An MCP server on FastMCP: `stdio`, or `http PORT`, or `sse PORT`."""

import sys

from fastmcp import FastMCP
from fastmcp.utilities.types import Audio, Image
from mcp.types import ResourceLink

server = FastMCP("fastmcp")


@server.tool
def echo(message: str) -> str:
    """Returns the message."""
    return "fastmcp: " + message


@server.tool
def clip() -> Audio:
    """Returns a sound."""
    return Audio(data=b"RIFF\x04\x00\x00\x00WAVE", format="wav")


@server.tool
def picture() -> Image:
    """Returns a picture."""
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@server.tool
def link() -> ResourceLink:
    """Returns a link to a resource."""
    return ResourceLink(type="resource_link", uri="file:///report.txt", name="report")


if sys.argv[1] == "stdio":
    server.run(show_banner=False)
else:
    server.run(transport=sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
