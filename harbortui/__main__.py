"""The command `harbortui`, which is also `python -m harbortui`.

Guarantees: `--version` answers before anything but this file is imported.
"""

import sys


def main() -> int:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from harbortui import __version__

        print(f"harbortui {__version__}")
        return 0
    from harbortui.cli.app import main as command

    return command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
