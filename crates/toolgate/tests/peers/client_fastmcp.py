"""A client on FastMCP: `URL KEY FILE`. Uses every feature once and prints the results."""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp import MCPError
from mcp.types import PromptReference

url, key, file = sys.argv[1:]
seen = {"progress": [], "asked": []}


async def answer(message, response_type, params, context):
    seen["asked"].append("elicitation")
    return {"name": "Ann"}


async def sample(messages, params, context):
    seen["asked"].append("sampling")
    return "a model said this"


async def step(progress, total, message):
    seen["progress"].append([progress, total])


async def main():
    transport = StreamableHttpTransport(url, headers={"X-API-Key": key})
    async with Client(
        transport, elicitation_handler=answer, sampling_handler=sample, progress_handler=step
    ) as client:

        async def call(tool, **arguments):
            return (await client.call_tool(tool, arguments)).content[-1].text

        async def refused():
            try:
                await call("no-such-tool")
            except MCPError as error:
                return str(error)

        structured = await client.call_tool("get-structured-content", {"location": "Chicago"})
        prompt = await client.get_prompt("args-prompt", {"city": "Oslo"})
        read = await client.read_resource("demo://resource/dynamic/text/1")
        completed = await client.complete(
            PromptReference(type="ref/prompt", name="completable-prompt"),
            {"name": "department", "value": "S"},
        )
        return {
            "revision": client.protocol_version,
            "server": client.server_info.name,
            "tools": len(await client.list_tools()),
            "prompts": len(await client.list_prompts()),
            "resources": len(await client.list_resources()),
            "templates": len(await client.list_resource_templates()),
            "sum": await call("get-sum", a=2, b=3),
            "structured": structured.structured_content,
            "unknown": await refused(),
            "file": await call("read_text_file", path=file),
            "zone": json.loads(await call("get_current_time", timezone="UTC"))["timezone"],
            "long": await call("trigger-long-running-operation", duration=0.2, steps=2),
            "elicited": await call("trigger-elicitation-request"),
            "sampled": await call("trigger-sampling-request", prompt="hello"),
            "prompt": prompt.messages[0].content.text,
            "read": read[0].text,
            "completed": completed.values,
        }


print(json.dumps(asyncio.run(main()) | seen))
