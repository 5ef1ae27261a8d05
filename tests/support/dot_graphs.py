"""Graphs in DOT, read back: the part of the language that tape writes."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any, NamedTuple

DOT: Any = shutil.which("dot")
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|->|[\w.]+|[{}\[\];,=]')


class Parsed(NamedTuple):
    """Labels of nodes, the titles of the clusters they stand in, and edges."""

    labels: dict[str, str]
    titles: dict[str, tuple[str, ...]]
    edges: dict[tuple[str, str], dict[str, str]]


def parse(dot: str) -> Parsed:
    """Read the part of DOT that is used; anything else is an error."""
    tokens = TOKEN.findall(dot)
    assert re.sub(r"\s", "", "".join(tokens)) == re.sub(r"\s", "", dot)
    parsed, open_clusters, at = Parsed({}, {}, {}), [], 2
    assert tokens[:2] == ["digraph", "{"]
    while tokens[at] != "}" or open_clusters:
        if tokens[at] == "}":
            open_clusters.pop()
            at += 1
            continue
        if tokens[at] == "subgraph":
            assert tokens[at + 1].startswith("cluster_")
            assert tokens[at + 2] == "{"
            open_clusters.append("")
            at += 3
            continue
        end = tokens.index(";", at)
        name, *rest = tokens[at:end]
        target = rest[1] if rest[:1] == ["->"] else ""
        listed = rest[2:] if target else rest
        attributes = dict(zip(listed[1:-1:4], (t[1:-1].replace("\\n", "\n") for t in listed[3::4]), strict=True))
        if target:
            assert (name, target) not in parsed.edges
            parsed.edges[name, target] = attributes
        elif name == "graph":
            open_clusters[-1] = attributes["label"]
        elif name != "node":
            assert name not in parsed.labels
            parsed.labels[name], parsed.titles[name] = attributes["label"], tuple(open_clusters)
        at = end + 1
    assert tokens[at:] == ["}"]
    assert {name for edge in parsed.edges for name in edge} <= parsed.labels.keys()
    return parsed


def named(parsed: Parsed) -> dict[tuple[str, str], dict[str, str]]:
    """Edges by the first lines of labels."""
    first = {name: label.split("\n")[0] for name, label in parsed.labels.items()}
    return {(first[a], first[b]): attributes for (a, b), attributes in parsed.edges.items()}


def drawn(dot: str) -> list[str]:
    """Return the names of the nodes that Graphviz draws."""
    plain = subprocess.run([DOT, "-Tplain"], input=dot, capture_output=True, text=True, check=True).stdout
    return [line.split()[1] for line in plain.splitlines() if line.startswith("node ")]
