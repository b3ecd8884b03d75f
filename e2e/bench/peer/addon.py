"""Substitutes token names and credentials, as a user of mitmproxy would write it.

BENCH_MODE=whole replaces in whole bodies, BENCH_MODE=stream in each piece of a body as it comes (and so misses what
lies across two pieces: it does less than CodeForge does).
"""

import json
import os

with open(os.environ["BENCH_PAIRS"], encoding="ascii") as f:
    PAIRS = [(name.encode(), value.encode()) for name, value in json.load(f)]
STREAM = os.environ["BENCH_MODE"] == "stream"


def replace(headers, pairs):
    fields = []
    changed = False
    for key, text in headers.fields:
        for old, new in pairs:
            if old in text:
                text = text.replace(old, new)
                changed = True
        fields.append((key, text))
    if changed:
        headers.fields = tuple(fields)


def scrub(data):
    for name, value in PAIRS:
        if value in data:
            data = data.replace(value, name)
    return data


def requestheaders(flow):
    replace(flow.request.headers, PAIRS)


def responseheaders(flow):
    replace(flow.response.headers, [(value, name) for name, value in PAIRS])
    if STREAM:
        # Replacements change the length, which is known only at the end.
        flow.response.headers.pop("content-length", None)
        flow.response.headers["transfer-encoding"] = "chunked"
        flow.response.stream = scrub


def response(flow):
    if not STREAM:
        before = flow.response.raw_content
        after = scrub(before)
        if after is not before:
            flow.response.content = after
