"""A window that shows frames in real time, and the keys pressed in it. The frames are drawn elsewhere."""

from __future__ import annotations

import os
import sys

from vantage.errors import ConfigError
from vantage.tools.frames import Picture

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # read when pygame is imported

try:
    import pygame
except ImportError as error:
    raise ConfigError(f"a window needs pygame, which cannot be imported ({error}); pip install "
                      "'gymnasium[classic-control]'") from None

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_INVISIBLE = ("dummy", "offscreen")


class Window:
    """Shows frames until the person closes it, or presses Esc or q."""

    def __init__(self, title: str, *, remedy: str, q_closes: bool = True) -> None:
        """ConfigError without a display; its message ends with `remedy`."""
        self._title, self._remedy = title, remedy
        self._closing = {pygame.K_ESCAPE, *([pygame.K_q] if q_closes else [])}
        self._clock = pygame.time.Clock()
        self._open()
        self._held: set[int] = set()
        self.keys: set[int] = set()
        """Keys held down at the end of the last `wait`, or pressed during it."""

    def show(self, frame: Picture) -> None:
        """Show `frame`, RGB [H, W, 3], in a window of its size."""
        size = (frame.shape[1], frame.shape[0])
        if not pygame.display.get_init():  # closing an environment may quit pygame as a whole
            self._open()
        surface = pygame.display.get_surface()
        if surface is None or surface.get_size() != size:
            surface = pygame.display.set_mode(size)
            pygame.display.set_caption(self._title)
        surface.blit(pygame.image.frombuffer(frame.tobytes(), size, "RGB"), (0, 0))
        pygame.display.flip()

    def wait(self, fps: float) -> bool:
        """Wait until the frame has been shown for 1/fps seconds; False once the person closes the window."""
        self._clock.tick(fps)
        pressed, done = set(), False
        for event in pygame.event.get():
            done |= event.type == pygame.QUIT
            if event.type == pygame.KEYDOWN:
                self._held.add(event.key)
                pressed.add(event.key)
            elif event.type == pygame.KEYUP:
                self._held.discard(event.key)
        self.keys = self._held | pressed
        return not done and not self._closing & pressed

    def close(self) -> None:
        """Close the window."""
        pygame.quit()

    def _open(self) -> None:
        refusal = f"there is no display for a window; {self._remedy}"
        # SDL would try one driver after another and print an error for each.
        if sys.platform == "linux" and not any(map(os.environ.get, _DISPLAYS)):
            raise ConfigError(refusal)
        try:
            pygame.display.init()
            driver = pygame.display.get_driver()
        except pygame.error as error:
            raise ConfigError(f"{refusal} ({error})") from None
        if driver in _INVISIBLE and os.environ.get("SDL_VIDEODRIVER") != driver:
            raise ConfigError(refusal)


def key_code(name: str) -> int:
    """The code of a key, by a name such as left, space or q."""
    return getattr(pygame, f"K_{name.upper() if len(name) > 1 else name}")  # type: ignore[no-any-return]


def key_name(code: int) -> str:
    """The name of a key."""
    return next((name for name in ("left", "right", "up", "down", "space") if key_code(name) == code),
                chr(code) if code < 128 else f"key {code}")
