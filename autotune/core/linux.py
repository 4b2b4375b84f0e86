"""Checks that this is Linux; called before importing modules that exist only there."""

import sys

EXIT_BAD_INPUT = 2
_INSTEAD = {
    "win32": "on Windows run it in WSL2, which `wsl --install` sets up",
    "cygwin": "on Windows run it in WSL2, which `wsl --install` sets up",
    "darwin": "on macOS run it in a Linux virtual machine or container",
}


def require_linux(program: str) -> None:
    """Ends the process with one line and exit code 2 if this is not Linux, which `program` needs."""
    if not sys.platform.startswith("linux"):
        instead = _INSTEAD.get(sys.platform, f"this is {sys.platform}")
        print(f"{program}: needs Linux, for /proc, prctl and Unix signals: {instead}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
