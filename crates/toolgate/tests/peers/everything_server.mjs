// A server with the fixtures of the conformance suite, on the TypeScript SDK v1: `node everything_server.mjs SDK PORT`,
// where SDK is the folder of the SDK's package. The SDK publishes no such server of its own.

import { randomUUID } from "node:crypto";

const from = (name) => import(`${process.argv[2]}/dist/esm/${name}.js`);
const { Server } = await from("server/index");
const { createMcpExpressApp } = await from("server/express");
const { StreamableHTTPServerTransport } = await from("server/streamableHttp");
const types = await from("types");

const IMAGE =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const AUDIO = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
const WATCHED = "test://watched-resource";
const pause = () => new Promise((done) => setTimeout(done, 50));
const text = (words) => ({ type: "text", text: words });
const image = { type: "image", data: IMAGE, mimeType: "image/png" };
const embedded = (uri, words) => ({
  type: "resource",
  resource: { uri, mimeType: "text/plain", text: words },
});
const object = (properties, required = []) => ({ type: "object", properties, required });
const string = { type: "string" };
const titled = (word) =>
  ["First", "Second", "Third"].map((place, at) => ({ const: `value${at + 1}`, title: `${place} ${word}` }));
const plain = ["option1", "option2", "option3"];
const ask = async (server, lead, message, properties) => {
  const requestedSchema = { type: "object", properties };
  const answer = await server.elicitInput({ message, requestedSchema });
  return [text(`${lead}: action=${answer.action}, content=${JSON.stringify(answer.content)}`)];
};

// Each tool: its input schema, and the content of its result.
const tools = {
  test_simple_text: [object({}), () => [text("This is a simple text response for testing.")]],
  test_image_content: [object({}), () => [image]],
  test_audio_content: [object({}), () => [{ type: "audio", data: AUDIO, mimeType: "audio/wav" }]],
  test_embedded_resource: [
    object({}),
    () => [embedded("test://embedded-resource", "This is an embedded resource content.")],
  ],
  test_multiple_content_types: [
    object({}),
    () => [text("Multiple content types test:"), image, embedded("test://mixed-content-resource", "{}")],
  ],
  test_tool_with_logging: [
    object({}),
    async ({ server, session }) => {
      for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
        await server.sendLoggingMessage({ level: "info", data }, session);
        await pause();
      }
      return [text("Tool with logging executed successfully")];
    },
  ],
  test_tool_with_progress: [
    object({}),
    async ({ extra }) => {
      for (const progress of [0, 50, 100]) {
        const params = { progressToken: extra._meta?.progressToken ?? 0, progress, total: 100 };
        await extra.sendNotification({ method: "notifications/progress", params });
        await pause();
      }
      return [text("done")];
    },
  ],
  test_error_handling: [
    object({}),
    () => {
      throw new Error("This tool intentionally returns an error for testing");
    },
  ],
  test_reconnection: [
    object({}),
    async ({ extra }) => {
      extra.closeSSEStream?.();
      await pause();
      return [text("Reconnection test completed successfully")];
    },
  ],
  test_sampling: [
    object({ prompt: string }, ["prompt"]),
    async ({ server, args }) => {
      const messages = [{ role: "user", content: text(args.prompt) }];
      const answer = await server.createMessage({ messages, maxTokens: 100 });
      return [text(`LLM response: ${answer.content.text}`)];
    },
  ],
  test_elicitation: [
    object({ message: string }, ["message"]),
    ({ server, args }) =>
      ask(server, "User response", args.message, { username: string, email: string }),
  ],
  test_elicitation_sep1034_defaults: [
    object({}),
    ({ server }) =>
      ask(server, "Elicitation completed", "All of these have a default", {
        name: { ...string, default: "John Doe" },
        age: { type: "integer", default: 30 },
        score: { type: "number", default: 95.5 },
        status: { ...string, enum: ["active", "inactive", "pending"], default: "active" },
        verified: { type: "boolean", default: true },
      }),
  ],
  test_elicitation_sep1330_enums: [
    object({}),
    ({ server }) =>
      ask(server, "Elicitation completed", "Choose of each", {
        untitledSingle: { ...string, enum: plain },
        titledSingle: { ...string, oneOf: titled("Option") },
        legacyEnum: {
          ...string,
          enum: ["opt1", "opt2", "opt3"],
          enumNames: ["Option One", "Option Two", "Option Three"],
        },
        untitledMulti: { type: "array", items: { ...string, enum: plain } },
        titledMulti: { type: "array", items: { anyOf: titled("Choice") } },
      }),
  ],
  json_schema_2020_12_tool: [
    {
      $schema: "https://json-schema.org/draft/2020-12/schema",
      type: "object",
      $defs: {
        address: { $anchor: "addressDef", type: "object", properties: { street: string, city: string } },
      },
      properties: {
        name: string,
        address: { $ref: "#/$defs/address" },
        contactMethod: { ...string, enum: ["phone", "email"] },
        phone: string,
        email: string,
      },
      allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
      if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
      then: { required: ["phone"] },
      else: { required: ["email"] },
      additionalProperties: false,
    },
    () => [text("called")],
  ],
};

const argument = (name) => ({ name, description: name, required: true });
const prompts = {
  test_simple_prompt: [[], () => [text("This is a simple prompt for testing.")]],
  test_prompt_with_arguments: [
    ["arg1", "arg2"],
    ({ arg1, arg2 }) => [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  ],
  test_prompt_with_embedded_resource: [
    ["resourceUri"],
    ({ resourceUri }) => [
      embedded(resourceUri, "Embedded resource content for testing."),
      text("Please process the embedded resource above."),
    ],
  ],
  test_prompt_with_image: [[], () => [image, text("Please analyze the image above.")]],
};

const read = (uri) => {
  const id = uri.match(/^test:\/\/template\/([^/]+)\/data$/)?.[1];
  if (id) {
    const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { uri, mimeType: "application/json", text: data };
  }
  const words = {
    "test://static-text": "This is the content of the static text resource.",
    [WATCHED]: "This is watched.",
  }[uri];
  if (words) return { uri, mimeType: "text/plain", text: words };
  if (uri === "test://static-binary") return { uri, mimeType: "image/png", blob: IMAGE };
  throw new types.McpError(-32002, "Resource not found", { uri });
};

const create = () => {
  const capabilities = {
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    logging: {},
    completions: {},
  };
  const server = new Server({ name: "everything_server.mjs", version: "1.0.0" }, { capabilities });
  const on = (name, answer) => server.setRequestHandler(types[`${name}RequestSchema`], answer);
  on("ListTools", () => ({
    tools: Object.entries(tools).map(([name, [inputSchema]]) => ({ name, description: name, inputSchema })),
  }));
  on("CallTool", async ({ params }, extra) => {
    const tool = tools[params.name];
    if (!tool) throw new types.McpError(-32602, `Unknown tool: ${params.name}`);
    const call = { server, extra, session: extra.sessionId, args: params.arguments ?? {} };
    try {
      return { content: await tool[1](call) };
    } catch (error) {
      return { content: [text(error.message)], isError: true };
    }
  });
  on("ListPrompts", () => ({
    prompts: Object.entries(prompts).map(([name, [names]]) => ({
      name,
      description: name,
      arguments: names.map(argument),
    })),
  }));
  on("GetPrompt", ({ params }) => ({
    messages: prompts[params.name][1](params.arguments ?? {}).map((content) => ({ role: "user", content })),
  }));
  on("ListResources", () => ({
    resources: [
      ["test://static-text", "text/plain"],
      ["test://static-binary", "image/png"],
      [WATCHED, "text/plain"],
    ].map(([uri, mimeType]) => ({ uri, mimeType, name: uri, description: uri })),
  }));
  on("ListResourceTemplates", () => ({
    resourceTemplates: [
      {
        uriTemplate: "test://template/{id}/data",
        name: "template",
        description: "Data of an item.",
        mimeType: "application/json",
      },
    ],
  }));
  on("ReadResource", ({ params }) => ({ contents: [read(params.uri)] }));
  on("Subscribe", () => ({}));
  on("Unsubscribe", () => ({}));
  on("Complete", () => ({ completion: { values: [], total: 0, hasMore: false } }));
  return server;
};

const sessions = new Map();
const app = createMcpExpressApp();
app.all("/mcp", async (request, response) => {
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport) {
    if (!types.isInitializeRequest(request.body)) {
      const error = { code: -32000, message: "no such session" };
      return response.status(request.headers["mcp-session-id"] ? 404 : 400).json({ jsonrpc: "2.0", id: null, error });
    }
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await create().connect(transport);
  }
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(process.argv[3]), "127.0.0.1");
