#!/usr/bin/env bash
# Run tests in environments that differ from a developer's: tests/environments.sh [what pytest takes]
# ONLY=name runs one of them, REPEAT=10 each of them so many times. Prints what fails where; exit status 1 if anything does.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset EPIBENCH_CACHE XDG_CACHE_HOME
long="$scratch/a folder with spaces/$(printf 'and-a-long-name-%.0s' {1..8})"
mkdir -p "$long"
failed=0

try() { # name, then what `env` takes
  local name=$1 number=1
  shift
  if [[ -n ${ONLY:-} && $ONLY != "$name" ]]; then return; fi
  for ((number = 1; number <= ${REPEAT:-1}; number++)); do
    if env "$@" "$PYTHON" -m pytest -q -p no:cacheprovider "${arguments[@]}" >"$scratch/log" 2>&1; then
      echo "$name: passed"
    else
      failed=1
      echo "$name: FAILED"
      grep -E '^(FAILED|ERROR)|no tests ran|rror:' "$scratch/log" | sort -u | head -40 | cut -c 1-200 | sed 's/^/  /'
      if [[ -n ${LOGS:-} ]]; then cp "$scratch/log" "$LOGS/$name.log"; fi
    fi
  done
}

arguments=("$@")
for columns in 40 60 80 300; do try "columns-$columns" COLUMNS=$columns; done
try dumb TERM=dumb
try no-term -u TERM
try c-locale LANG=C LC_ALL=C
try no-locale -u LANG -u LC_ALL PYTHONUTF8=0 PYTHONCOERCECLOCALE=0
try force-color FORCE_COLOR=1
try no-color NO_COLOR=1
try github GITHUB_ACTIONS=true CI=true
(umask 077 && try umask-077 true=1 && exit $failed) || failed=1
(umask 002 && try umask-002 true=1 && exit $failed) || failed=1
try temporary-folder TMPDIR="$long" PYTEST_DEBUG_TEMPROOT="$long"
try no-home HOME=/dev/null # nothing can be made below it, even by root
exit $failed
