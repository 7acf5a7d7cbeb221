"""Pages of the site that come from other files: README, results, examples, and tables of config keys.

mkdocs calls the functions named on_*; mkdocs.yml names this file.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
sys.path.insert(0, str(ROOT / "src"))

KEYS_OF = re.compile(r"<!-- keys: (\w+) on (\S+) -->")
NAMES_OF = re.compile(r"<!-- names: ([\w .'-]+) -->")
LATER = ("results/", "benchmarks/", "examples/", "CHANGELOG", "CONTRIBUTING", "reference")
"""Pages that a search shows after those that explain."""
INTERVAL = re.compile(r"(<td>[^<]*)(\(-?[\d.,]+ to -?[\d.,]+\))")
CURVES = re.compile(r"<!-- curves: ([\w ,.-]+) -->")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Draw the fences of `math` here, and not by a script in the browser."""
    fence = {"name": "math", "class": "math", "format": mathml}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages show or link to, at their places in the repository."""
    for path in [*RESULTS.glob("*/*.png"), *RESULTS.glob("*/*.csv"), *RESULTS.glob("*/protocol.json"),
                 *RESULTS.glob("*.md"), *RESULTS.glob("log/*.md"), *(ROOT / "examples").glob("*.*"),
                 ROOT / "LICENSE", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md",
                 ROOT / "benchmarks/README.md", ROOT / "benchmarks/atari.toml"]:
        add(files, config, str(path.relative_to(ROOT)), path.read_bytes())
    add(files, config, "index.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    add(files, config, "results/browser.md", browser())
    for path in (ROOT / "examples").glob("*.py"):
        code = path.read_text(encoding="utf-8")
        add(files, config, f"examples/{path.stem}.md", f"# {path.name}\n\n```python\n{code}```\n")
    return files


def add(files: Files, config: MkDocsConfig, name: str, content: str | bytes) -> None:
    """Put one generated file into the site, unless docs/ has it."""
    if files.get_file_from_path(name) is None:
        files.append(File.generated(config, name, content=content))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links between folders of the repository links of the site, and fill in the tables and curves."""
    name = page.file.src_uri
    if name.startswith(LATER):
        page.meta["search"] = {"boost": 0.5}
    if name.startswith("results/"):
        page.meta["hide"] = ["toc"]  # the tables need its space
    if name == "keys.md":
        return keys_page()
    if name == "index.md":  # the README stands in the root of the repository
        markdown = re.sub(r'(\]\(|src="|href=")docs/', r"\1", markdown)
    elif "/" not in name:
        markdown = markdown.replace("](../", "](").replace('src="../', 'src="').replace("](docs/", "](")
    else:
        markdown = markdown.replace("](../docs/", "](../")
    markdown = re.sub(r"(examples/\w+)\.py\)", r"\1.md)", markdown)
    markdown = CURVES.sub(lambda match: curves(match[1]), markdown)
    markdown = NAMES_OF.sub(lambda match: names_table(match[1]), markdown)
    return KEYS_OF.sub(lambda match: keys_table(match[1], match[2]), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep sources out of the search, and short code and intervals in one line; mark cells that hold a long command."""
    source = '<details class="mkdocstrings-source"'
    html = html.replace(source, f"{source} data-search-exclude")
    html = re.sub(r"<td>(<code>[^<]{35,}</code></td>)", r'<td class="command">\1', html)
    html = re.sub(INTERVAL, r'\1<span class="short">\2</span>', html)
    return re.sub(r"<code>([^<]{1,34})</code>", r'<code class="short">\1</code>', html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Serve the script that lets the search work without a server from the site, and refuse any from elsewhere."""
    shim = get_relative_url("vendor/iframe-worker.js", page.url)
    output = output.replace("https://unpkg.com/iframe-worker/shim", shim)
    remote = re.findall(r'<(?:script|img)[^>]+src="?https?:[^>]+>|<link[^>]+stylesheet[^>]+https?:[^>]+>', output)
    if remote:
        raise PluginError(f"{page.file.src_uri} loads from the network: {remote[0]}")
    return output


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same script in the page for missing addresses, which is not built from Markdown."""
    return output.replace("https://unpkg.com/iframe-worker/shim", "vendor/iframe-worker.js")


def mathml(source: str, *_: object, **__: object) -> str:
    """A fence of LaTeX as MathML, one formula a line, which browsers draw without a script."""
    lines = [line for line in source.splitlines() if line.strip()]
    return '<div class="math">' + "".join(convert(line, display="block") for line in lines) + "</div>"


def keys_table(algo: str, env: str) -> str:
    """The keys of an algorithm's own group with the defaults in force on one environment."""
    import vantage

    config = vantage.configure(algo, env=env)
    return table(config.algorithm)


def names_table(library: str) -> str:
    """The keys of another library with Vantage's, which the command answers them with."""
    from vantage.keys.other_libraries import KEYS

    rows = ["| there | here |", "|---|---|"]
    for name, text in sorted((name, text) for name, (owner, text) in KEYS.items() if owner == library):
        ours = re.sub(r"{(\w+)}", r"`\1`", text).removeprefix("is ").removeprefix("are ")
        rows.append(f"| `{name}` | {ours} |")
    return "\n".join(rows)


def table(group: Any) -> str:
    """A Markdown table of the fields of one config dataclass."""
    rows = [f"| `{f.name}` | `{text(getattr(group, f.name))}` | {text(f.metadata['help'])} |"
            for f in fields(group) if "help" in f.metadata]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def text(value: object) -> str:
    """A default as it is written in a flag."""
    return str(value).lower() if isinstance(value, bool | None) else str(value).replace("|", r"\|")


def keys_page() -> str:
    """Every key of every group."""
    import vantage
    from vantage.config.flat import GROUPS

    parts = ["# Config keys\n\nA flag is the key with dashes: `rollout_length` is `--rollout-length`. "
             "`vantage train ALGO --env ENV --help` shows the defaults in force; those here are of CartPole-v1.\n"]
    config = vantage.configure("a2c", env="CartPole-v1")
    for group in GROUPS:
        if group not in ("algorithm", "runtime"):
            parts.append(f"## {group}\n\n{table(getattr(config, group))}\n")
    for algo in ("a2c", "ppo", "acer"):
        parts.append(f"## algorithm {algo}\n\n{keys_table(algo, 'CartPole-v1')}\n")
    for algo, runtime in (("a2c", "sync"), ("a3c", "hogwild"), ("a2c", "ray")):
        keys = vantage.configure(algo, env="CartPole-v1", runtime=runtime).runtime
        parts.append(f"## runtime {runtime}\n\n{table(keys)}\n")
    return "\n".join(parts)


def browser() -> str:
    """A section for each environment, in it one for each folder of results: its curve, scores, command and files."""
    parts = ["# Curves and scores\n\nThe folders of `results/` by environment. Scores are means of 100 whole games "
             "unless [the tables](README.md) say otherwise. Commands are those of the commit in `protocol.json`.\n"]
    folders: dict[str, list[Path]] = {}
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir() and path.name != "log"):
        folders.setdefault(environment(folder), []).append(folder)
    for env in sorted(folders):
        parts.append(f"## {env}\n")
        parts += [section(folder) for folder in folders[env]]
    return "\n".join(parts)


def environment(folder: Path) -> str:
    """The environment of a folder of results."""
    path = folder / "protocol.json"
    protocol = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    env = protocol.get("config", protocol).get("env", "Studies and searches")
    return str(env["id"] if isinstance(env, dict) else env)


def section(folder: Path) -> str:
    """One folder of results."""
    parts = [f"### {folder.name}\n"]
    if (folder / "curve.png").exists():
        parts.append(f"![Learning curve of {folder.name}]({folder.name}/curve.png){{ loading=lazy }}\n")
    if (folder / "protocol.json").exists():
        command = json.loads((folder / "protocol.json").read_text(encoding="utf-8")).get("command", "")
        parts.append(f"`{command}`\n" if isinstance(command, str) and command else "")
    if (folder / "scores.csv").exists():
        parts.append(scores(folder / "scores.csv"))
    links = [f"[{path.name}]({folder.name}/{path.name})" for path in sorted(folder.iterdir())
             if path.name in ("curve.csv", "scores.csv", "protocol.json")]
    parts.append(f"Files: {', '.join(links)}\n" if links else "")
    return "\n".join(parts)


SCORES = {"algo": "algorithm", "seed": "seed", "checkpoint": "checkpoint", "step": "step", "return_mean": "mean score",
          "return_std": "deviation", "return_min": "lowest", "return_max": "highest", "minutes": "minutes"}
"""Columns of scores.csv that are shown, and their titles."""


def scores(path: Path) -> str:
    """A CSV of evaluations as a Markdown table, at most ten rows of it."""
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[Mapping[str, str]] = list(csv.DictReader(file))
    names = [name for name in (rows[0] if rows else {}) if name in SCORES and any(row[name] for row in rows)]
    lines = [f"| {' | '.join(SCORES[name] for name in names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(rounded(row[name]) for name in names)} |" for row in rows[:10]]
    return "\n".join(lines) + "\n" if names else ""


def rounded(cell: str | None) -> str:
    """A number of a CSV with one digit behind the point, whole ones with commas; other cells as they are."""
    try:
        number = float(cell or "")
    except ValueError:
        return cell or ""
    return f"{number:,.0f}" if number.is_integer() else f"{number:,.1f}"


def curves(names: str) -> str:
    """Pictures of folders of results."""
    return "\n\n".join(f"![Learning curve of {name}](results/{name}/curve.png){{ loading=lazy }}"
                       for name in re.split(r"[ ,]+", names))
