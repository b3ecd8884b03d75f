const stop = new AbortController();
const r = await fetch("https://deploys.limited.test/deploys/d-17/events", {
  headers: { Authorization: "Bearer SHARED_B_TOKEN", Accept: "text/event-stream" },
  signal: stop.signal,
});
if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
let buffer = "";
loop: for await (const chunk of r.body!.pipeThrough(new TextDecoderStream())) {
  buffer += chunk;
  const events = buffer.split(/\r?\n\r?\n/);
  buffer = events.pop()!;
  for (const e of events) {
    const data = e.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trim()).join("\n");
    if (!data) continue;
    const step = JSON.parse(data);
    if (step.state === "failed") {
      console.log("first failure:", step.step, step.message);
      stop.abort();
      break loop;
    }
  }
}
