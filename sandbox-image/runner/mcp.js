// The globals of a run: mcp, parallel, stash and McpError. This is the body of a function
// of `servers`, the names of those servers with the names of their tools as far as they are known. warm.js compiles it
// when one of the globals is first used. Code could replace all of it: what a run may call is decided by the proxy.

const host = "https://mcp.codeforge.internal/";
const folder = Deno.cwd(); // the run's own, or /tmp

// define sets properties that enumeration does not show.
function define(target, properties) {
  for (const key of Reflect.ownKeys(properties)) {
    Object.defineProperty(target, key, { value: properties[key], writable: true, enumerable: false, configurable: true });
  }
  return target;
}

/** A call that failed. `text` and `structured` are the tool's own words; `code`, `retryable` and `hint` say what to do. */
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

// A request is known by its server and tool. Its error is made when the call is, so that the stack shows who called.
class Call {
  constructor(server, tool, caller, options = {}) {
    this.server = server;
    this.tool = tool;
    this.options = options ?? {};
    this.error = new McpError("");
    Error.captureStackTrace(this.error, caller);
  }

  // failure completes the error. An uncaught error prints only its message, which therefore names the call and the hint.
  failure(why, code, about = {}) {
    const where = `${this.server}.${this.tool}`;
    let message = why.startsWith(where) ? why : `${where}: ${why}`;
    if (about.hint) message += (/[.!?]$/.test(message) ? " " : ". ") + about.hint;
    define(this.error, { message });
    const stack = this.error.stack;
    if (stack.includes("ext:codeforge/")) { // called by parallel. Deno remembers the frames of a stack that has been read
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
      request.body = this.json(value);
    }
    let response, text;
    try {
      response = await fetch(host + path.map((p) => this.segment(p)).join("/"), request);
      text = await response.text();
    } catch (cause) {
      if (cause === this.error || signal?.aborted) throw cause;
      throw this.failure(`the connection broke: ${cause?.message ?? cause}`, "connection_lost", { cause });
    }
    let answer;
    try {
      answer = parse(text);
    } catch { /* it is not CodeForge that answered: below */ }
    if (response.ok && isObject(answer)) return answer;
    const { error, code, retryable, hint, data } = isObject(answer) ? answer : {};
    throw this.failure(String(error ?? `the answer had status ${response.status}`), code ?? "bad_answer", {
      retryable: retryable === true, ...(hint && { hint: String(hint) }), ...(data !== undefined && { data }),
    });
  }

  json(value) {
    let text, why = "want one object of arguments";
    try {
      if (isObject(value)) text = JSON.stringify(value);
    } catch (cause) {
      why = `the arguments cannot be written as JSON: ${cause.message}`;
    }
    if (text === undefined) throw this.failure(why, "bad_arguments");
    return text;
  }

  // segment is a name as a part of the path. A URL parser would resolve dots, also escaped ones.
  segment(name) {
    if (/^\.{0,2}$/.test(name)) throw this.failure(`${JSON.stringify(name)} is no name`, "bad_arguments");
    return encodeURIComponent(name).replaceAll("%24", "$");
  }

  // value is what a call returns of a CallToolResult.
  async value({ content, structuredContent, isError, _schema, _hint, _meta, resultType, ...rest }) {
    const blocks = blocksOf(content);
    const text = blocks.filter((b) => b.type === "text").map((b) => textOf(b.text)).join("\n");
    if (isError) {
      throw this.failure(text || "the tool failed without a reason", "tool_error", {
        text, ...(structuredContent !== undefined && { structured: structuredContent }), ...(_hint && { hint: _hint }),
      });
    }
    if (structuredContent !== undefined && structuredContent !== null) return structuredContent;
    if (content === undefined && Object.keys(rest).length > 0) return rest; // such as toolResult of 2024
    if (blocks.some((b) => b.type !== "text")) {
      const all = await Promise.all(blocks.map((b) => this.block(b)));
      return all.length === 1 ? all[0] : all;
    }
    if (_schema || !/^\s*[[{]/.test(text)) return text;
    try {
      return parse(text);
    } catch {
      return text;
    }
  }

  // block is one content block: text, or a file for what is not text, or the block itself.
  async block(b) {
    switch (b.type) {
      case "text": return textOf(b.text);
      case "image": case "audio": return await this.file(b.data, b.mimeType);
      case "resource": return await this.resource(b.resource);
    }
    return b;
  }

  async resource(r) {
    if (r?.blob === undefined) return r;
    return { uri: r.uri, ...await this.file(r.blob, r.mimeType) };
  }

  async file(base64, mimeType = "application/octet-stream") {
    const [, kind = "bin"] = /^\w+\/(?:x-)?([a-z0-9]{1,10})\b/.exec(mimeType) ?? [];
    const extension = { plain: "txt", jpeg: "jpg", mpeg: "mp3", octet: "bin" }[kind] ?? kind;
    const path = `${folder}/mcp-${crypto.randomUUID().slice(0, 13)}.${extension}`;
    let bytes;
    try {
      bytes = Uint8Array.fromBase64(base64);
    } catch {
      throw this.failure(`sent ${mimeType} that is not base64`, "server_error");
    }
    await Deno.writeFile(path, bytes, { createNew: true });
    return { path, mimeType, bytes: bytes.length };
  }
}

function isObject(v) {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

// The protocol wants a list of blocks, whose texts are strings. Some servers send one block, a string, or a value.
const listOf = (v) => Array.isArray(v) ? v : v === undefined || v === null ? [] : [v];
const textOf = (v) => typeof v === "string" ? v : v === undefined || v === null ? "" : JSON.stringify(v);
const blocksOf = (content) => listOf(content).map((b) => isObject(b) ? b : { type: "text", text: b });

// JSON.parse makes "__proto__" a property like any other. Code that copies it would set a prototype, so it is left out.
function parse(text) {
  if (!/__proto__|\\u00(?:5f|6f|7[024])/i.test(text)) return JSON.parse(text);
  return JSON.parse(text, (key, value) => key === "__proto__" ? undefined : value);
}

// JavaScript itself looks these names up, so they are never tools: awaiting or printing a server calls nothing.
const isReserved = (name) => typeof name === "symbol" || name in Object.prototype || name === "then" || name === "toJSON";

// lookup is an object with the properties of target, in which every other name is made by missing.
function lookup(target, missing) {
  return new Proxy(target, {
    get: (t, key) => key in t || isReserved(key) ? t[key] : missing(key),
    set: () => false,
    defineProperty: () => false,
    deleteProperty: () => false,
  });
}

// printing makes an object that prints as text().
function printing(text) {
  return define({}, {
    toString: text,
    [Symbol.for("Deno.customInspect")]: text,
    [Symbol.for("nodejs.util.inspect.custom")]: text,
  });
}

function makeTool(server, name) {
  const raw = async (caller, args, options) => {
    const call = new Call(server, name, caller, options);
    return [call, await call.send("POST", [server, name], args)];
  };
  const tool = {
    async [name](args = {}, options) {
      const [call, answer] = await raw(tool, args, options);
      return await call.value(answer);
    },
  }[name];
  tool.raw = async function (args = {}, options) {
    const { _schema, _hint, ...result } = (await raw(tool.raw, args, options))[1];
    return result;
  };
  return tool;
}

function makeServer(name, known) {
  const target = Object.create(printing(() => {
    const names = Object.keys(target).join(", ");
    return `mcp.${name} { ${names || `its tools are not known yet: await mcp.${name}.$tools()`} }`;
  }));
  const ask = (method, ...rest) => new Call(name, method, target[method], ...rest);
  define(target, {
    async $tools(options) {
      const { tools } = await ask("$tools", options).send("GET", [name]);
      learn(tools.map((t) => t.name));
      return tools;
    },
    async $resources(options) {
      return await ask("$resources", options).send("GET", [name, "$resources"]);
    },
    async $read(uri, options) {
      const call = ask("$read", options), answer = await call.send("POST", [name, "$read"], { uri });
      return { ...answer, contents: await Promise.all(listOf(answer.contents).map((r) => call.resource(r))) };
    },
    async $prompt(prompt, args = {}, options) {
      const call = ask("$prompt", options);
      const answer = await call.send("POST", [name, "$prompt"], { name: prompt, arguments: args });
      for (const m of listOf(answer.messages)) {
        if (isObject(m.content) && m.content.type !== "text") m.content = await call.block(m.content);
      }
      return answer;
    },
  });
  const learn = (names) => {
    for (const tool of names) {
      if (tool in target || isReserved(tool)) continue;
      Object.defineProperty(target, tool, { value: makeTool(name, tool), enumerable: true });
    }
  };
  learn(known);
  return lookup(target, (tool) => makeTool(name, tool));
}

const all = Object.create(printing(() => {
  const parts = Object.entries(servers).map(([name, tools]) => tools.length ? `${name}: ${tools.length} tools` : name);
  return `mcp { ${parts.join(", ")} }`;
}));
for (const [name, tools] of Object.entries(servers)) {
  if (isReserved(name)) continue;
  let made;
  Object.defineProperty(all, name, { get: () => made ??= makeServer(name, tools), enumerable: true });
}
const mcp = lookup(all, (name) => makeServer(name, []));

/** Runs calls, at most `limit` at once, and gives their settled results in order. A call is a function, or a promise. */
async function parallel(calls, { limit = 8 } = {}) {
  const list = [...calls], settled = new Array(list.length);
  for (const c of list) if (c instanceof Promise) c.catch(() => {}); // its result is reported below
  let next = 0;
  const work = async () => {
    while (next < list.length) {
      const i = next++, c = list[i];
      try {
        settled[i] = { status: "fulfilled", value: await (typeof c === "function" ? c() : c) };
      } catch (reason) {
        settled[i] = { status: "rejected", reason };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(limit, list.length)) }, work));
  return settled;
}

/** Values that later runs of the same MCP session find again. */
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
