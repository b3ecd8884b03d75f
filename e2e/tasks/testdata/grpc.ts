import http2 from "node:http2";
import { Buffer } from "node:buffer";

const client = http2.connect("https://h2.test");
const req = client.request({
  ":method": "POST", ":path": "/telemetry.Sensors/Stream", "content-type": "application/grpc", "te": "trailers",
  authorization: "Bearer PORTS_TOKEN",
});
req.end(Buffer.from([0, 0, 0, 0, 0])); // one empty message
let status: any, trailers: any = {}, buffer = Buffer.alloc(0), highest = -1, slowest = 0, n = 0;
req.on("response", (h) => (status = h[":status"]));
req.on("trailers", (h) => (trailers = h));
req.on("data", (chunk: Buffer) => {
  buffer = Buffer.concat([buffer, chunk]);
  while (buffer.length >= 5 && buffer.length >= 5 + buffer.readUInt32BE(1)) {
    const m = buffer.subarray(5, 5 + buffer.readUInt32BE(1));
    buffer = buffer.subarray(5 + m.length);
    n++;
    highest = Math.max(highest, m[1]);
    slowest = Math.max(slowest, Date.now() - Number(m.readBigUInt64LE(3)));
  }
});
await new Promise((done, fail) => { req.on("close", done); req.on("error", fail); });
client.close();
console.log(status, trailers["grpc-status"], n, "messages, highest", highest, "in time:", slowest < 50 || slowest);
