// The same as `frameworks.py` for frameworks in JavaScript: `node frameworks.mjs NAME TARGETS`.

import { createInterface } from "node:readline";

const [name, targets] = process.argv.slice(-2);

const frameworks = {
  async ai_sdk(target) {
    const { createMCPClient } = await import("@ai-sdk/mcp");
    const { Experimental_StdioMCPTransport: Stdio } = await import("@ai-sdk/mcp/mcp-stdio");
    const client = await createMCPClient({ transport: target.url ? { type: "http", ...target } : new Stdio(target) });
    const tools = await client.tools();
    const call = async (tool, args) => {
      const outcome = await tools[tool].execute(args, { toolCallId: "1", messages: [] });
      const texts = outcome.content.filter((part) => part.type === "text").map((part) => part.text);
      const images = outcome.content.filter((part) => part.type === "image").length;
      return { text: texts.join(" "), images, error: Boolean(outcome.isError) };
    };
    return { list: async () => Object.keys(tools), call };
  },
};

const opened = {};
for (const [on, target] of Object.entries(JSON.parse(targets))) {
  opened[on] = await frameworks[name](target);
}
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const { list, call } = opened[command.on];
  let answer;
  try {
    if (command.do === "list") {
      answer = { tools: (await list()).sort() };
    } else {
      const calls = Array.from({ length: command.times ?? 1 }, () => call(command.tool, command.arguments));
      answer = { results: await Promise.all(calls) };
    }
  } catch (error) {
    answer = { exception: String(error) };
  }
  console.log(JSON.stringify(answer));
}
