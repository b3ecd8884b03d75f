"""Turns the vectors of a table so that a question is nearer to its operation than to others.

    python rank.py CORPUS QUESTIONS TABLE

In the table of train.py, the vector of a text points where the whole model's vector points. It measures how similar two
texts are, but not which words of a question decide between the operations of one API. Each step takes 24 documents with
questions and 20 without, and lowers the cross entropy of the right operation: half among the operations of its
document, half among those of all documents.
It takes two minutes on one quiet core.
"""
import collections, json, os, re, sys
import numpy as np, scipy.sparse as sp
from train import STOP, save_rows

EPOCHS, RATE, TEMPERATURE, DOCUMENTS, OTHERS, KEEP = 12, 0.015, 0.07, 24, 20, 1e-3


def words(text):
    """Does the same as search.EachWord, for ASCII."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text.replace("'", ""))
    found = re.findall(r"[^\W_]+", re.sub(r"([A-Z]{2,})([A-Z][a-z])", r"\1 \2", text).lower())
    return [w for w in found if len(w) <= 32 and not re.fullmatch(r"v\d+|\d{4,}", w)]


class Table:
    def __init__(self, folder):
        self.names = open(os.path.join(folder, "vocab.txt")).read().split("\n")[:-1]
        self.row = {w: i for i, w in enumerate(self.names)}
        raw, n = open(os.path.join(folder, "vectors.bin"), "rb").read(), len(self.names)
        self.rows = np.frombuffer(raw[4 * n:], np.int8).reshape(n, -1) * np.frombuffer(raw[:4 * n], "<f4")[:, None]

    def pieces(self, word):
        """Does the same as splitPieces of package wordvector."""
        at, found = 0, []
        while at < len(word):
            end = next((e for e in range(len(word), at, -1) if ("##" if at else "") + word[at:e] in self.row), None)
            if end is None:
                return [self.row["[UNK]"]]
            found.append(self.row[("##" if at else "") + word[at:end]])
            at = end
        return found

    def counts(self, texts):
        """Returns a sparse matrix: for each text, how often it has each piece."""
        rows, cols = [], []
        for i, text in enumerate(texts):
            for w in words(text):
                if w not in STOP:
                    p = self.pieces(w)
                    rows += [i] * len(p)
                    cols += p
        return sp.csr_matrix((np.ones(len(rows), np.float32), (rows, cols)), shape=(len(texts), len(self.names)))


VERBS = {"GET": "get list", "POST": "create add", "PUT": "update replace", "PATCH": "update", "DELETE": "delete remove"}


def meaning(o):
    """Returns the texts that package apidoc gives an operation's vector, with their weights."""
    folders = o["doc"].split("/")
    name = folders[1] if len(folders) == 4 else folders[0].split(".")[0]
    method, path = o["op"].split(" ", 1)
    plain = re.sub(r"\{[^}]*\}", "", path).replace(".json", "")
    said = re.sub(r"<[^>]+>", " ", o["description"]).split()
    return ((name, 1), (o["summary"], 1.5), (o["id"], 1), (plain, 1), (plain.rstrip("/").split("/")[-1], 0.3),
            (" ".join(re.findall(r"\{([^}]*)\}", path)), 0.3), (" ".join(said[:20]), 0.7), (" ".join(said[20:50]), 0.3),
            (VERBS[method], 0.3))


def weigh(table, ops):
    """Returns the counts of the pieces of each operation, weighted."""
    columns = zip(*(meaning(o) for o in ops))
    return sum(table.counts([text for text, _ in column]) * column[0][1] for column in columns).astype(np.float32)


def read_questions(file):
    asked, doc = collections.defaultdict(list), ""
    for line in open(file):
        if line.startswith("## "):
            doc = line[3:].strip()
        elif "\t" in line:
            op, question = line.rstrip("\n").split("\t")
            asked[doc, op].append(question)
    return asked


def unit(v):
    length = np.linalg.norm(v, axis=1, keepdims=True) + 1e-9
    return v / length, length


def slope(scores, right):
    """Returns the gradient of the cross entropy by the scores."""
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(right)), right] -= 1
    return p


def tangent(gradient, direction, length):
    return (gradient - direction * (gradient * direction).sum(1, keepdims=True)) / length


def main(corpus, questions, folder):
    table, asked = Table(folder), read_questions(questions)
    docs = collections.defaultdict(list)
    for line in open(corpus):
        o = json.loads(line)
        docs[o["doc"]].append(o)
    groups, others = [], []
    for name in sorted(docs):
        ops = docs[name]
        right = [(i, q) for i, o in enumerate(ops) for q in asked.get((name, o["op"]), ())]
        entries = weigh(table, ops)
        if right:
            groups.append((entries, table.counts([q for _, q in right]), np.array([i for i, _ in right])))
        elif len(ops) >= 5:
            others.append(entries)
    print(sum(len(r) for _, _, r in groups), "questions,", len(groups), "documents with,", len(others), "without")
    start = table.rows.astype(np.float32)
    E, m, v, rng, step = start.copy(), 0 * start, 0 * start, np.random.default_rng(1), 0
    steps = EPOCHS * -(-len(groups) // DOCUMENTS)
    for _ in range(EPOCHS):
        order = rng.permutation(len(groups))
        for s in range(0, len(order), DOCUMENTS):
            chosen = [groups[i] for i in order[s:s + DOCUMENTS]]
            entries = [e for e, _, _ in chosen] + [others[i] for i in rng.choice(len(others), OTHERS, replace=False)]
            sizes = [e.shape[0] for e in entries]
            place, first = np.repeat(np.arange(len(entries)), sizes), np.cumsum([0] + sizes)
            D, Q = sp.vstack(entries).tocsr(), sp.vstack([q for _, q, _ in chosen]).tocsr()
            right = np.concatenate([r + first[i] for i, (_, _, r) in enumerate(chosen)])
            home = np.repeat(np.arange(len(chosen)), [len(r) for _, _, r in chosen])
            (d, d_length), (q, q_length) = unit(D @ E), unit(Q @ E)
            scores = q @ d.T / TEMPERATURE
            g = slope(scores, right) + slope(np.where(place == home[:, None], scores, -1e9), right)
            g /= 2 * TEMPERATURE * len(right)
            grad = Q.T @ tangent(g @ d, q, q_length) + D.T @ tangent(g.T @ q, d, d_length) + KEEP / len(right) * (E - start)
            m = 0.9 * m + 0.1 * grad
            v = 0.99 * v + 0.01 * grad * grad
            rate = RATE * (1 - step / steps)
            step += 1
            E -= rate * (m / (1 - 0.9 ** step)) / (np.sqrt(v / (1 - 0.99 ** step)) + 1e-4)
    save_rows(E, folder)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
