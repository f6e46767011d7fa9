"""Uses the example service of the SDK with the Python SDK v2, in its newest revision and in the one before:
`stdio PROGRAM` or `http URL`."""

import asyncio
import sys

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main():
    transport, place = sys.argv[1:]
    for mode in ("auto", "legacy"):
        where = place if transport == "http" else stdio_client(StdioServerParameters(command=place))
        async with Client(where, mode=mode) as client:
            print(client.protocol_version, client.server_info.name)
            tools = await client.list_tools()
            print(*(tool.name for tool in tools.tools))
            reviewed = await client.call_tool("review-card", {"cardId": "card-1", "grade": "good"})
            hints = reviewed.meta["toolgate/result"]["agentHints"]
            assert 0 < hints["confidence"] <= 1, hints
            print("hints for", "review-card")
            wrong = await client.call_tool("get-card", {"cardId": "card-99"})
            print(wrong.is_error, wrong.content[0].text)


asyncio.run(main())
