"""`vantage report`: a run as one HTML file that contains everything it shows and loads nothing."""

from __future__ import annotations

import base64
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Set
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from matplotlib.figure import Figure

from vantage.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import RunDirectory, write_atomically
from vantage.runs.metrics import read_metrics
from vantage.tools.evaluate import Evaluation, evaluate
from vantage.tools.plot import plot
from vantage.tools.record import defect, record

log = logging.getLogger(__name__)

_CURVES = ("rollout/ep_rew_mean", "eval/mean_reward", "rollout/ep_len_mean", "train/entropy",
           "train/explained_variance", "train/value_loss", "train/policy_loss", "train/grad_norm", "time/fps")
_MAX_VIDEO = 2_500_000
"""Bytes of a video in the page; base64 adds a third, and the page stays below 5 MB."""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.6rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
.lead { color: #555; margin-top: .2rem }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1rem }
img, video { max-width: 100%; height: auto } video { background: #000; max-height: 32rem }
table { border-collapse: collapse } td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top }
td + td { font-variant-numeric: tabular-nums } .changed { font-weight: 600 }
code { font-size: .92em; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } .lead { color: #aaa }
  img { background: #fff } }
</style></head><body>
<h1>$title</h1><p class="lead">$lead</p>
$body
</body></html>
""")


def report(run: str | Path, output: Path | None = None, *, episodes: int = 20, video: bool = True,
           checkpoint: str = "auto", trust: bool = False) -> Path:
    """Write the page of `run`: an evaluation over `episodes` games, one recorded game, curves and the config.

    `output` defaults to report.html in the run. `checkpoint` and `trust` are those of `evaluate`; a warning says why no
    game could be recorded. ConfigError for an output that cannot be written and a run without a checkpoint.
    """
    directory = RunDirectory.open(Path(run), trust=trust)
    output = directory.path / "report.html" if output is None else output
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{output}: the name must end in .html")
    # Read all files before playing, so that a damaged one is reported at once.
    metrics = {name for line in read_metrics(directory.path) for name, value in line.items() if value is not None}
    lead, meta = _lead(directory), directory.read_meta()
    for private in ("host", "config_hmac"):  # the page may be passed on
        meta.pop(private, None)
    result = evaluate(directory.path, episodes=episodes, checkpoint=checkpoint, trust=trust)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sections = {"Evaluation": _evaluation(result, folder)}
        if video:
            sections["A game"] = _video(directory.path, folder, checkpoint, trust)
        sections["Curves"] = _curves(directory.path, metrics, folder, trust)
    sections |= {"Config": _config(directory.config), "Origin": _table(_flat(meta))}
    title = escape(f"{directory.config.algo} on {directory.config.env.id}")
    body = "\n".join(f"<section><h2>{name}</h2>\n{content}</section>" for name, content in sections.items())
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, _PAGE.substitute(title=title, lead=lead, body=body))
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror}; choose another output") from None
    return output


def _lead(directory: RunDirectory) -> str:
    summary = directory.read_summary()
    words = [f"{summary.get('steps', 0):,} agent steps", f"{summary.get('seconds', 0) / 60:.1f} minutes",
             f"{summary.get('episodes', 0):,} training episodes", str(summary.get("status", "running"))]
    return escape(" · ".join(words))


def _evaluation(result: Evaluation, folder: Path) -> str:
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.add_subplot()
    axes.hist(result.returns, bins=min(20, max(5, len(set(result.returns)))), color="#0072B2", edgecolor="white")
    axes.set_xlabel("raw score of a game")
    axes.set_ylabel("games")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "scores.png", dpi=130)
    return f"<p>{escape(result.sentence())}</p>\n{_image(folder / 'scores.png', 'scores of the games')}"


def _video(run: Path, folder: Path, checkpoint: str, trust: bool) -> str:
    """The newest intact video in the run's videos/, else a new recording; the reason as text if neither works."""
    try:
        path = _newest_video(run / "videos")
        if path is None:
            path = record(run, folder / "game.mp4", checkpoint=checkpoint, trust=trust).path
    except VantageError as error:
        log.warning(f"no video in the page: {error}")
        return f"<p>No video: {escape(str(error))}</p>"
    size = path.stat().st_size
    if size > _MAX_VIDEO:
        return (f"<p>The game is {size / 1e6:.1f} MB of video, too much for this page; record it with "
                "<code>vantage record</code>.</p>")
    return f'<video controls muted loop src="{_data(path, "video/mp4")}"></video>'


def _newest_video(videos: Path) -> Path | None:
    """The newest video that plays or is too large for the page anyway; warnings name the others."""
    files = [path for path in videos.glob("*.mp4") if path.is_file()]
    for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
        wrong = "" if path.stat().st_size > _MAX_VIDEO else defect(path)
        if not wrong:
            return path
        log.warning(f"{path} is left out of the page because it is damaged ({wrong}): remove it or record it again")
    return None


def _curves(run: Path, metrics: Set[str], folder: Path, trust: bool) -> str:
    images = []
    for metric in _CURVES:
        if metric in metrics:
            path = folder / f"{metric.replace('/', '-')}.png"
            plot([run], path, metric=metric, trust=trust)
            images.append(_image(path, metric))
    return f'<div class="grid">{"".join(images)}</div>' if images else "<p>No metrics yet.</p>"


def _config(config: Config) -> str:
    defaults = Config.of(config.algo).flat()
    changed = {name for name, value in config.flat().items() if value != defaults.get(name)}
    rows = sorted(config.flat().items(), key=lambda item: item[0] not in changed)
    return "<p>Bold: differs from the general default.</p>\n" + _table(rows, bold=changed)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key} ")
        else:
            yield prefix + key, " ".join(map(str, value)) if isinstance(value, list) else value


def _table(rows: Iterable[tuple[str, Any]], *, bold: Set[str] = frozenset()) -> str:
    lines = [f"<tr{' class=changed' if name in bold else ''}><td>{escape(name)}</td>"
             f"<td><code>{escape(str(value))}</code></td></tr>" for name, value in rows]
    return f"<table>{''.join(lines)}</table>"


def _image(path: Path, alt: str) -> str:
    return f'<img alt="{escape(alt)}" src="{_data(path, "image/png")}">'


def _data(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
