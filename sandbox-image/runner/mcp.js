// The globals of a run: mcp, parallel, stash and McpError. When code first uses one, warm.js compiles this file as the
// body of a function. Its parameter `servers` maps the names of the run's MCP servers to their known tool names. Code
// can replace the globals, so only the proxy decides which calls a run may make.

const host = "https://mcp.codeforge.internal/";
const folder = Deno.cwd(); // the run's folder, or /tmp

// define sets properties that are not enumerable, and returns target.
function define(target, properties) {
  for (const key of Reflect.ownKeys(properties)) {
    Object.defineProperty(target, key, { value: properties[key], writable: true, enumerable: false, configurable: true });
  }
  return target;
}

/** A failed call. `text` and `structured` are the tool's answer. `code`, `retryable` and `hint` are from CodeForge. */
class McpError extends Error {
  constructor(message, about) {
    super(message);
    Object.assign(this, about);
  }
  toJSON() {
    return { name: this.name, message: this.message, ...this };
  }
}
define(McpError.prototype, { name: "McpError" });

// Call is a request to a tool of a server. It makes its error in advance, so that the stack begins at the caller.
class Call {
  constructor(server, tool, caller, options = {}) {
    this.server = server;
    this.tool = tool;
    this.options = options ?? {};
    this.error = new McpError("");
    Error.captureStackTrace(this.error, caller);
  }

  // makeError completes the error. An uncaught error prints only its message, so that has the call and the hint too.
  makeError(why, code, about = {}) {
    const where = `${this.server}.${this.tool}`;
    let message = why.startsWith(where) ? why : `${where}: ${why}`;
    if (about.hint) message += (/[.!?]$/.test(message) ? " " : ". ") + about.hint;
    define(this.error, { message });
    const stack = this.error.stack;
    if (stack.includes("ext:codeforge/")) { // called by parallel. Deno keeps the frames once a stack is read
      const shown = stack.replace(/\n.*(?:ext:codeforge\/|Array\.from ).*/g, "");
      this.error = define(new McpError(message), { stack: shown });
    }
    return Object.assign(this.error, { server: this.server, tool: this.tool, code, retryable: false }, about);
  }

  async send(method, path, value) {
    const { signal, timeout } = this.options;
    const request = { method, headers: {}, signal };
    if (timeout !== undefined) request.headers["Codeforge-Timeout-Ms"] = String(timeout);
    if (method === "POST") {
      request.headers["Content-Type"] = "application/json";
      request.body = this.encodeArguments(value);
    }
    let response, text;
    try {
      response = await fetch(host + path.map((p) => this.escapeSegment(p)).join("/"), request);
      text = await response.text();
    } catch (cause) {
      if (cause === this.error || signal?.aborted) throw cause;
      throw this.makeError(`the connection broke: ${cause?.message ?? cause}`, "connection_lost", { cause });
    }
    let answer;
    try {
      answer = parseJSON(text);
    } catch { /* not from CodeForge: see below */ }
    if (response.ok && isObject(answer)) return answer;
    const { error, code, retryable, hint, data } = isObject(answer) ? answer : {};
    throw this.makeError(String(error ?? `the answer had status ${response.status}`), code ?? "bad_answer", {
      retryable: retryable === true, ...(hint && { hint: String(hint) }), ...(data !== undefined && { data }),
    });
  }

  encodeArguments(value) {
    let text, why = "want one object of arguments";
    try {
      if (isObject(value)) text = JSON.stringify(value);
    } catch (cause) {
      why = `the arguments cannot be written as JSON: ${cause.message}`;
    }
    if (text === undefined) throw this.makeError(why, "bad_arguments");
    return text;
  }

  // escapeSegment escapes a name for the path. It refuses dots, which URL parsers resolve even if they are escaped.
  escapeSegment(name) {
    if (/^\.{0,2}$/.test(name)) throw this.makeError(`${JSON.stringify(name)} is no name`, "bad_arguments");
    return encodeURIComponent(name).replaceAll("%24", "$");
  }

  // readResult returns the result of a call from a CallToolResult. It throws if the tool failed.
  async readResult({ content, structuredContent, isError, _schema, _hint, _meta, resultType, ...rest }) {
    const blocks = toBlocks(content);
    const text = blocks.filter((b) => b.type === "text").map((b) => toText(b.text)).join("\n");
    if (isError) {
      throw this.makeError(text || "the tool failed without a reason", "tool_error", {
        text, ...(structuredContent !== undefined && { structured: structuredContent }), ...(_hint && { hint: _hint }),
      });
    }
    if (structuredContent !== undefined && structuredContent !== null) return structuredContent;
    if (content === undefined && Object.keys(rest).length > 0) return rest; // e.g. toolResult of 2024
    if (blocks.some((b) => b.type !== "text")) {
      const all = await Promise.all(blocks.map((b) => this.convertBlock(b)));
      return all.length === 1 ? all[0] : all;
    }
    if (_schema || !/^\s*[[{]/.test(text)) return text;
    try {
      return parseJSON(text);
    } catch {
      return text;
    }
  }

  // convertBlock returns the text of a content block, or a file for an image, sound or blob, or else the block itself.
  async convertBlock(b) {
    switch (b.type) {
      case "text": return toText(b.text);
      case "image": case "audio": return await this.saveFile(b.data, b.mimeType);
      case "resource": return await this.convertResource(b.resource);
    }
    return b;
  }

  async convertResource(r) {
    if (r?.blob === undefined) return r;
    return { uri: r.uri, ...await this.saveFile(r.blob, r.mimeType) };
  }

  async saveFile(base64, mimeType = "application/octet-stream") {
    const [, kind = "bin"] = /^\w+\/(?:x-)?([a-z0-9]{1,10})\b/.exec(mimeType) ?? [];
    const extension = { plain: "txt", jpeg: "jpg", mpeg: "mp3", octet: "bin" }[kind] ?? kind;
    const path = `${folder}/mcp-${crypto.randomUUID().slice(0, 13)}.${extension}`;
    let bytes;
    try {
      bytes = Uint8Array.fromBase64(base64);
    } catch {
      throw this.makeError(`sent ${mimeType} that is not base64`, "server_error");
    }
    await Deno.writeFile(path, bytes, { createNew: true });
    return { path, mimeType, bytes: bytes.length };
  }
}

function isObject(v) {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

// The protocol wants a list of blocks, with strings as texts. Some servers send one block, a string, or a value.
const toList = (v) => Array.isArray(v) ? v : v === undefined || v === null ? [] : [v];
const toText = (v) => typeof v === "string" ? v : v === undefined || v === null ? "" : JSON.stringify(v);
const toBlocks = (content) => toList(content).map((b) => isObject(b) ? b : { type: "text", text: b });

// parseJSON leaves out "__proto__". JSON.parse makes it a normal property, and copying it would set a prototype.
function parseJSON(text) {
  if (!/__proto__|\\u00(?:5f|6f|7[024])/i.test(text)) return JSON.parse(text);
  return JSON.parse(text, (key, value) => key === "__proto__" ? undefined : value);
}

// JavaScript itself reads these names, so they are never tools. Otherwise to await or print a server would call one.
const isReserved = (name) => typeof name === "symbol" || name in Object.prototype || name === "then" || name === "toJSON";

// makeLookup returns a read-only object with the properties of target. missing(name) makes those with other names.
function makeLookup(target, missing) {
  return new Proxy(target, {
    get: (t, key) => key in t || isReserved(key) ? t[key] : missing(key),
    set: () => false,
    defineProperty: () => false,
    deleteProperty: () => false,
  });
}

// makePrintable returns an object that prints as the result of text().
function makePrintable(text) {
  return define({}, {
    toString: text,
    [Symbol.for("Deno.customInspect")]: text,
    [Symbol.for("nodejs.util.inspect.custom")]: text,
  });
}

function makeTool(server, name) {
  const callRaw = async (caller, args, options) => {
    const call = new Call(server, name, caller, options);
    return [call, await call.send("POST", [server, name], args)];
  };
  const tool = {
    async [name](args = {}, options) {
      const [call, answer] = await callRaw(tool, args, options);
      return await call.readResult(answer);
    },
  }[name];
  tool.raw = async function (args = {}, options) {
    const { _schema, _hint, ...result } = (await callRaw(tool.raw, args, options))[1];
    return result;
  };
  return tool;
}

function makeServer(name, known) {
  const target = Object.create(makePrintable(() => {
    const names = Object.keys(target).join(", ");
    return `mcp.${name} { ${names || `its tools are not known yet: await mcp.${name}.$tools()`} }`;
  }));
  const makeCall = (method, ...rest) => new Call(name, method, target[method], ...rest);
  define(target, {
    async $tools(options) {
      const { tools } = await makeCall("$tools", options).send("GET", [name]);
      addTools(tools.map((t) => t.name));
      return tools;
    },
    async $resources(options) {
      return await makeCall("$resources", options).send("GET", [name, "$resources"]);
    },
    async $read(uri, options) {
      const call = makeCall("$read", options), answer = await call.send("POST", [name, "$read"], { uri });
      return { ...answer, contents: await Promise.all(toList(answer.contents).map((r) => call.convertResource(r))) };
    },
    async $prompt(prompt, args = {}, options) {
      const call = makeCall("$prompt", options);
      const answer = await call.send("POST", [name, "$prompt"], { name: prompt, arguments: args });
      for (const m of toList(answer.messages)) {
        if (isObject(m.content) && m.content.type !== "text") m.content = await call.convertBlock(m.content);
      }
      return answer;
    },
  });
  const addTools = (names) => {
    for (const tool of names) {
      if (tool in target || isReserved(tool)) continue;
      Object.defineProperty(target, tool, { value: makeTool(name, tool), enumerable: true });
    }
  };
  addTools(known);
  return makeLookup(target, (tool) => makeTool(name, tool));
}

const all = Object.create(makePrintable(() => {
  const parts = Object.entries(servers).map(([name, tools]) => tools.length ? `${name}: ${tools.length} tools` : name);
  return `mcp { ${parts.join(", ")} }`;
}));
for (const [name, tools] of Object.entries(servers)) {
  if (isReserved(name)) continue;
  let made;
  Object.defineProperty(all, name, { get: () => made ??= makeServer(name, tools), enumerable: true });
}
const mcp = makeLookup(all, (name) => makeServer(name, []));

/** Runs calls, at most `limit` at once, and returns the settled results in order. A call is a function or promise. */
async function parallel(calls, { limit = 8 } = {}) {
  const list = [...calls], settled = new Array(list.length);
  for (const c of list) if (c instanceof Promise) c.catch(() => {}); // work reports it
  let next = 0;
  const runCalls = async () => {
    while (next < list.length) {
      const i = next++, c = list[i];
      try {
        settled[i] = { status: "fulfilled", value: await (typeof c === "function" ? c() : c) };
      } catch (reason) {
        settled[i] = { status: "rejected", reason };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(limit, list.length)) }, runCalls));
  return settled;
}

/** Stores values for later runs of the same MCP session. */
const stash = {
  async get(key) {
    return (await new Call("stash", "get", stash.get).send("POST", ["$stash", "get"], { key })).value;
  },
  async set(key, value, { ttl } = {}) {
    await new Call("stash", "set", stash.set).send("POST", ["$stash", "set"], { key, value, ttl_ms: ttl });
  },
  async delete(key) {
    await new Call("stash", "delete", stash.delete).send("POST", ["$stash", "delete"], { key });
  },
  async keys() {
    return (await new Call("stash", "keys", stash.keys).send("POST", ["$stash", "keys"], {})).keys;
  },
};

return { mcp, parallel, stash, McpError };
