#!/usr/bin/env bash
# Makes a checkout ready to run: uv, a Python, tmux and bubblewrap, the packages.
#
#   scripts/setup.sh base     what the tests need
#   scripts/setup.sh local    also torch, to train on this machine (several GB)
#
# Starts from python3, make and git on Debian or Ubuntu. Everything lands inside
# the checkout (.tools, .venv), but for packages that apt may install when this
# runs as root or sudo asks no password. What it may not install it names in one
# command: without tmux or bubblewrap it goes on, without uv, Python or the
# packages it stops with status 1. Doing it again changes nothing, and is quick:
# the packages are synced only when pyproject.toml changed or some are missing.
# It never removes a package, so `base` leaves torch where it is.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-base}
tools=.tools
uv=$tools/uv
mkdir -p "$tools"
export UV_PROJECT_ENVIRONMENT=.venv UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-300} PIP_ROOT_USER_ACTION=ignore
unset VIRTUAL_ENV

say() { printf 'setup: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
runs() { "$@" >/dev/null 2>&1 </dev/null; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

apt_install() {
    have apt-get && runs as_root true || return 1
    say "apt installs $*"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
    {
        as_root "${apt[@]}" install --no-install-recommends "$@" ||
            { as_root "${apt[@]}" update && as_root "${apt[@]}" install --no-install-recommends "$@"; }
    } >"$tools/apt.log" 2>&1 </dev/null || {
        say "apt failed; the end of $tools/apt.log:"
        tail -n 5 "$tools/apt.log" >&2
        return 1
    }
}

# A uv that understands this pyproject.toml, from wherever the user has one.
link_own_uv() {
    local found version
    for found in "$(command -v uv || true)" "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv"; do
        version=$("${found:-false}" --version 2>/dev/null </dev/null | cut -d ' ' -f 2) || continue
        if printf '0.8\n%s\n' "${version:-0}" | sort -V -C; then
            ln -sfn "$found" "$uv"
            return
        fi
    done
    return 1
}

# pyenv's python3 fails where it lacks the version in .python-version: look past it.
find_python3() {
    local found
    for found in python3 /usr/bin/python3 /usr/local/bin/python3; do
        if runs "$found" --version; then
            echo "$found"
            return
        fi
    done
    return 1
}

can_install_uv() { runs "$python3" -m pip --version || runs "$python3" -c 'import ensurepip, venv'; }

install_uv() {
    say "installing uv into $tools"
    if runs "$python3" -m pip --version; then
        "$python3" -m pip install --quiet --upgrade --target "$tools/uv-package" 'uv>=0.8,<1' || return 1
        ln -sfn uv-package/bin/uv "$uv"
    else
        "$python3" -m venv --clear "$tools/uv-venv" || return 1
        "$tools/uv-venv/bin/pip" install --quiet 'uv>=0.8,<1' || return 1
        ln -sfn uv-venv/bin/uv "$uv"
    fi
}

find_python() { UV_PYTHON_DOWNLOADS=never "$uv" python find --system "$1" 2>/dev/null; }

# The one that .venv has; else 3.12, as .python-version tells uv and pyenv, if need be by download; else a newer one.
choose_python() {
    if runs .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
        echo .venv/bin/python
    elif ! find_python 3.12; then
        say "no Python 3.12 here: uv downloads one"
        if "$uv" python install --no-bin 3.12 >&2; then
            find_python 3.12
        else
            find_python '>=3.12' && say "taking a newer one; uv without make needs:  --python .venv/bin/python"
        fi
    fi
}

stamp() { sha256sum pyproject.toml .python-version; }

synced() {
    [ "$(cat ".venv/.synced-$mode" 2>/dev/null)" = "$(stamp)" ] || return 1
    local needed=(.venv/bin/harbortui .venv/bin/pytest .venv/bin/ruff .venv/bin/mypy .venv/bin/lint-imports)
    if [ "$mode" = local ]; then
        needed+=(.venv/lib/python3*/site-packages/{torch,transformers,peft}/__init__.py)
    fi
    ls "${needed[@]}" >/dev/null 2>&1 && runs .venv/bin/python --version
}

missing=()
have tmux || missing+=(tmux)
have bwrap || missing+=(bubblewrap)
if ! runs "$uv" --version && ! link_own_uv; then
    python3=$(find_python3) || { say "python3 is missing; type:  sudo apt-get install -y python3"; exit 1; }
    can_install_uv || missing+=(python3-venv)
    install_uv_too=yes
fi
if [ ${#missing[@]} -gt 0 ] && ! apt_install "${missing[@]}"; then
    say "missing: ${missing[*]}; type:  sudo apt-get update && sudo apt-get install -y ${missing[*]}"
fi
if [ -n "${install_uv_too:-}" ]; then
    can_install_uv && install_uv || { say "no uv: install python3-venv (above) or uv itself, then start again"; exit 1; }
fi

if ! synced; then
    python=$(choose_python) || { say "no Python 3.12 or newer; where github.com answers, type:  $uv python install 3.12"; exit 1; }
    extras=()
    [ "$mode" = base ] || extras=(--extra "$mode")
    "$uv" sync --inexact --python "$python" "${extras[@]}" || { say "the packages could not be synced"; exit 1; }
    stamp >".venv/.synced-$mode"
fi
