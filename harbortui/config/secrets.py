"""What is a secret, by its name or by its look, and how it is kept out of files and screens.

Guarantees: importing this module loads neither pydantic nor tomlkit (keepers import it). A name is a secret when one
of its words is (`WANDB_API_KEY`, `hfToken`), not when it merely contains one (`MONKEY`, `MAX_TOKENS`). `redact` never
replaces values so short that ordinary text would be torn.
Secrets are named in a config as `"${NAME}"`; `expand` puts the value in at the last moment, in memory.

On failure: `expand` raises `KeyError` with the name that has no value.
"""

import re
from collections.abc import Iterable, Mapping

REDACTED = "[redacted]"
SHORTEST = 6
"""Values shorter than this are not redacted: they occur everywhere."""

_SECRET = frozenset(
    {
        "KEY",
        "KEYS",
        "APIKEY",
        "TOKEN",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWORDS",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "AUTH",
        "AUTHORIZATION",
        "BEARER",
        "DSN",
    }
)
_NOT_BEFORE_TOKEN = frozenset({"PAD", "EOS", "BOS", "UNK", "SEP", "CLS", "MASK", "STOP", "IMAGE", "PER"})
_NOT_BEFORE_KEY = frozenset({"PUBLIC", "PRIMARY", "SORT", "REWARD", "METRIC", "INPUT", "OUTPUT", "PROMPT", "ANSWER"})
_NOT_AT_END = frozenset({"ENV", "VAR", "NAME", "FILE", "PATH", "DIR", "SOCK", "TYPE", "MODE", "LENGTH", "COUNT"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LOOK = re.compile(
    r"(?:sk|tml|hf|ghp|gho|github_pat|glpat|xox[abpr]|wandb_v\d)[-_][A-Za-z0-9_-]{16,}|AKIA[A-Z0-9]{16}"
    r"|https://hooks\.slack\.com/services/.+|https://discord(?:app)?\.com/api/webhooks/.+"
    r"|.*-----BEGIN [A-Z ]*PRIVATE KEY-----.*|[a-z][a-z0-9+.-]*://[^/@\s:]*:[^/@\s$]+@.*",
    re.DOTALL,
)
_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def is_secret_name(name: str) -> bool:
    """Whether what this variable or key holds must never be shown."""
    words = [word.upper() for word in _WORD.findall(name)]
    if not words or words[-1] in _NOT_AT_END:
        return False
    for before, word in zip(["", *words], words, strict=False):
        if word not in _SECRET:
            continue
        if word == "TOKEN" and before in _NOT_BEFORE_TOKEN:
            continue
        if word == "KEY" and before in _NOT_BEFORE_KEY:
            continue
        return True
    return False


def looks_secret(value: str) -> bool:
    """Whether the value itself is of a known shape: a provider's key, a private key, a password in a URL."""
    return _LOOK.fullmatch(value) is not None


def secret_values(variables: Mapping[str, str]) -> list[str]:
    """The values to redact: of every variable whose name or look says secret."""
    return [value for name, value in variables.items() if is_secret_name(name) or looks_secret(value)]


def redact(text: str, values: Iterable[str]) -> str:
    """The text without any of the values, nor any line of one; where they overlap, without all of them."""
    spans = []
    for piece in {part for value in values for part in (value, *value.splitlines()) if len(part) >= SHORTEST}:
        start = text.find(piece)
        while start >= 0:
            spans.append((start, start + len(piece)))
            start = text.find(piece, start + 1)
    kept, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            kept += [text[end:start], REDACTED]
        end = max(end, stop)
    return "".join([*kept, text[end:]])


def named(text: str) -> list[str]:
    """The variables that a value names as `${NAME}`."""
    return _NAMED.findall(text)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The value with every `${NAME}` replaced by its variable."""
    return _NAMED.sub(lambda match: variables[match[1]], text)
