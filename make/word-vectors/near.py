"""Writes stems.txt and near.bin into the folder of a table: for each stem of search.StemWord, up to 12 similar stems."""
import collections, json, os, re, sys
import numpy as np

NEAR, LEAST = 12, 0.5


def plural(w):
    """Does the same as dropPlural of package search."""
    n = len(w)
    if n < 4 or w[-1] != "s":
        return w
    if w.endswith("ies") and n > 4:
        return w[:-3] + "y"
    if w.endswith(("sses", "xes", "ches", "shes")) or w.endswith("uses") and n > 6:
        return w[:-2]
    return w[:-1] if w[-2] not in "sui" else w


def undouble(w):
    n = len(w)
    return w[:-1] if n > 2 and w[-1] == w[-2] and w[-1] not in "aeious" and (w[-1] != "l" or n > 5) else w


def stem(word):
    """Does the same as search.StemWord."""
    w, vowels = plural(word), re.compile("[aeiouy]")
    if w.endswith("eed"):
        pass
    elif w.endswith("ing") and vowels.search(w[:-3]) and len(w) > 5:
        w = undouble(w[:-3])
    elif w.endswith("ed") and vowels.search(w[:-2]) and len(w) > 4:
        w = undouble(w[:-2])
    elif w.endswith(("tion", "sion")):
        w = w[:-3] if len(w) > 6 else w
    elif w.endswith("ment") and len(w) > 8:
        w = w[:-4]
    w = w.removesuffix("e")
    if len(w) > 6 and w.endswith("at"):
        w = undouble(w[:-2])
    if w.endswith("ific"):
        w = w[:-1]
    return w[:-1] + "i" if len(w) > 2 and w[-1] == "y" and w[-2] not in "aeiou" else w


def main(corpus, table):
    names = open(os.path.join(table, "vocab.txt")).read().split("\n")[:-1]
    raw, n = open(os.path.join(table, "vectors.bin"), "rb").read(), len(names)
    rows = np.frombuffer(raw[4 * n:], np.int8).reshape(n, -1) * np.frombuffer(raw[:4 * n], "<f4")[:, None]
    index = {w: i for i, w in enumerate(names)}

    def vector(word):
        at, found = 0, []
        while at < len(word):
            end = next((e for e in range(len(word), at, -1) if ("##" if at else "") + word[at:e] in index), None)
            if end is None:
                return None
            found.append(index[("##" if at else "") + word[at:end]])
            at = end
        v = rows[list(dict.fromkeys(found))].sum(0)
        return v / (np.linalg.norm(v) + 1e-9)

    # The words are those of the vocabulary, and those in operations of two APIs. A stem has the vector of its main word.
    apis = collections.defaultdict(set)
    for line in open(corpus):
        o = json.loads(line)
        text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", " ".join((o["summary"], o["op"], o["id"], o["description"])))
        for w in re.findall("[a-z]+", text.lower()):
            apis[w].add(o["doc"].split("/")[0])
    words = {w for w in names if re.fullmatch("[a-z]{3,16}", w)} | {w for w, a in apis.items() if len(a) > 1 and 3 <= len(w) <= 16}
    best = {}
    for w in sorted(words, key=lambda w: (-len(apis.get(w, ())), len(w), w)):
        best.setdefault(stem(w), w)
    stems = sorted(s for s in best if vector(best[s]) is not None)
    assert len(stems) < 1 << 16
    V, out = np.stack([vector(best[s]) for s in stems]), np.zeros((len(stems), NEAR, 3), np.uint8)
    for s in range(0, len(stems), 500):
        like = V[s:s + 500] @ V.T
        for i, row in enumerate(like):
            row[s + i] = 0
            for k, j in enumerate(np.argsort(-row, kind="stable")[:NEAR]):
                if row[j] >= LEAST:
                    out[s + i, k] = j & 255, j >> 8, round(float(row[j]) * 255)
    open(os.path.join(table, "stems.txt"), "w").write("\n".join(stems) + "\n")
    open(os.path.join(table, "near.bin"), "wb").write(out.tobytes())
    print(len(stems), "stems")


if __name__ == "__main__":
    main(*sys.argv[1:])
