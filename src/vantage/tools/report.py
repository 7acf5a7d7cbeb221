"""`vantage report`: a run as one HTML file that contains everything it shows and loads nothing."""

from __future__ import annotations

import base64
import io
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from vantage.agents.agent import Agent
from vantage.agents.evaluate import Evaluation, evaluate
from vantage.config.config import Config
from vantage.errors import VantageError
from vantage.keys.typed_values import in_short
from vantage.runs.directory import RunDirectory
from vantage.runs.files import whole_file
from vantage.runs.handed_over import handed_over, run_of, with_code_of
from vantage.runs.info_numbers import SUCCESS, info_means
from vantage.runs.metrics import FILE_NAME, read_metrics
from vantage.runs.mirror import URL, URL_SIGNATURE
from vantage.runs.trust import SIGNATURE
from vantage.tools.curves import Lines, group_curves, make_curve
from vantage.tools.plot import draw
from vantage.tools.record import record

log = logging.getLogger(__name__)

_CURVES = ("rollout/ep_rew_mean", "eval/mean_reward", "rollout/success_rate", "eval/success_rate",
           "rollout/ep_len_mean", "train/entropy", "train/explained_variance", "train/value_loss",
           "train/policy_loss", "train/grad_norm", "time/fps")
_MAX_VIDEO = 2_500_000
"""Bytes of a video in the page; base64 adds a third, and the page stays below 5 MB."""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem }
h1, h2 { line-height: 1.2 }
h2 { margin: 2rem 0 .6rem; font-size: 1.2rem }
summary { cursor: pointer }
.grid { display: grid; gap: 1rem 2rem;
        grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)) }
.wide { overflow-x: auto }
table { border-collapse: collapse }
td, th { text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0;
         border-bottom: 1px solid #8884 }
img, video { max-width: 100%; max-height: 24rem }
code { overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
</style></head><body>
<h1>$title</h1><p>$lead</p>
<div class="grid">
<section><h2>Evaluation</h2>$evaluation</section>
<section><h2>A game</h2>$video</section>
</div>
<h2>Curves</h2><div class="grid">$curves</div>
<h2>Config that differs from the general default</h2><div class="wide">$changed</div>
<details><summary>The whole config</summary><pre>$config</pre></details>
<details><summary>Origin</summary><pre>$origin</pre></details>
</body></html>
""")


def report(run: str | Path | Agent, output: str | Path | None = None, *, episodes: int = 20,
           video: bool = True, checkpoint: str | int = "auto", trust: bool = False, env: Any = None,
           network: Any = None, memory: Any = None, algorithm: Any = None) -> Path:
    """Write `run` as one HTML page: an evaluation, one recorded game, curves and the config.

        page = vantage.report("runs/CartPole-v1/a2c-1")

    Returns the path of the page, by default report.html in the run. It loads nothing, so it can be
    passed on as it is. `episodes`, `checkpoint`, `trust`, `env`, `network`, `memory` and
    `algorithm` are those of `vantage.evaluate`. Without `video`, or where no game can be recorded,
    which a warning explains, the page has no game. ConfigError for an output that cannot be written
    and a run without a checkpoint.
    """
    given = {"env": env, "network": network, "memory": memory, "algorithm": algorithm}
    objects = with_code_of(run, given)
    directory = RunDirectory.open(Path(run_of(run)), trust=trust, objects=handed_over(**objects),
                                  call="report")
    player: Path | Agent = directory.path
    if isinstance(run, Agent) and checkpoint == "auto":
        player = run
        objects = given
    output = directory.path / "report.html" if output is None else Path(output)
    with whole_file(output, ".html", ".htm") as page:
        # Read all files before playing, so that a damaged one is reported at once.
        summary = directory.summary_line()
        lines = read_metrics(directory.path)
        origin = _origin(directory)
        if not summary:
            log.warning("%s: summary.json is missing or empty; the page leaves its line out",
                        directory.path)
        result = evaluate(player, episodes=episodes, checkpoint=checkpoint, trust=trust,
                          **objects)
        game = "Not recorded."
        if video:
            game = _video(player, checkpoint, trust, objects)
        config = directory.config
        text = _PAGE.substitute(
            title=escape(f"{config.algo} on {config.env.id}"),
            lead=escape(summary),
            evaluation=_evaluation(result),
            video=game,
            curves=_curves(directory, lines),
            changed=_table(("key", "value", "default"), _changed_keys(config)),
            config=escape(config.to_json()),
            origin=escape(json.dumps(origin, indent=2)),
        )
        # Without an error for a lone surrogate, as in a damaged name.
        page.write_text(text, encoding="utf-8", errors="backslashreplace")
    return output


def _origin(run: RunDirectory) -> dict[str, Any]:
    """meta.json without what concerns only its owner: the page may be passed on."""
    private = ("host", "sources", "digests", "code", SIGNATURE, URL, URL_SIGNATURE)
    return {name: value for name, value in run.read_meta().items() if name not in private}


def _changed_keys(config: Config) -> list[tuple[str, str, str]]:
    """Key, value and default of the keys that differ from the algorithm's plain defaults."""
    defaults = Config.of(config.algo).flat()
    return [(key, in_short(value), in_short(defaults.get(key)))
            for key, value in config.flat().items() if value != defaults.get(key)]


def _evaluation(result: Evaluation) -> str:
    """The scores of each way to play as HTML."""
    titles = ["actions", "mean", "deviation", "lowest", "highest", "steps", "cut"]
    ways = [result] if result.other is None else [result, result.other]
    rows = [_scores(way) for way in ways]
    if all(row[-1] == "0" for row in rows):
        titles.pop()
        rows = [row[:-1] for row in rows]
    infos = [way.info_means for way in ways]
    names = info_means(infos)
    titles += ["success rate" if name == SUCCESS else name for name in names]
    for row, means in zip(rows, infos, strict=True):
        row += [f"{means[name]:.4g}" if name in means else "" for name in names]
    return (f"<p>Raw scores of {result.episodes} games; checkpoint: "
            f"{escape(result.checkpoint)}.</p>"
            f'<div class="wide">{_table(titles, rows)}</div>')


def _scores(result: Evaluation) -> list[str]:
    return [
        "most probable" if result.deterministic else "sampled",
        f"{result.return_mean:.2f}",
        f"{result.return_std:.2f}",
        f"{result.return_min:.5g}",
        f"{result.return_max:.5g}",
        f"{result.length_mean:.0f}",
        f"{result.cut_games}",
    ]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_row(titles, "th"), *(_row(cells, "td") for cells in rows)]
    return f"<table>{''.join(lines)}</table>"


def _row(cells: Sequence[str], tag: str) -> str:
    texts = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{texts}</tr>"


def _curves(run: RunDirectory, lines: Lines) -> str:
    """A picture of each metric in `lines` as HTML; the reason, also logged, if there is none."""
    if not lines:
        exists = (run.path / FILE_NAME).exists()
        why = f"{FILE_NAME} {'has no line yet' if exists else 'is missing'}"
        log.warning("%s: %s; the page has no curves", run.path, why)
        return f"No curves: {why}."
    images = []
    for metric in _CURVES:
        if any(line.get(metric) is not None for line in lines):
            curve = make_curve(run.config, lines, "steps", metric, source=run.path)
            image = io.BytesIO()
            draw(group_curves([curve]), "steps", metric).savefig(image, dpi=160)
            images.append(f'<img alt="{metric}" src="{_data(image.getvalue(), "image/png")}">')
    return "".join(images)


def _video(run: Path | Agent, checkpoint: str | int, trust: bool,
           objects: Mapping[str, Any]) -> str:
    """A game as HTML; the reason as text if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "game.mp4")
        try:
            record(run, path, checkpoint=checkpoint, trust=trust, **objects)
        except VantageError as error:
            log.warning("no video in the page: %s", error)
            return f"No video: {escape(str(error))}"
        video = path.read_bytes()
    if len(video) > _MAX_VIDEO:
        return (f"{len(video) / 1e6:.1f} MB of video are too much for this page; "
                "use <code>vantage record</code>.")
    return f'<video controls muted loop src="{_data(video, "video/mp4")}"></video>'


def _data(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
