/**
 * @description Page through a list API (cursor in the body, next link in the Link header, or page number) and collect or stream its items.
 *
 *   import { pages } from "/skills/page-through.ts";
 *   let n = 0;
 *   for await (const item of pages("https://api.example.com/v1/charges?limit=100", {
 *     headers: { Authorization: "Bearer EXAMPLE_TOKEN" },
 *     items: (body) => body.data,
 *     next: (body) => body.has_more ? { starting_after: body.data.at(-1).id } : null,
 *   })) n++;
 *   console.log(n);
 */

export interface Paging {
  headers?: HeadersInit;
  /** Returns the items of one page. The default is the body if it is an array, or else the first array in it. */
  // deno-lint-ignore no-explicit-any
  items?: (body: any) => unknown[];
  /** Returns the query parameters or address of the next page, or null to end. The default reads the Link header. */
  // deno-lint-ignore no-explicit-any
  next?: (body: any, answer: Response) => Record<string, string | number> | string | null | undefined;
  /** Ends after so many pages. Without it, more than 100 pages are an error, because next may be wrong. */
  maxPages?: number;
  /** The wait between pages in milliseconds (default 0). */
  pause?: number;
}

/** Yields every item of every page. Sends a request up to 5 times at 429, 500 or 502 to 504, after Retry-After. */
// deno-lint-ignore no-explicit-any
export async function* pages(first: string, how: Paging = {}): AsyncGenerator<any> {
  const seen = new Set<string>();
  let url: string | null = first;
  for (let page = 0; url && page < (how.maxPages ?? 100); page++) {
    if (seen.has(url)) throw new Error(`the next page was read before: ${url}`);
    seen.add(url);
    if (page > 0 && how.pause) await sleep(how.pause);
    const answer = await patient(url, how.headers);
    const body = await answer.json();
    yield* (how.items ?? firstArray)(body);
    url = following(url, how.next ? how.next(body, answer) : linkNext(answer));
  }
  if (url && how.maxPages === undefined) {
    throw new Error("stopped after 100 pages, and there are more: give maxPages");
  }
}

/** Returns all items as one array; use pages() to count or filter many. An error has the earlier ones in items. */
// deno-lint-ignore no-explicit-any
export async function all(first: string, how: Paging = {}): Promise<any[]> {
  // deno-lint-ignore no-explicit-any
  const items: any[] = [];
  try {
    for await (const item of pages(first, how)) items.push(item);
  } catch (error) {
    throw Object.assign(error as Error, { items });
  }
  return items;
}

async function patient(url: string, headers?: HeadersInit): Promise<Response> {
  for (let attempt = 1; ; attempt++) {
    const answer = await fetch(url, { headers });
    if (answer.ok) return answer;
    const text = (await answer.text()).slice(0, 300);
    if (attempt === 5 || ![429, 500, 502, 503, 504].includes(answer.status)) {
      throw new Error(`${url} answered ${answer.status}: ${text}`);
    }
    const wait = Number(answer.headers.get("retry-after"));
    await sleep(1000 * Math.min(wait > 0 ? wait : 2 ** attempt, 30));
  }
}

function following(url: string, next: Record<string, string | number> | string | null | undefined): string | null {
  if (next === null || next === undefined || next === "") return null;
  const to = new URL(typeof next === "string" ? next : url, url);
  if (typeof next !== "string") {
    for (const [key, value] of Object.entries(next)) to.searchParams.set(key, String(value));
  }
  if (to.origin !== new URL(url).origin) throw new Error(`the next page is at another origin: ${to.origin}`);
  return to.href;
}

function linkNext(answer: Response): string | null {
  for (const part of (answer.headers.get("link") ?? "").split(/,\s*(?=<)/)) {
    const match = part.match(/^<([^>]+)>(.*)$/);
    if (match && /;\s*rel="?([^"]*\s)?next(\s[^"]*)?"?(;|$)/i.test(match[2])) return match[1];
  }
  return null;
}

function firstArray(body: unknown): unknown[] {
  if (Array.isArray(body)) return body;
  for (const value of Object.values((body ?? {}) as Record<string, unknown>)) {
    if (Array.isArray(value)) return value;
  }
  throw new Error("no array in the page; give items: (body) => ...");
}

const sleep = (ms: number) => new Promise((done) => setTimeout(done, ms));
