#!/usr/bin/env bash
# Installs the missing Debian packages that `make test-real` needs, if it runs as root and apt-get
# exists. Prints one line per package and never fails: a test without its package is skipped with a
# reason. Services that come with the packages are not left running.
set -u

# Columns: a command, its package, and the service that the package starts.
needed="
promtool                 prometheus               prometheus
prometheus-alertmanager  prometheus-alertmanager  prometheus-alertmanager
chromium                 chromium                 -
pg_ctlcluster            postgresql               postgresql
docker-compose           docker-compose           -
"

policy=/usr/sbin/policy-rc.d
log=$(mktemp)
our_policy=""
updated=""

tidy() {
    rm -f "$log"
    if [ -n "$our_policy" ]; then rm -f "$policy"; fi
}
trap tidy EXIT
trap 'exit 130' INT TERM

say() { printf '  %-24s %s\n' "$1" "$2"; }

apt() {
    DEBIAN_FRONTEND=noninteractive timeout 600 apt-get --quiet --yes \
        -o DPkg::Lock::Timeout=60 -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
        "$@" >"$log" 2>&1 </dev/null
}

# Called before the first package, so that apt starts no service while it unpacks a package.
prepare() {
    if [ -n "$updated" ]; then return; fi
    updated=yes
    if [ ! -e "$policy" ] && [ ! -L "$policy" ]; then
        our_policy=yes
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    apt update  # if it fails, the existing lists may be sufficient
}

why_not() {
    if ! command -v apt-get >/dev/null; then
        echo "this is not Debian (no apt-get)"
    elif [ "$(id -u)" != 0 ]; then
        echo "not root; run as root: apt-get install $1"
    fi
}

install() {
    local command=$1 package=$2 service=$3 reason
    if command -v "$command" >/dev/null; then
        say "$command" "present"
        return
    fi
    reason=$(why_not "$package")
    if [ -n "$reason" ]; then
        say "$command" "skipped: $reason"
        return
    fi
    prepare
    if apt install --no-install-recommends "$package" && command -v "$command" >/dev/null; then
        say "$command" "installed ($package $(dpkg-query -W -f '${Version}' "$package"))"
        # Do not start the service at boot either.
        if [ "$service" != - ] && command -v systemctl >/dev/null; then
            systemctl disable --now "$service" >/dev/null 2>&1 </dev/null
        fi
    else
        reason=$(grep -m 1 '^E: ' "$log")
        say "$command" "skipped: apt-get install $package failed (${reason:-no reason given})"
    fi
}

while read -r command package service <&3; do
    if [ -n "$command" ]; then install "$command" "$package" "$service"; fi
done 3<<<"$needed"
exit 0
