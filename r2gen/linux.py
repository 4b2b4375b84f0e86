"""Refuses to run on anything but Linux. Checked before any import that needs Linux."""

import sys

EXIT_BAD_INPUT = 2
_INSTEAD = {
    "win32": "on Windows run it in WSL2, which `wsl --install` sets up",
    "cygwin": "on Windows run it in WSL2, which `wsl --install` sets up",
    "darwin": "on macOS run it in a Linux virtual machine or container",
}


def require_linux(program: str) -> None:
    """Exits with code 2 and one line on stderr unless this is Linux."""
    if not sys.platform.startswith("linux"):
        instead = _INSTEAD.get(sys.platform, f"this is {sys.platform}")
        print(f"{program}: needs Linux, for /proc and Unix signals: {instead}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
