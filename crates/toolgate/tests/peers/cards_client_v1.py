"""Uses the example service of the SDK with the Python SDK v1: `stdio PROGRAM` or `http URL`."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def talk(reader, writer):
    async with ClientSession(reader, writer) as session:
        hello = await session.initialize()
        print(hello.protocolVersion, hello.serverInfo.name)
        await session.send_ping()
        tools = await session.list_tools()
        print(*(tool.name for tool in tools.tools))
        reviewed = await session.call_tool("review-card", {"cardId": "card-1", "grade": "good"})
        print("level", reviewed.structuredContent["level"])
        wrong = await session.call_tool("get-card", {"cardId": "card-99"})
        print(wrong.isError, wrong.content[0].text)


async def main():
    transport, place = sys.argv[1:]
    if transport == "http":
        async with streamablehttp_client(place) as (reader, writer, _):
            await talk(reader, writer)
    else:
        async with stdio_client(StdioServerParameters(command=place)) as (reader, writer):
            await talk(reader, writer)


asyncio.run(main())
