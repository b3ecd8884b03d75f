// The typed client of an API, which code imports as /apis/<name>.ts. ClientModule in client.go adds a line before it
// that defines `table`. The client calls fetch with token names, so the proxy checks and swaps as in other requests.

const operations = new Map((table.operations ?? []).map(([key, o]) => [key, {
  ...o, styles: new Map(o.styles), query: new Set(o.query), fields: new Set(o.fields),
}]));
const requestParts = ["path", "query", "headers", "body", "signal"];
const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
const getOwn = (o, key) => isObject(o) && Object.hasOwn(o, key) ? o[key] : undefined;

/** The error of an unsuccessful answer. `body` is its JSON or text. */
class ApiError extends Error {
  constructor(operation, response, body) {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    super(`${operation}: ${response.status} ${text.length > 600 ? text.slice(0, 600) + "…" : text}`.trim());
    Object.assign(this, { status: response.status, body, headers: response.headers });
    Object.defineProperty(this, "name", { value: "ApiError", enumerable: false });
  }
}

// fail throws a TypeError. Its stack begins at the code that called the client, not here.
function fail(message, caller) {
  const error = new TypeError(message);
  Error.captureStackTrace(error, caller);
  throw error;
}

// countSlips returns the number of wrong, extra, missing and swapped letters between two names. It ignores case and
// separators.
function countSlips(a, b) {
  [a, b] = [a, b].map((name) => name.toLowerCase().replace(/[-_. ]/g, ""));
  let row = [...b, ""].map((_, i) => i), before;
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1),
        isSwap ? before[j - 2] + 1 : Infinity));
    }
    [before, row] = [row, next];
  }
  return row[b.length];
}

// checkQuery throws if a parameter is probably a misspelt one of the document, because a server would ignore it. Other
// unknown parameters pass, because documents are not complete.
function checkQuery(name, given, known, caller) {
  const longest = 64;
  const removeDigits = (key) => key.replace(/[0-9]/g, ""); // address1 is not a slip for address2
  const unknown = Object.keys(given).filter((key) => !known.has(key) && key.length >= 4 && key.length <= longest);
  for (const key of unknown.slice(0, 20)) {
    const near = [...known].filter((k) => !Object.hasOwn(given, k) && k.length <= longest)
      .find((k) => countSlips(key, k) <= key.length / 4 && removeDigits(key) !== removeDigits(k));
    if (near !== undefined) {
      fail(`${name}: query has no ${JSON.stringify(key)}; did you mean ${JSON.stringify(near)}?`, caller);
    }
  }
}

function findOperation(name, input, caller) {
  const operation = operations.get(name);
  if (!operation && table.note) fail(table.note, caller);
  if (!operation) {
    fail(`${JSON.stringify(name)} is no operation of ${table.name} that this code names. Write an operation as one ` +
      `literal, e.g. ${table.call}("GET /path/{id}", {path: {id}}); list_apis with query finds it`, caller);
  }
  if (!isObject(input)) fail(`${name}: want an object with ${requestParts.join(", ")}`, caller);
  const odd = Object.keys(input).find((k) => !requestParts.includes(k));
  if (odd !== undefined) fail(`${name}: ${JSON.stringify(odd)} is not a part of a request; want ${requestParts.join(", ")}`, caller);
  if (isObject(input.query)) checkQuery(name, input.query, operation.query, caller);
  return operation;
}

function formatScalar(v) {
  if (v instanceof Date) return v.toISOString();
  return typeof v === "object" && v !== null ? JSON.stringify(v) : String(v);
}

// addParam appends one parameter in its style. Without a style, each item of a list and each field of an object becomes
// a parameter. With deep, the names of nested fields have brackets.
function addParam(params, name, value, style, deep) {
  if (value === undefined || value === null) return;
  const nested = typeof value === "object" && !(value instanceof Date);
  if (!nested) return params.append(name, formatScalar(value));
  const list = Array.isArray(value);
  if (style === "json") return params.append(name, JSON.stringify(value));
  const between = { comma: ",", space: " ", pipe: "|", tab: "\t" }[style];
  if (between) {
    const flat = list ? value : Object.entries(value).flat();
    return params.append(name, flat.map(formatScalar).join(between));
  }
  const brackets = style === "deep" || (list ? deep && value.some((v) => typeof v === "object" && v !== null) : deep);
  for (const [key, v] of Object.entries(value)) {
    if (brackets) addParam(params, `${name}[${key}]`, v, "deep", true);
    else addParam(params, list ? name : key, v, undefined, deep);
  }
}

function buildURL(name, operation, input, caller) {
  const fillParameter = (key, quoted) => {
    const many = key.endsWith("+"), what = many ? key.slice(0, -1) : key;
    let v = getOwn(input.path, what);
    if (v === undefined || v === null || v === "") fail(`${name} needs path: {${JSON.stringify(what)}: ...}`, caller);
    if (quoted) v = formatScalar(v).replaceAll("'", "''"); // OData doubles a quote in a string
    // A URL parser would resolve dots, even escaped ones.
    const segments = many ? formatScalar(v).split("/") : [formatScalar(v)];
    if (segments.some((s) => s === "." || s === "..")) fail(`${name}: ${JSON.stringify(v)} is no ${what}`, caller);
    return segments.map(encodeURIComponent).join("/");
  };
  const path = name.slice(name.indexOf(" ") + 1).replace(/('?)\{([^{}]+)\}(?=('?))/g,
    (_, before, key, after) => before + fillParameter(key, before === "'" && after === "'"));
  const params = new URLSearchParams();
  for (const [key, v] of Object.entries(input.query ?? {})) addParam(params, key, v, operation.styles.get(key), false);
  for (const a of table.auth ?? []) if (a.query && !params.has(a.query)) params.set(a.query, a.value);
  const query = params.toString();
  return (operation.server ?? table.server) + path + (query && (path.includes("?") ? "&" : "?") + query);
}

const formType = "application/x-www-form-urlencoded", multipartType = "multipart/form-data";

// encodeBody returns a body for fetch, and its media type if fetch does not add one.
function encodeBody(operation, method, body) {
  const media = operation.media ?? "application/json";
  if (body === undefined) { // an empty form, because servers want its type
    return [media === formType && /^(POST|PUT|PATCH)$/.test(method) ? new URLSearchParams() : undefined];
  }
  if (body instanceof FormData || body instanceof URLSearchParams) return [body];
  if (body instanceof Blob || body instanceof ReadableStream || body instanceof ArrayBuffer || ArrayBuffer.isView(body)) {
    return [body, media];
  }
  if (media === formType && isObject(body)) {
    const params = new URLSearchParams();
    for (const [key, v] of Object.entries(body)) addParam(params, key, v, operation.styles.get(key), true);
    return [params];
  }
  if (media === multipartType && isObject(body)) {
    const data = new FormData();
    for (const [key, v] of Object.entries(body)) {
      for (const one of Array.isArray(v) ? v : [v]) {
        if (one !== undefined && one !== null) data.append(key, one instanceof Blob ? one : formatScalar(one));
      }
    }
    return [data];
  }
  const json = /^application\/json$|\+json$/.test(media);
  if (typeof body === "string" && (!json || /^\s*[[{]/.test(body))) return [body, media];
  return [JSON.stringify(body), media];
}

async function sendRequest(name, operation, input, url, caller) {
  const headers = new Headers();
  for (const [key, v] of Object.entries(input.headers ?? {})) if (v !== undefined && v !== null) headers.set(key, formatScalar(v));
  for (const a of table.auth ?? []) {
    if (a.header && !headers.has(a.header)) {
      headers.set(a.header, a.basic ? "Basic " + btoa(a.basic.join(":")) : a.value);
    }
  }
  const method = name.slice(0, name.indexOf(" "));
  const [body, media] = encodeBody(operation, method, input.body);
  if (media && !headers.has("content-type")) headers.set("content-type", media);
  return await fetch(url ?? buildURL(name, operation, input, caller), { method, headers, body, signal: input.signal });
}

// sendWithRetries sends a repeatable request up to four times while the server is busy. It waits for Retry-After, or
// for 1, 2 and 4 s. If the wait exceeds 30 s, or ends within 2 s of the run's end, code gets the busy answer.
async function sendWithRetries(name, operation, input, url, caller) {
  const repeatable = /^(GET|HEAD|OPTIONS|PUT|DELETE) /.test(name) && !(input.body instanceof ReadableStream);
  for (let pause = 1; ; pause *= 2) {
    const response = await sendRequest(name, operation, input, url, caller);
    const told = response.headers.get("retry-after");
    const busy = [429, 500, 502, 503, 504].includes(response.status);
    if (!repeatable || !busy || pause > 4) return response;
    const date = (Date.parse(told ?? "") - Date.now()) / 1000;
    const wait = [told === null ? NaN : Number(told), date].find((s) => s >= 0) ?? pause;
    if (wait > 30 || Date.now() + 1000 * wait + 2000 > (table.end ?? Infinity)) return response;
    const text = await response.clone().text().catch(() => "");
    if (/^\{"error":.*"code":.*"hint":/s.test(text)) return response; // a retry does not change a refusal
    await response.body?.cancel();
    await new Promise((done, fail) => {
      const stopWaiting = () => (clearTimeout(timer), fail(input.signal.reason));
      const timer = setTimeout(() => (input.signal?.removeEventListener("abort", stopWaiting), done()), 1000 * wait);
      input.signal?.addEventListener("abort", stopWaiting);
    });
  }
}

// readBody returns a body as JSON, text or Blob, or undefined if JSON or a Blob is empty.
async function readBody(response) {
  const media = response.headers.get("content-type") ?? "";
  if (/^(text\/|application\/(xml|javascript|x-ndjson))|\+xml/i.test(media)) return await response.text();
  if (media && !/json/i.test(media)) {
    const data = await response.blob();
    return data.size ? data : undefined;
  }
  const text = await response.text();
  if (text === "") return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// guardPlanned returns an answer that throws if code reads a field that it lacks. A dry run did not send its request,
// so a later step would lack the value.
function guardPlanned(name, body) {
  return new Proxy(body, {
    get(target, key) {
      const isOwn = typeof key === "symbol" || Object.hasOwn(target, key);
      if (isOwn || key === "then" || key === "toJSON") return target[key];
      throw new TypeError(`${name} was not sent: it is step ${target.planned} of the plan of this dry run, so its answer ` +
        `has no ${JSON.stringify(key)}. Approve the plan up to it, or run without dry_run`);
    },
  });
}

async function callOperation(name, operation, input, url, caller) {
  const at = {};
  Error.captureStackTrace(at, caller);
  const response = await sendWithRetries(name, operation, input, url, caller), body = await readBody(response);
  const isPlanned = response.status === 202 && response.headers.has("codeforge-planned") && isObject(body);
  if (isPlanned) return { response, body: guardPlanned(name, body) };
  if (response.ok) return { response, body };
  const error = new ApiError(name, response, body instanceof Blob ? await body.text() : body ?? response.statusText);
  error.stack = at.stack.replace(/^[^\n]*/, () => `ApiError: ${error.message}`);
  throw error;
}

// arrayKeys are the properties that usually hold the list of an answer, the likeliest first.
const arrayKeys = ["data", "items", "results", "value", "values", "entries", "records", "objects", "nodes", "elements"];

// findList returns an answer's list: at place, at a usual or documented property, or the only array. Else undefined.
function findList(body, place, documented) {
  if (place !== undefined) return ((v) => Array.isArray(v) ? v : undefined)(lookUp(body, place));
  if (Array.isArray(body)) return body;
  for (const key of [...arrayKeys, documented]) if (Array.isArray(getOwn(body, key))) return body[key];
  let arrays = isObject(body) ? Object.keys(body).filter((key) => Array.isArray(body[key])) : [];
  if (arrays.length > 1) arrays = arrays.filter((key) => !/^(_?links|errors|warnings)$/i.test(key));
  if (arrays.length === 1) return body[arrays[0]];
  return arrayKeys.some((key) => getOwn(body, key) === null) ? [] : undefined; // some APIs send null for an empty list
}

const lookUp = (body, place) => place.split("/").reduce((o, key) => getOwn(o, key), body);

// findFirst returns the first text or number at one of the places of an answer, or undefined.
function findFirst(body, places) {
  for (const place of places) {
    const v = lookUp(body, place);
    if (typeof v === "string" && v !== "" || typeof v === "number") return v;
  }
}

const nextLinks = [
  "next", "next/href", "nextLink", "@odata.nextLink", "next_page_url", "next_url", "next_href", "nextPageUrl", "next_page",
  "next_page_uri", "next_uri", "next_link", "nextRecordsUrl",
  "links/next", "links/next/href", "_links/next", "_links/next/href", "paging/next", "paging/next/link",
  "pagination/next", "pagination/next_url", "meta/next", "meta/next_page_url",
];
// cursors pairs the places of a cursor for the next page in an answer with the parameters that take the cursor.
const cursors = [
  [["nextPageToken", "next_page_token"], ["pageToken", "page_token", "nextPageToken"]],
  [["nextToken", "NextToken", "next_token", "meta/next_token"],
    ["nextToken", "NextToken", "next_token", "pagination_token"]],
  [["next_cursor", "nextCursor", "response_metadata/next_cursor", "meta/next_cursor", "pagination/next_cursor",
    "pagination/nextCursor", "paging/cursors/after", "paging/next/after", "meta/cursor/next", "cursor/next", "cursor", "after",
    "next"],
    ["cursor", "start_cursor", "next_cursor", "nextCursor", "page_cursor", "after", "starting_after", "page[cursor]",
      "page[after]"]],
  [["metadata/continue", "continue"], ["continue"]],
  [["offset", "next_offset", "nextOffset"], ["offset"]],
  [["next_page", "nextPage", "meta/next_page", "pagination/next_page", "next"], ["page", "page_number", "pageNumber"]],
];

// findNextRequest returns the request of the next page, with its url or its input. It returns undefined after the last
// page. Without a next link or cursor, a page is the last one if a link led to it (linked), or if a link is null. A
// page with fewer items than requested is the last one if the page before had more, or if the first page has the total.
// Otherwise the API may have a lower limit, and findNextRequest returns the next page to find out (probe).
function findNextRequest(name, operation, { input, linked, response, body, items, before }, caller) {
  let link = /<([^<>]*)>[^<]*?;\s*rel="?next"?/i.exec(response.headers.get("link") ?? "")?.[1];
  if (link === undefined) {
    link = nextLinks.map((l) => findFirst(body, [l])).find((v) => /^(https?:\/)?\//.test(v));
  }
  if (link !== undefined) {
    const url = new URL(link, response.url);
    if (url.origin !== new URL(response.url).origin) fail(`${name}: the next page is at ${url.origin}`, caller);
    return { url: url.href };
  }
  if (response.headers.has("link") && /rel="?(prev|first|last)/i.test(response.headers.get("link"))) return;
  const setParameter = (key, value) => {
    const part = operation.query.has(key) ? "query" : "body";
    return { input: { ...input, [part]: { ...input[part], [key]: value } } };
  };
  const findParameter = (keys) => keys.find((k) => operation.query.has(k) || operation.fields.has(k));
  const last = [body?.has_more, body?.hasMore, body?.has_next_page];
  if (body?.isLast === true || body?.last === true) return;
  if (last.includes(false)) return;
  for (const [places, keys] of cursors) {
    const key = findParameter(keys), value = key && findFirst(body, places);
    if (value !== undefined) return setParameter(key, value);
  }
  if (items.length === 0) return;
  if (!last.includes(true) && (linked || nextLinks.some((l) => lookUp(body, l) === null))) return;
  const after = findParameter(["starting_after"]), id = getOwn(items.at(-1), "id");
  if (after && id !== undefined) return last.includes(true) ? setParameter(after, id) : undefined;
  if (findParameter(["cursor", "page_token", "pageToken", "start_cursor", "after", "continue"]) !== undefined) return;
  const readRequested = (key) => Number(getOwn(input.query, key) ?? getOwn(input.body, key));
  const size = findParameter(["per_page", "page_size", "pageSize", "perPage", "limit", "size", "count", "maxResults"]);
  const probe = size !== undefined && readRequested(size) > items.length;
  const total = findFirst(body, ["total", "total_count", "totalCount", "meta/total"]);
  if (probe && (items.length < before?.length || !before && total <= items.length)) return;
  const guessNext = (key, value) => ({ ...setParameter(key, value), probe, guess: true });
  const page = findParameter(["page", "page_number", "pageNumber"]);
  if (page) {
    const told = ["page", "current_page", "meta/page", "meta/current_page", "number", "page/number", "pageNumber"];
    const number = [readRequested(page), findFirst(body, told), 1].find(Number.isInteger);
    const pages = findFirst(body, ["total_pages", "totalPages", "meta/total_pages", "pages", "last_page"]);
    return typeof pages === "number" && number >= pages ? undefined : guessNext(page, number + 1);
  }
  const offset = findParameter(["offset", "skip", "start", "startAt"]);
  if (offset) {
    const reached = (readRequested(offset) || 0) + items.length;
    return typeof total === "number" && reached >= total ? undefined : guessNext(offset, reached);
  }
}

/** Calls an operation and returns the body of its answer. Throws an ApiError if it is not successful. */
async function api(operation, input = {}) {
  return (await callOperation(operation, findOperation(operation, input, api), input, undefined, api)).body;
}

/** Calls an operation once and returns its Response, with any status. */
api.raw = async function raw(operation, input = {}) {
  return await sendRequest(operation, findOperation(operation, input, raw), input, undefined, raw);
};

/** Calls an operation that returns lists, and yields their items one by one, page after page. The third argument is the
 * path of the list in an answer, e.g. "result/rows". */
api.pages = async function* pages(operation, input = {}, place = undefined) {
  const found = findOperation(operation, input, pages), seen = new Set();
  for (let next = { input }, before; next;) {
    const request = next.input ?? input;
    let answer;
    try {
      answer = await callOperation(operation, found, request, next.url, pages);
    } catch (error) {
      if (next.probe && [400, 404, 416, 422].includes(error.status)) return; // some APIs refuse a page after the last
      throw error;
    }
    const { response, body } = answer, items = findList(body, place, found.list);
    if (!items) {
      const keys = Object.keys(body ?? {}), some = keys.find((key) => Array.isArray(body[key]));
      fail(`${operation} answers no list${place === undefined ? "" : ` at ${JSON.stringify(place)}`}: ` +
        JSON.stringify(keys).slice(0, 200) + (some === undefined ? "" : `; name the right one: ${table.call}.pages(` +
        `${JSON.stringify(operation)}, {...}, ${JSON.stringify(some)})`), pages);
    }
    if (next.guess && items.some(isObject) && JSON.stringify(items) === JSON.stringify(before)) return; // one page only
    yield* items;
    next = findNextRequest(operation, found,
      { input: request, linked: next.url !== undefined, response, body, items, before }, pages);
    before = items;
    const key = next && JSON.stringify([next.url, next.input?.query, next.input?.body]);
    if (seen.has(key)) return; // the API repeats a page
    seen.add(key);
  }
};
