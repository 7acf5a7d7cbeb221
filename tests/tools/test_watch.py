"""Windows of watch and play: what they show, keys, closing. SDL's dummy driver replaces a screen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pygame
import pytest
from conftest import train_shortly

import vantage
from vantage.cli import main
from vantage.config.config import Config
from vantage.envs.make import make_single
from vantage.errors import ConfigError
from vantage.tools import keyboard_play as play
from vantage.tools import watch
from vantage.tools.keyboard_play import action_of, choose_keys
from vantage.tools.window import Window


def press(key: int, event: int = pygame.KEYDOWN) -> None:
    pygame.event.post(pygame.event.Event(event, key=key))


def close() -> None:
    pygame.event.post(pygame.event.Event(pygame.QUIT))


React = Callable[[int, tuple[str, ...]], None]


@pytest.fixture
def on_frame(monkeypatch: pytest.MonkeyPatch) -> Callable[[React], None]:
    """Calls a function after each frame that is shown, with the frame's number and words. Nothing waits."""
    def install(react: React) -> None:
        shown: list[tuple[str, ...]] = []
        draw, show = watch.draw_frame, Window.show

        def note_words(screen: Any, *words: str) -> Any:
            shown.append(words)
            return draw(screen, *words)

        def then_react(self: Window, frame: Any) -> None:
            show(self, frame)
            np.testing.assert_array_equal(pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1), frame)
            assert len(shown) < 1000, "nobody ended it"
            react(len(shown), shown[-1])

        for module in (watch, play):
            monkeypatch.setattr(module, "draw_frame", note_words)
        monkeypatch.setattr(Window, "show", then_react)
        monkeypatch.setattr(pygame.time, "Clock", Hurried)

    return install


class Hurried:
    """A clock that does not wait."""

    def tick(self, fps: float) -> None:
        assert fps in (15, 50, 60, 30)


@pytest.mark.parametrize(("end", "frames"), [
    (close, 183), (lambda: press(pygame.K_ESCAPE), 2), (lambda: press(pygame.K_q), 2)])
def test_the_window_shows_games_until_it_is_closed_whose_end_may_be_a_step_limit(
        end: Callable[[], None], frames: int, cartpole_run: Path, on_frame: Any) -> None:
    seen = []

    def react(count: int, words: tuple[str, ...]) -> None:
        seen.append([word.split()[0] for word in words] + [words[2]])
        if count == frames:
            end()

    on_frame(react)
    assert main(["watch", str(cartpole_run)]) == 0
    assert len(seen) == frames and all(words[:4] == ["score", "value", "step", "trained"] for words in seen)
    steps = [int(words[-1].split()[1]) for words in seen]
    assert steps.count(0) >= frames // 61 and all(after in (0, before + 1) for before, after in pairwise(steps))


@pytest.mark.parametrize(("checkpoint", "expected"), [
    ("latest", ["trained 400", "trained 800"]), ("400", ["trained 400"])])
def test_the_next_game_is_played_by_the_newest_checkpoint_unless_one_is_chosen(
        checkpoint: str, expected: list[str], tmp_path: Path, on_frame: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = train_shortly(tmp_path / "run", "CartPole-v1", max_episode_steps=12)
    trained = []

    def react(count: int, words: tuple[str, ...]) -> None:
        if count == 1:
            assert [report.status for report in vantage.Trainer.resume(run, steps=800)][-1] == "done"
        (run / "checkpoints/step-000000000999").mkdir(exist_ok=True)  # a damaged one
        trained.append(words[-1])
        if count == 30:  # the third game
            close()

    on_frame(react)
    watch.watch(run, checkpoint=checkpoint)
    assert list(dict.fromkeys(trained)) == expected and ("step-000000000999" in caplog.text) == (len(expected) > 1)
    assert trained.count("trained 400") > 5  # the first game is played to its end


@pytest.mark.skipif(sys.platform != "linux", reason="displays are named by the environment on Linux alone")
@pytest.mark.parametrize(("command", "says"), [("watch", "vantage record"), ("play", "play needs one")])
@pytest.mark.parametrize("display", [None, ":987"])
def test_without_a_display_the_remedy_is_named(display: str | None, command: str, says: str, cartpole_run: Path,
                                               capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pygame.quit()
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    if display is not None:
        monkeypatch.setenv("DISPLAY", display)
    assert main([command, str(cartpole_run) if command == "watch" else "CartPole-v1"]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_a_key_pressed_and_released_within_a_frame_counts_for_it() -> None:
    window = Window("x", "")
    for _ in range(2):
        pygame.quit()  # as an environment may
        window.show(np.zeros((4, 6, 3), np.uint8))
    press(pygame.K_LEFT)
    press(pygame.K_SPACE)
    press(pygame.K_SPACE, pygame.KEYUP)
    assert window.wait(1000) and window.keys == {"left", "space"}
    assert window.wait(1000) and window.keys == {"left"}
    press(pygame.K_LEFT, pygame.KEYUP)
    window.wait(1000)
    assert window.wait(1000) and window.keys == set()
    window.close()


# Environment, keys of its config, then: keyboard keys that are pressed, the action before, the action.
@pytest.mark.parametrize(("env", "values", "cases"), [
    ("Pong", {}, [("", 3, 0), ("space", 0, 1), ("right space", 0, 4), ("left up", 0, 3)]),
    ("Pong", {"action_subset": "FIRE,RIGHT,LEFT"}, [("right", None, 1), ("left", 1, 2), ("", 2, None)]),
    ("MountainCar-v0", {}, [("left", 1, 0), ("", 0, 1), ("right", 1, 2), ("left right", 0, 1)]),  # its own, of SDL 1
    ("MountainCar-v0", {"action_subset": "0,2"}, [("left", 1, 0), ("right", 0, 1)]),
    ("LunarLander-v3", {"action_subset": "3,0"}, [("right", 1, 0), ("left", 0, 1), ("", 0, 1)]),
    ("CartPole-v1", {}, [("left", 1, 0), ("right", 0, 1), ("", 1, 1), ("", None, None)]),
    ("FrozenLake-v1", {}, [("", 2, None), ("up", None, 3)]),
    ("drawn:Drawn", {}, [("4", None, 4), ("", 4, None)]),
    ("drawn:Drawn", {"env_kwargs": '{"numbers": 1}'}, [("left", 0, (-1,)), ("right", 0, (3,)), ("", (3,), (1,))]),
])
def test_keys_have_the_actions_that_their_names_suggest(
        env: str, values: dict[str, Any], cases: list[tuple[str, Any, Any]]) -> None:
    config = Config().change(env=env, **values)
    envs = make_single(config.env, seed=0, stream=play.STREAM)
    envs.reset()
    keys = choose_keys(envs, config)
    assert [action_of(keys, set(pressed.split()), before) for pressed, before, _ in cases] == [
        action for *_, action in cases]
    envs.close()


def test_what_keys_cannot_play_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"actions of drawn:Drawn, box \[2\]"):
        play.play(Config().change(env="drawn:Drawn", env_kwargs='{"numbers": 2}'), say=print)


def test_a_game_is_played_by_hand_to_its_end(on_frame: Any) -> None:
    lines: list[str] = []

    def react(count: int, words: tuple[str, ...]) -> None:
        if count == 3:
            assert words[1] == "step 0"  # it waits for the first key
            press(pygame.K_RIGHT)
        if len(lines) == 2:
            close()

    on_frame(react)
    play.play(Config().change(env="CartPole-v1", demonstrations="games.safetensors"), say=lines.append)
    score, steps = lines[1].split()[1], lines[1].split()[3]
    assert lines[0] == "left: 0, right: 1; Esc ends" and score == steps and 7 <= int(steps) <= 11  # it falls over
    assert lines[2] == f"games.safetensors: 1 episodes, {steps} steps, mean return {score}"


def test_games_played_until_an_interrupt_are_written(on_frame: Any) -> None:
    lines: list[str] = []

    def react(count: int, words: tuple[str, ...]) -> None:
        if count == 3:
            press(pygame.K_RIGHT)
        if len(lines) == 2:
            raise KeyboardInterrupt

    on_frame(react)
    with pytest.raises(KeyboardInterrupt):
        play.play(Config().change(env="CartPole-v1", demonstrations="games.safetensors"), say=lines.append)
    assert lines[2].startswith("interrupted; games.safetensors holds the games that had ended: 1 episodes")
    assert Path("games.safetensors").exists()
