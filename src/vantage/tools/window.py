"""A window that shows frames in real time, and the keys pressed in it; `frames` draws them."""

from __future__ import annotations

import os
import sys

from vantage._host.extras import needs
from vantage.errors import ConfigError
from vantage.tools.frames import Picture

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # read when pygame is imported

with needs("video"):
    import pygame

key_name = pygame.key.name
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


class Window:
    """Shows frames until the user closes it or presses Esc."""

    def __init__(self, title: str, remedy: str) -> None:
        """ConfigError without a display; its message ends with `remedy`."""
        self._title = title
        self._clock = pygame.time.Clock()
        self._held: set[str] = set()
        self.keys: set[str] = set()
        """Names of the keys held down at the end of the last `wait`, or pressed during it."""
        # SDL would try its drivers in turn, print an error for each, and then draw off screen.
        if sys.platform == "linux" and not any(map(os.environ.get, _DISPLAYS)):
            raise ConfigError(f"there is no display for a window; {remedy}")
        try:
            pygame.display.init()
            if pygame.display.get_driver() == "offscreen":
                raise pygame.error("it cannot be opened")
        except pygame.error as error:
            pygame.quit()
            raise ConfigError(f"there is no display for a window ({error}); {remedy}") from None

    def show(self, frame: Picture) -> None:
        """Show `frame`, RGB [H, W, 3], in a window of its size."""
        size = (frame.shape[1], frame.shape[0])
        surface = pygame.display.get_surface()  # None after an environment has quit pygame
        if surface is None or surface.get_size() != size:
            surface = pygame.display.set_mode(size)
            pygame.display.set_caption(self._title)
        surface.blit(pygame.image.frombuffer(frame.tobytes(), size, "RGB"), (0, 0))
        pygame.display.flip()

    def wait(self, fps: float) -> bool:
        """Show the frame for 1/fps seconds; False once the user closes the window."""
        self._clock.tick(fps)
        pressed: set[str] = set()
        released: set[str] = set()
        is_open = True
        for event in pygame.event.get():
            if event.type == pygame.KEYDOWN:
                pressed.add(key_name(event.key))
            elif event.type == pygame.KEYUP:
                released.add(key_name(event.key))
            elif event.type == pygame.QUIT:
                is_open = False
        self.keys = self._held | pressed
        self._held = self.keys - released
        return is_open and "escape" not in pressed

    def close(self) -> None:
        pygame.quit()
