// Attempts to hold more memory than a run may. What they came to is measured from outside (see gauge).

// weighed: yes
// expected: ends at its limit
// judge: weighed(ended("more memory than its limit"))
// seconds: 90
// alone: yes

// name: buffers of workers, 700 MiB each
{
  const src =
    "const a = []; for (let n = 0; n < 11; n++) a.push(new Uint8Array(64 << 20).fill(1)); postMessage(1); setInterval(() => a, 1e6);";
  const all = [...Array(4)].map(() =>
    new Worker("data:application/javascript," + encodeURIComponent(src), { type: "module" })
  );
  await Promise.all(all.map((w) => new Promise((d) => w.onmessage = d)));
  await new Promise((d) => setTimeout(d, 1500));
  out({ seen: "took them all" });
}

// name: WebAssembly memories of 2.5 GiB
{
  const all = [];
  for (let n = 0; n < 5; n++) {
    const m = new WebAssembly.Memory({ initial: 8192, maximum: 8192, shared: n % 2 === 0 });
    new Uint8Array(m.buffer).fill(1);
    all.push(m);
  }
  await new Promise((d) => setTimeout(d, 1500));
  out({ seen: "took them all: " + all.length });
}

// name: blobs of 2.5 GiB
{
  const all = [];
  for (let n = 0; n < 40; n++) all.push(new Blob([new Uint8Array(64 << 20).fill(n)]));
  await new Promise((d) => setTimeout(d, 1500));
  out({ seen: "took them all: " + all.length });
}

// name: shared buffers of 2.5 GiB
{
  const all = [];
  for (let n = 0; n < 40; n++) all.push(new Uint8Array(new SharedArrayBuffer(64 << 20)).fill(1));
  await new Promise((d) => setTimeout(d, 1500));
  out({ seen: "took them all: " + all.length });
}

// name: databases in memory of 2.5 GiB
import { DatabaseSync } from "node:sqlite";
{
  const db = new DatabaseSync(":memory:");
  db.exec("create table a (b blob)");
  const add = db.prepare("insert into a values (zeroblob(67108864))");
  for (let n = 0; n < 40; n++) add.run();
  await new Promise((d) => setTimeout(d, 1500));
  out({ seen: "took them all" });
}

// name: files of 2.5 GiB in {dir}, open and removed
// judge: weighed(ended("that it had removed"))
// each: dir | absent
//   /tmp |
//   /skills | code cannot write there
// no pod: {absent}
// note: /tmp may be full before the limit is next checked; the code then holds what it has
{
  const all = [];
  let total = 0;
  try {
    for (let n = 0; n < 20; n++) {
      const path = "{dir}/TRIAL-" + n;
      const f = Deno.openSync(path, { write: true, createNew: true });
      Deno.removeSync(path);
      all.push(f);
      for (let k = 0; k < 127; k++) total += f.writeSync(new Uint8Array(1 << 20).fill(1));
      await new Promise((d) => setTimeout(d, 50));
    }
  } catch (e) {
    why(e);
  }
  await new Promise((d) => setTimeout(d, 5000));
  out({ seen: "held " + Math.floor(total / 2 ** 20) + " MiB to its end" });
}
