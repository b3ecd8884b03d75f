// The globals of a run. Names that the types of an API may use have types here. The other names are any, because the
// check covers only the use of APIs.
declare class Blob {
  constructor(parts?: any[], options?: any);
  readonly size: number;
  readonly type: string;
  text(): Promise<string>;
  bytes(): Promise<Uint8Array>;
  arrayBuffer(): Promise<ArrayBuffer>;
  stream(): any;
  slice(start?: number, end?: number, type?: string): Blob;
}
declare class File extends Blob {
  constructor(parts: any[], name: string, options?: any);
  readonly name: string;
}
declare class FormData {
  append(name: string, value: any, file?: string): void;
  set(name: string, value: any, file?: string): void;
  get(name: string): any;
  readonly [Symbol.toStringTag]: "FormData";
}
declare class URLSearchParams {
  constructor(init?: any);
  append(name: string, value: any): void;
  set(name: string, value: any): void;
  get(name: string): any;
  readonly [Symbol.toStringTag]: "URLSearchParams";
}
declare class ReadableStream {
  constructor(...init: any[]);
  getReader(options?: any): any;
  readonly [Symbol.toStringTag]: "ReadableStream";
}
declare var Deno: any, console: any, fetch: any, crypto: any, performance: any, navigator: any, localStorage: any;
declare var setTimeout: any, setInterval: any, clearTimeout: any, clearInterval: any, queueMicrotask: any;
declare var structuredClone: any, atob: any, btoa: any, alert: any, prompt: any, confirm: any;
declare var URL: any, Headers: any, Request: any, Response: any, AbortController: any, AbortSignal: any, Event: any;
declare var EventTarget: any, TextEncoder: any, TextDecoder: any, WritableStream: any, TransformStream: any;
declare var WebSocket: any, CompressionStream: any, DecompressionStream: any, Worker: any, DOMException: any;
declare var show: any, mcp: any, parallel: any, stash: any, McpError: any, process: any, Buffer: any, global: any;
declare type URL = any;
declare type Headers = any;
declare type Request = any;
declare type Response = any;
declare type AbortController = any;
declare type AbortSignal = any;
interface ImportMeta {
  [key: string]: any;
}
