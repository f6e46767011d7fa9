"""The server behind the frameworks: every kind of result that a tool can have. Over stdio."""

import base64

from mcp.server.fastmcp import FastMCP, Image

server = FastMCP("shop")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@server.tool()
def add(a: int, b: int = 1, note: str | None = None) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def picture() -> Image:
    """Draws a pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@server.tool()
def secret() -> str:
    """Returns a secret. The policy of the gateway forbids it."""
    return "the secret"


@server.tool()
def careful(text: str) -> str:
    """Says something. The policy of the gateway asks a person first."""
    return f"said {text}"


server.run()
