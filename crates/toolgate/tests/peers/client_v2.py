"""A client on the Python SDK v2: `URL KEY FILE`. Uses every feature once and prints the results."""

import asyncio
import json
import sys

import httpx2
import mcp.types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

url, key, file = sys.argv[1:]
seen = {"progress": [], "asked": []}


async def answer(context, params):
    seen["asked"].append("elicitation")
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def sample(context, params):
    seen["asked"].append("sampling")
    content = types.TextContent(type="text", text="a model said this")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def step(progress, total, message):
    seen["progress"].append([progress, total])


async def main():
    http = httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=60)
    transport = streamable_http_client(url, http_client=http)
    async with http, Client(transport, elicitation_callback=answer, sampling_callback=sample) as client:

        async def call(tool, **arguments):
            result = await client.call_tool(tool, arguments, progress_callback=step)
            return result.content[-1].text

        async def refused():
            try:
                await call("no-such-tool")
            except MCPError as error:
                return str(error)

        tools = await client.list_tools()
        prompts = await client.list_prompts()
        resources = await client.list_resources()
        templates = await client.list_resource_templates()
        structured = await client.call_tool("get-structured-content", {"location": "Chicago"})
        prompt = await client.get_prompt("args-prompt", {"city": "Oslo"})
        read = await client.read_resource("demo://resource/dynamic/text/1")
        completed = await client.complete(
            types.PromptReference(type="ref/prompt", name="completable-prompt"),
            {"name": "department", "value": "S"},
        )
        return {
            "revision": client.protocol_version,
            "server": client.server_info.name,
            "tools": len(tools.tools),
            "prompts": len(prompts.prompts),
            "resources": len(resources.resources),
            "templates": len(templates.resource_templates),
            "sum": await call("get-sum", a=2, b=3),
            "structured": structured.structured_content,
            "unknown": await refused(),
            "file": await call("read_text_file", path=file),
            "zone": json.loads(await call("get_current_time", timezone="UTC"))["timezone"],
            "long": await call("trigger-long-running-operation", duration=0.2, steps=2),
            "elicited": await call("trigger-elicitation-request"),
            "sampled": await call("trigger-sampling-request", prompt="hello"),
            "prompt": prompt.messages[0].content.text,
            "read": read.contents[0].text,
            "completed": completed.completion.values,
        }


print(json.dumps(asyncio.run(main()) | seen))
