#!/usr/bin/env bash
# The programs that the tests drive beside Python: Prometheus, VictoriaMetrics, Alertmanager and a Chromium.
# Installs what is missing with apt-get as root (or through sudo without a password), else says what to install.
# Nothing is left running: Debian starts all three servers as services, the tests start their own.
set -euo pipefail

have() { command -v "$1" > /dev/null; }

# On Ubuntu the package chromium-browser is a script that asks for a snap, so a browser counts when it answers.
have_browser() {
  local name
  for name in chromium google-chrome google-chrome-stable chromium-browser; do
    if have "$name" && "$name" --version > /dev/null 2>&1; then return 0; fi
  done
  return 1
}

missing=()
{ have prometheus && have promtool; } || missing+=(prometheus)
{ have prometheus-alertmanager || have alertmanager; } || missing+=(prometheus-alertmanager)
have victoria-metrics || missing+=(victoria-metrics)
have_browser || missing+=(chromium fonts-dejavu-core)
"${PYTHON:-python3}" -c 'import ensurepip, venv' 2> /dev/null || missing+=(python3-venv)
[ ${#missing[@]} -gt 0 ] || exit 0

# shellcheck disable=SC1091
if [[ " ${missing[*]} " == *" chromium "* ]] && [ "$(. /etc/os-release 2> /dev/null && echo "${ID:-}")" = ubuntu ]; then
  echo "missing: a browser. Ubuntu has Chromium as a snap only: run 'snap install chromium', or install google-chrome" >&2
  exit 1
fi

if [ "$(id -u)" = 0 ]; then
  as_root=(env)
elif have sudo && sudo -n true 2> /dev/null; then
  as_root=(sudo -n env)
else
  as_root=()
fi
if [ ${#as_root[@]} -eq 0 ] || ! have apt-get; then
  echo "missing: ${missing[*]} (these are the names of Debian's packages); install them and try again" >&2
  exit 1
fi

units=()
for package in "${missing[@]}"; do
  case $package in prometheus | prometheus-alertmanager | victoria-metrics) units+=("$package.service") ;; esac
done
# A masked unit is not started by its package. Units that were there before are left alone: they are somebody's.
masked() {
  if [ -d /run/systemd/system ] && [ ${#units[@]} -gt 0 ]; then
    "${as_root[@]}" systemctl "$@" "${units[@]}" 2> /dev/null || true
  fi
}

echo "installing ${missing[*]}"
masked mask --runtime
trap 'masked unmask --runtime; masked disable' EXIT
"${as_root[@]}" apt-get update -qq
# RUNLEVEL=1 keeps the packages' init scripts from starting anything where there is no systemd.
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
  apt-get install -y -qq -o DPkg::Lock::Timeout=120 --no-install-recommends "${missing[@]}" > /dev/null
