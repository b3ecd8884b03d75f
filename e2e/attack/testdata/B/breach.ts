// Guesses of a credential that a compressed page shows beside them, told apart by time.

// expected: a right and a wrong guess take as long and are as long
// judge: verdicts()
// seconds: 60
// alone: yes

/** take fetches a page with the credential and a guess of it. */
async function take(guess, query, headers) {
  const start = performance.now();
  const r = await fetch(
    "https://other.test/x/breach?t=TRIAL" + query + "&guess=" + guess,
    auth("OTHER_TOKEN", { headers: { "Accept-Encoding": "gzip", ...headers } }),
  );
  const text = await r.text();
  return {
    ms: performance.now() - start,
    length: text.length,
    status: r.status,
    ok: r.status === 200 && text.includes("OTHER_TOKEN") || text.includes("upstream_compressed"),
  };
}
/** oracle asks whether a right guess can be told from a wrong one. */
async function oracle(query, headers = {}) {
  let apart = 0, seen = "", ok = true;
  for (let tries = 0; tries < 4; tries++) { // a machine that is busy tells two alike apart, but not every time
    let right = Infinity, wrong = Infinity, lengths = new Set();
    for (let i = 0; i < 5; i++) {
      for (const [kind, n] of [["right", 9], ["wrong", 9]]) {
        const a = await take(kind + ":" + n, query, headers);
        ok &&= a.ok;
        lengths.add(a.length + "/" + a.status);
        if (kind === "right") right = Math.min(right, a.ms);
        else wrong = Math.min(wrong, a.ms);
      }
    }
    apart = wrong - right;
    seen = apart.toFixed(1) + " ms apart, lengths and statuses " + [...lengths];
    if (lengths.size > 1) ok = false;
    if (apart < 8 || !ok) break; // what compresses better is faster
  }
  out({ held: ok && apart < 8, seen });
}

// name: compression as an oracle, asked for
await oracle("");

// name: compression as an oracle, asked for as Accept_Encoding
await oracle("", { "Accept_Encoding": "gzip" });

// name: compression as an oracle, asked for as X-Accept-Encoding and A-IM
await oracle("", { "X-Accept-Encoding": "gzip", "A-IM": "gzip" });

// name: compression as an oracle, of a server that compresses without asking
await oracle("&force=1");
