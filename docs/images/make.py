"""Draws the pictures of the documentation from real runs: `python docs/images/make.py --help`.

Pictures show what the commands print or draw: terminals come from tmux, windows from an X server, the report from a
browser. The script trains short runs on CartPole-v1; give it finished runs on Pong and LunarLander-v3.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image, ImageChops, ImageGrab
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SPACE = ROOT / "examples/cartpole-space.json"
MOST_BYTES = 150_000

PREVIEWS = {"Pong": "Pong --memory none --frame-stack 4", "rl-a3c-pytorch": "Pong --algo rl-a3c-pytorch",
            "Breakout": "Breakout --grayscale false --memory none --frame-stack 2", "CartPole-v1": "CartPole-v1"}
PONG, LANDER, POLE = "runs/Pong/a2c-1", "runs/LunarLander-v3/acer-1", "runs/CartPole-v1/a2c-1"
SECONDS = 600
"""A command that takes longer is treated as hung."""

# A page with the picture must not make the browser fetch fonts.
SVG = re.sub(r"@font-face {{.*?}}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace")


def seeds() -> None:
    """PPO on Pong on each seed, small enough to stand beside the game in README."""
    with (ROOT / "results/ppo-Pong-seeds/curve.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    figure = Figure(figsize=(5.6, 2.6), layout="constrained")
    axes = figure.add_subplot()
    for group in dict.fromkeys(row["group"] for row in rows):
        points = [(float(row["steps"]) / 1e6, float(row["value"])) for row in rows if row["group"] == group]
        axes.plot(*zip(*points, strict=True), color="#0072b2", linewidth=1.2, alpha=0.8)
    axes.axhline(18, color="0.6", linewidth=1, linestyle="--")
    axes.annotate("18 points, where runs stop", (0, 18), color="0.4", va="bottom", fontsize=9)
    axes.set(xlabel="million agent steps", ylabel="mean of 30 games", ylim=(-22, 23))
    axes.set_yticks([-21, -10, 0, 10, 21])
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig("seeds.png", dpi=200)
    keep_png(Image.open("seeds.png"), "pong-seeds")


LEARNING = {"learns": ("lr 1e-3, falling to 0", "linear:1e-3:0"), "large": ("lr 0.1, too large", "0.1"),
            "small": ("lr 1e-6, too small", "1e-6")}
"""PPO on CartPole-v1 with three learning rates, by the name of the run."""
PANELS = {"rollout/ep_rew_mean": "return", "train/entropy": "entropy", "train/approx_kl": "approximate KL",
          "train/explained_variance": "explained variance"}


def learning() -> None:
    """The metrics of runs that learn and that do not."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    panels = dict(zip(PANELS, figure.subplots(2, 2).flat, strict=True))
    for (name, (label, rate)), colour in zip(LEARNING.items(), ("#0072b2", "#d55e00", "#009e73"), strict=True):
        run(f"vantage train ppo --env CartPole-v1 --steps 60k --seed 1 --threads 1 --lr {rate} --eval-every 0 "
            f"--log-every-seconds 0 --no-tensorboard --run runs/{name}")
        text = Path("runs", name, "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        for metric, axes in panels.items():
            points = [(line["step"] / 1_000, line[metric]) for line in lines if line.get(metric) is not None]
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=2, label=label)
    for metric, axes in panels.items():
        axes.set_title(PANELS[metric], loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    panels["train/approx_kl"].set_yscale("symlog", linthresh=1e-3)
    panels["train/explained_variance"].set(xlabel="thousand steps", ylim=(-1.05, 1.05))
    panels["train/approx_kl"].set_xlabel("thousand steps")
    panels["rollout/ep_rew_mean"].legend(frameon=False)
    figure.savefig("learning.png", dpi=80)
    keep_png(Image.open("learning.png").convert("RGB").quantize(64), "learning")


def preview() -> None:
    """What the network sees."""
    for name, options in PREVIEWS.items():
        run(f"vantage preview {options} -o preview.png")
        keep_png(Image.open("preview.png"), f"preview-{name}")


TRAINING = "vantage train a2c --env CartPole-v1 --steps 200k --seed 1 --threads 1 --log-every-seconds 0.3"
"""Trains `POLE`, which other pictures use."""


def train() -> None:
    """The live display in the middle of a training."""
    terminal("train", TRAINING,
             until=lambda screen: any(float(share) > 80 for share in re.findall(r"([\d.]+)% ", screen)))


def search() -> None:
    """The lines of a search, and its history as a plot."""
    terminal("search", "vantage search a2c --env CartPole-v1 --space space.json --trials 14 --steps 24k "
             "--eval-every 2k --reduction 2 --seed 1 --threads 1", columns=140)
    keep_png(Image.open("runs/search/CartPole-v1/a2c-1/history.png"), "search-history")


def plot() -> None:
    """Curves of three seeds of two algorithms."""
    for algo, steps, seed in (("a2c", "200k", 2), ("a2c", "200k", 3), ("acer", "50k", 1), ("acer", "50k", 2),
                              ("acer", "50k", 3)):
        run(f"vantage train {algo} --env CartPole-v1 --steps {steps} --seed {seed} --threads 1 --log-every-seconds 0.3")
    run(f"vantage plot {' '.join(sorted(map(str, Path(POLE).parent.iterdir())))} -o plot.png")
    keep_png(Image.open("plot.png"), "plot")


def export() -> None:
    """A policy as ONNX and as safetensors."""
    terminal("export", f"vantage export {POLE} --format onnx", f"vantage export {POLE} --format safetensors",
             columns=118)


def doctor() -> None:
    """What the machine has."""
    terminal("doctor", "vantage doctor", columns=132)


def play() -> None:
    """Breakout, some keys into the game."""
    with window("play", "vantage play Breakout") as display:
        for key, seconds in (("Left", 0.5), ("Right", 0.6), ("Left", 0.4), ("Right", 0.3)):
            xdotool(display, "keydown", key)
            time.sleep(seconds)
            xdotool(display, "keyup", key)


def watch() -> None:
    """A landing."""
    with window("watch", f"vantage watch {LANDER} --checkpoint best"):
        time.sleep(3)


def record() -> None:
    """Some seconds of a game."""
    run(f"vantage record {PONG} -o pong.gif")
    with Image.open("pong.gif") as film:
        frames, lasts = [], film.info["duration"]
        for number in range(100, 190):
            film.seek(number)
            frame = film.convert("RGB")
            frames.append(frame.quantize(16, palette=frames[0] if frames else None, dither=Image.Dither.NONE))
    path = HERE / "record.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=lasts, loop=0)
    check_size(path)


def report() -> None:
    """The top of a run's page."""
    run(f"vantage report {LANDER} -o report.html")
    rootless = ["--no-sandbox"] if os.geteuid() == 0 else []
    subprocess.run([browser(), "--headless", *rootless, "--hide-scrollbars", "--window-size=1100,960",
                    "--virtual-time-budget=5000", "--screenshot=report.png", Path("report.html").resolve().as_uri()],
                   check=True, timeout=SECONDS, stderr=subprocess.DEVNULL)
    keep_png(Image.open("report.png"), "report")


def browser() -> str:
    """The name of Chromium on this machine; "" if it is missing."""
    return next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), "")


def run(command: str) -> None:
    """Run a command and discard its output."""
    print(f"$ {command}", flush=True)
    subprocess.run(shlex.split(command), check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)


def terminal(name: str, *commands: str, columns: int = 100, rows: int = 50,
             until: Callable[[str], bool] | None = None) -> None:
    """Capture the screen of a terminal after the commands, or as soon as `until` accepts it."""
    typed = [f"printf '\\033[1m$ %s\\033[0m\\n' {shlex.quote(command)}; {command}" for command in commands]
    print(*(f"$ {command}" for command in commands), sep="\n", flush=True)
    tmux = ["tmux", "-L", f"vantage-images-{os.getpid()}", "-f", os.devnull]
    script = "; ".join([*typed, f"touch {name}.done", f"sleep {SECONDS}"])
    environment = {**os.environ, "COLORTERM": "truecolor", "PYTHONUNBUFFERED": "1"}
    subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), script], check=True,
                   env=environment)
    capture = [*tmux, "capture-pane", "-e", "-p"]
    shown, deadline = False, time.monotonic() + SECONDS
    try:
        while not (done := Path(f"{name}.done").exists()) or not shown:
            time.sleep(0.2)
            if not shown:
                screen = subprocess.run(capture, check=True, capture_output=True, text=True).stdout
                shown = done if until is None else until(re.sub(r"\x1b\[[\d;]*m", "", screen))
            if time.monotonic() > deadline or (done and not shown):
                raise TimeoutError(f"{commands}: {screen}")
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    keep_svg(screen, name, columns)


def keep_svg(screen: str, name: str, columns: int) -> None:
    """Write a screen with its colours as SVG, without the local part of the kernel's version."""
    screen = screen.replace(platform.release(), platform.release().partition("-")[0])
    console = Console(record=True, width=columns, file=StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(screen.rstrip()), soft_wrap=True)
    console.print()  # the last line of the picture loses its descenders
    path = HERE / f"{name}.svg"
    path.write_text(console.export_svg(title=f"vantage {name}", code_format=SVG, unique_id=f"vantage-{name}"),
                    encoding="utf-8")
    check_size(path)


@contextmanager
def window(name: str, command: str) -> Iterator[str]:
    """Open the window of `command` and yield its display; on exit, write a picture of the window."""
    print(f"$ {command}", flush=True)
    read, write = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "1000x800x24", "-wr", "-noreset"],
                              pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    display = f":{os.read(read, 16).decode().strip()}"
    player = subprocess.Popen(shlex.split(command), env={**os.environ, "DISPLAY": display, "SDL_VIDEODRIVER": "x11"})
    try:
        deadline = time.monotonic() + SECONDS
        while photographed(display) is None:
            if time.monotonic() > deadline or player.poll() is not None:
                raise TimeoutError(command)
            time.sleep(0.2)
        yield display
        picture = photographed(display)
        assert picture is not None
        keep_png(picture, name)
    finally:
        for process in (player, server):
            process.terminate()
            process.wait()


def photographed(display: str) -> Image.Image | None:
    """The part of a white screen that is not white; None if all of it is."""
    screen = ImageGrab.grab(xdisplay=display).convert("RGB")
    box = ImageChops.difference(screen, Image.new("RGB", screen.size, "white")).getbbox()
    return None if box is None else screen.crop(box)


def xdotool(display: str, *words: str) -> None:
    """Press or let go of a key."""
    subprocess.run(["xdotool", *words], check=True, env={**os.environ, "DISPLAY": display})


def keep_png(picture: Image.Image, name: str) -> None:
    """Write the picture, with fewer colours if the file would be too large."""
    path = HERE / f"{name}.png"
    picture.convert("RGB").save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        picture.convert("RGB").quantize(128).save(path, optimize=True)
    check_size(path)


def check_size(path: Path) -> None:
    """Print the size of a picture; ValueError if it is too large for a page."""
    size = path.stat().st_size
    print(f"{path.name}: {size / 1000:.0f} kB", flush=True)
    if size > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES:,} bytes")


KINDS: dict[str, Callable[[], None]] = {
    "seeds": seeds, "learning": learning, "preview": preview, "train": train, "search": search, "plot": plot,
    "export": export, "doctor": doctor, "play": play, "record": record, "report": report, "watch": watch}
NEEDS = {"record": PONG, "report": LANDER, "watch": LANDER, "export": POLE, "plot": POLE}
"""The run that a picture shows."""
PROGRAMS = {**dict.fromkeys(("train", "search", "export", "doctor"), ("tmux",)),
            "play": ("Xvfb", "xdotool"), "watch": ("Xvfb",)}
"""What a picture needs besides `vantage`; the report needs Chromium."""


def main() -> None:
    """Make the requested pictures, in a temporary directory so that they show no path of this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", metavar="KIND", help=f"which pictures: {', '.join(KINDS)} (all)")
    parser.add_argument("--pong", metavar="RUN", help="a finished run of make train: for record")
    parser.add_argument("--lander", metavar="RUN", help="one of vantage train acer --env LunarLander-v3: report, watch")
    arguments = parser.parse_args()
    given = {PONG: arguments.pong, LANDER: arguments.lander}
    only = arguments.only or [kind for kind in KINDS if given.get(NEEDS.get(kind), "") is not None]
    for kind in only:
        if kind not in KINDS:
            parser.error(f"no picture is called {kind}; there are {', '.join(KINDS)}")
        if given.get(NEEDS.get(kind), "") is None:
            parser.error(f"{kind} shows {NEEDS[kind]}: give such a run, see --help")
    for run_given in filter(None, given.values()):
        if not (Path(run_given) / "config.json").exists():
            parser.error(f"{run_given} is no run directory")
    programs = {"vantage", *(program for kind in only for program in PROGRAMS.get(kind, ()))}
    missing = [program for program in sorted(programs) if shutil.which(program) is None]
    if "report" in only and not browser():
        missing.append("chromium")
    if missing:
        parser.error(f"install {', '.join(missing)} first")
    with tempfile.TemporaryDirectory() as folder:
        for path, run_given in given.items():
            if run_given is not None:
                shutil.copytree(run_given, Path(folder) / path,
                                ignore=shutil.ignore_patterns("replay", "tensorboard", "videos"))
        os.chdir(folder)
        shutil.copy(SPACE, "space.json")
        if "train" not in only and POLE in map(NEEDS.get, only):
            run(TRAINING)
        for kind in sorted(only, key=list(KINDS).index):
            KINDS[kind]()
    if not arguments.only and len(only) < len(KINDS):
        print(f"not made, because they need a run: {', '.join(kind for kind in KINDS if kind not in only)}")


if __name__ == "__main__":
    main()
