"""Windows of watch and play: the surface, the policy that plays, keys, closing. SDL's dummy driver replaces a screen,
except in one test with an X server."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pygame
import pytest
from conftest import train_shortly
from PIL import Image, ImageGrab

import vantage
from vantage.cli import main
from vantage.config import Config
from vantage.envs import make_rendered
from vantage.errors import ConfigError
from vantage.tools import frames
from vantage.tools.play import Keys, choose_keys
from vantage.tools.play import play as play_by_hand
from vantage.tools.watch import watch
from vantage.tools.window import Window

LEFT, RIGHT, UP, SPACE = pygame.K_LEFT, pygame.K_RIGHT, pygame.K_UP, pygame.K_SPACE


def press(key: int) -> None:
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))


def let_go(key: int) -> None:
    pygame.event.post(pygame.event.Event(pygame.KEYUP, key=key))


def close() -> None:
    pygame.event.post(pygame.event.Event(pygame.QUIT))


@pytest.fixture
def on_frame(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, Sequence[str]], None]], None]:
    """Calls a function after each frame that is shown, with the frame's number and words. Nothing waits."""
    def install(react: Callable[[int, Sequence[str]], None]) -> None:
        shown: list[Sequence[str]] = []
        draw, show = frames.Canvas.draw, Window.show

        def note_words(self: frames.Canvas, screen: Any, words: Sequence[str]) -> Any:
            shown.append(words)
            return draw(self, screen, words)

        def then_react(self: Window, frame: Any) -> None:
            show(self, frame)
            surface = pygame.display.get_surface()
            assert surface is not None
            np.testing.assert_array_equal(pygame.surfarray.array3d(surface).swapaxes(0, 1), frame)
            assert len(shown) < 1000, "nobody ended it"
            react(len(shown), shown[-1])

        monkeypatch.setattr(frames.Canvas, "draw", note_words)
        monkeypatch.setattr(Window, "show", then_react)
        monkeypatch.setattr(pygame.time, "Clock", Hurried)

    return install


class Hurried:
    """A clock that does not wait."""

    def tick(self, fps: float) -> None:
        assert fps in (15, 50, 60, 30)


@pytest.mark.parametrize("end", [close, lambda: press(pygame.K_ESCAPE), lambda: press(pygame.K_q)])
def test_the_window_shows_score_and_value_until_it_is_closed(
        end: Callable[[], None], cartpole_run: Path, on_frame: Any) -> None:
    seen = []

    def react(count: int, words: Sequence[str]) -> None:
        seen.append([word.split()[0] for word in words])
        if count == 5:
            end()

    on_frame(react)
    assert main(["watch", str(cartpole_run)]) == 0
    assert seen == [["score", "value", "step", "trained"]] * 5


@pytest.fixture
def x_server() -> Iterator[str]:
    """The display of a new X server, all black."""
    read, write = os.pipe()
    # Without -noreset it resets whenever its last client disconnects, here after each screenshot.
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "800x700x24", "-br", "-noreset"],
                              pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read) as number:
        display = f":{number.readline().strip()}"
    yield display
    server.terminate()
    server.wait()


@pytest.mark.skipif(shutil.which("Xvfb") is None, reason="no X server here")
def test_an_x_server_shows_the_whole_window(cartpole_run: Path, x_server: str) -> None:
    environment = {**os.environ, "DISPLAY": x_server, "SDL_VIDEODRIVER": "x11",
                   "PYTHONPATH": os.pathsep.join(sys.path)}
    deadline, seen = time.monotonic() + 60, Image.new("RGB", (1, 1))
    with subprocess.Popen([sys.executable, "-m", "vantage.cli", "watch", str(cartpole_run)], env=environment,
                          stderr=subprocess.PIPE, text=True) as player:
        while (np.asarray(seen) == 255).mean() < 0.5:  # until the first frame
            if player.poll() is not None or time.monotonic() > deadline:
                break
            screen = ImageGrab.grab(xdisplay=x_server).convert("RGB")
            seen = screen.crop(screen.getbbox() or (0, 0, 1, 1))
        player.terminate()
        assert player.communicate(timeout=30)[1] == ""
    assert seen.size == (600, 434)
    game, words = (np.asarray(seen.crop(box).convert("L")) for box in ((0, 0, 600, 400), (0, 400, 600, 434)))
    assert (game == 0).any() and (game == 255).mean() > 0.9  # the cart on white
    assert words.max() > 200 and np.median(words) < 60


@pytest.mark.parametrize(("checkpoint", "expected"), [
    ("latest", ["trained 400", "trained 800"]), ("400", ["trained 400"])])
def test_the_next_game_is_played_by_the_newest_checkpoint_unless_one_is_chosen(
        checkpoint: str, expected: list[str], tmp_path: Path, on_frame: Any) -> None:
    run = train_shortly(tmp_path / "run", "CartPole-v1", max_episode_steps=12)
    trained = []

    def react(count: int, words: Sequence[str]) -> None:
        if count == 1:
            assert [report.status for report in vantage.resume(run, steps=800)][-1] == "done"
        trained.append(words[-1])
        if count == 30:  # the third game
            close()

    on_frame(react)
    watch(run, checkpoint=checkpoint)
    assert list(dict.fromkeys(trained)) == expected
    assert trained.count("trained 400") > 5  # the first game is played to its end


def test_after_a_game_without_an_end_the_next_begins(
        cartpole_run: Path, on_frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.envs.single.LONGEST_GAME", 6)
    steps = []

    def react(count: int, words: Sequence[str]) -> None:
        steps.append(words[2])
        if count == 21:
            close()

    on_frame(react)
    watch(cartpole_run)
    assert steps == [f"step {i}" for i in range(7)] * 3


def test_a_damaged_newer_checkpoint_is_logged_and_skipped(
        tmp_path: Path, on_frame: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = train_shortly(tmp_path / "run", "CartPole-v1", max_episode_steps=5)

    def react(count: int, words: Sequence[str]) -> None:
        (run / "checkpoints/step-000000000999").mkdir(exist_ok=True)
        assert words[-1] == "trained 400"
        if "step-000000000999" in caplog.text:
            close()

    on_frame(react)
    watch(run)
    assert "step-000000000999" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="displays are named by the environment on Linux alone")
@pytest.mark.parametrize(("command", "says"), [("watch", "vantage record"), ("play", "play needs one")])
def test_without_a_display_the_way_out_is_named(command: str, says: str, cartpole_run: Path, capsys: Any,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert main([command, str(cartpole_run) if command == "watch" else "CartPole-v1"]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_a_window_without_pygame_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.delitem(sys.modules, "vantage.tools.window")
    with pytest.raises(ConfigError, match=r"pip install 'gymnasium\[classic-control\]'$"):
        importlib.import_module("vantage.tools.window")


def test_a_window_survives_an_environment_that_takes_pygame_with_it() -> None:
    window = Window("x", remedy="")
    frame = np.full((4, 6, 3), 9, np.uint8)
    window.show(frame)
    pygame.quit()
    window.show(frame)
    pygame.quit()
    pygame.init()  # the next environment has begun to draw
    window.show(frame)
    assert pygame.display.get_surface() is not None and window.wait(60)
    window.close()


def test_a_key_pressed_and_let_go_within_a_frame_counts_for_it() -> None:
    window = Window("x", remedy="")
    window.show(np.zeros((4, 6, 3), np.uint8))
    press(LEFT)
    press(RIGHT)
    let_go(RIGHT)
    assert window.wait(1000) and window.keys == {LEFT, RIGHT}
    assert window.wait(1000) and window.keys == {LEFT}
    let_go(LEFT)
    assert window.wait(1000) and window.keys == set()
    window.close()


def keys_of(env: str, **values: Any) -> Keys:
    config = Config().change(env=env, **values)
    envs = make_rendered(config.env, seed=0, stream=3)
    envs.reset()
    try:
        return choose_keys(envs, config)
    finally:
        envs.close()


def test_atari_keys_follow_what_the_actions_mean() -> None:
    keys = keys_of("Pong")
    names = {0: "NOOP", 1: "FIRE", 2: "RIGHT", 3: "LEFT", 4: "RIGHTFIRE", 5: "LEFTFIRE"}
    for pressed, meaning in ((set(), "NOOP"), ({SPACE}, "FIRE"), ({RIGHT, SPACE}, "RIGHTFIRE"), ({LEFT, UP}, "LEFT")):
        assert names[keys.action(pressed, None)] == meaning


def test_keys_give_the_numbers_that_a_subset_of_actions_has() -> None:
    keys = keys_of("MountainCar-v0", action_subset="0,2")
    assert [keys.action(pressed, None) for pressed in ({LEFT}, {RIGHT})] == [0, 1]
    lander = keys_of("LunarLander-v3", action_subset="3,0")
    assert lander.action({RIGHT}, None) == 0 and lander.action({LEFT}, None) == 1  # to do nothing
    pong = keys_of("Pong", action_subset="FIRE,RIGHT,LEFT")
    assert [pong.action({RIGHT}, None), pong.action({LEFT}, None), pong.action(set(), 2)] == [1, 2, 2]


def test_an_environments_own_keys_come_first() -> None:
    keys = keys_of("MountainCar-v0")  # its arrows have the numbers of SDL 1
    assert [keys.action(pressed, None) for pressed in ({LEFT}, set(), {RIGHT}, {LEFT, RIGHT})] == [0, 1, 2, 1]


def test_arrows_push_and_the_last_push_goes_on_where_there_is_no_rest() -> None:
    keys = keys_of("CartPole-v1")
    assert [keys.action({LEFT}, None), keys.action({RIGHT}, 0), keys.action(set(), 1)] == [0, 1, 1]


def test_one_bounded_number_is_pushed_to_its_bounds() -> None:
    keys = keys_of("drawn:Drawn", env_kwargs='{"numbers": 1}')
    assert [keys.action(pressed, None) for pressed in ({LEFT}, {RIGHT}, set())] == [[-1], [3], [1]]


def test_games_of_single_moves_wait_for_a_key() -> None:
    assert keys_of("FrozenLake-v1").action(set(), 2) is None
    keys = keys_of("drawn:Drawn")
    assert keys.action({pygame.K_4}, None) == 4 and keys.action(set(), 4) is None


def test_what_keys_cannot_play_is_an_error() -> None:
    with pytest.raises(ConfigError, match="takes 2 numbers at each step"):
        keys_of("drawn:Drawn", env_kwargs='{"numbers": 2}')


def test_a_game_is_played_by_hand_to_its_end(on_frame: Any) -> None:
    lines: list[str] = []

    def react(count: int, words: Sequence[str]) -> None:
        if count == 1:
            press(RIGHT)
        if len(lines) == 2:
            close()

    on_frame(react)
    play_by_hand(Config().change(env="CartPole-v1"), say=lines.append)
    score, steps = lines[1].split()[1], lines[1].split()[3]
    assert lines[0] == "left: 0, right: 1; Esc ends" and score == steps and 7 <= int(steps) <= 11  # it falls over


def test_a_stepwise_game_moves_at_a_key_alone(on_frame: Any) -> None:
    steps = []

    def react(count: int, words: Sequence[str]) -> None:
        steps.append(words[1])
        if count == 3:
            press(pygame.K_1)
            let_go(pygame.K_1)
        if count == 6:
            close()

    on_frame(react)
    play_by_hand(Config().change(env="drawn:Drawn"), say=lambda text: None)
    assert steps == ["step 0"] * 3 + ["step 1"] * 3
