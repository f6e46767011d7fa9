// A client on the TypeScript SDK at the endpoints of profiles: `node profiles.mjs PACKAGES GENERATION URL KEY`, with the
// generations of client.mjs. Prints the results.

const [packages, generation, url, key] = process.argv.slice(2);
const first = generation === "v1";
const from = (path) => import(`${packages}/@modelcontextprotocol/${path}`);
const { Client } = await from(first ? "sdk/dist/esm/client/index.js" : "client/dist/index.mjs");
const { StreamableHTTPClientTransport } = await from(
  first ? "sdk/dist/esm/client/streamableHttp.js" : "client/dist/index.mjs",
);
const schemas = first ? await from("sdk/dist/esm/types.js") : {};
const mode = generation === "v2-newest" ? { versionNegotiation: { mode: "auto" } } : {};

const at = async (profile, work) => {
  const capabilities = { elicitation: { form: {} } };
  const client = new Client({ name: "profiles.mjs", version: "1.0.0" }, { capabilities, ...mode });
  client.setRequestHandler(first ? schemas.ElicitRequestSchema : "elicitation/create", async () => {
    return { action: "accept", content: { name: "Ann" } };
  });
  const requestInit = { headers: { "X-API-Key": key } };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp/${profile}`), { requestInit }));
  const call = async (name, args) => (await client.callTool({ name, arguments: args })).content;
  const done = await work(client, call);
  await client.close();
  return done;
};
const names = (all) => all.map((one) => one.name);

const find = await at("find", async (client, call) => {
  const text = async (name, args) => (await call(name, args).catch((error) => [{ text: error.message }]))[0].text;
  return {
    tools: names((await client.listTools()).tools),
    found: names(JSON.parse(await text("search_tools", { query: "add two numbers" })).tools),
    described: Object.keys(
      JSON.parse(await text("describe_tool", { name: "get-sum" })).inputSchema.properties,
    ).sort(),
    sum: await text("call_tool", { name: "get-sum", arguments: { a: 2, b: 3 } }),
    text: await text("call_tool", { name: "get-sum", arguments: '{"a": 2, "b": 3}' }),
    elicited: await text("call_tool", { name: "trigger-elicitation-request", arguments: {} }),
    unknown: await text("call_tool", { name: "get-env", arguments: {} }),
  };
});
const renamed = await at("renamed", async (client, call) => {
  const added = await call("add", { a: 2, b: 3 });
  const prompt = await client.getPrompt({ name: "weather", arguments: { city: "Oslo" } });
  return {
    tools: names((await client.listTools()).tools),
    prompts: names((await client.listPrompts()).prompts),
    resources: (await client.listResources()).resources.length,
    sum: added[0].text,
    hints: added.at(-1).text.split(":")[0],
    unknown: await call("get-sum", { a: 2, b: 3 }).then(
      (content) => content[0].text,
      (error) => error.message,
    ),
    prompt: prompt.messages[0].content.text,
  };
});
console.log(JSON.stringify({ find, renamed }));
