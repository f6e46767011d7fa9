#!/bin/sh
# The life of the package, as root in a container that systemd has started: installation, service, call, reload, upgrade,
# removal, purge. Ends the container.
trap 'systemctl poweroff' EXIT
set -eux
key=0123456789abcdef0123456789abcdef
url=http://127.0.0.1:7332

files() {
    find /etc /home /opt /srv /usr /var -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/systemd \
        -o -path /var/log -o -path /var/cache -o -path /var/tmp \) -prune -o -print | sort
}
# Waits until a command succeeds.
until_true() {
    for _ in $(seq 600); do
        if "$@"; then return; fi
        sleep 0.1
    done
    exit 1
}
property() {
    systemctl show --property "$1" --value toolgate
}
ended_with() {
    test "$(property ExecMainStatus)" = "$1" && test "$(property ActiveState)" = failed
}

files > /tmp/before
# Its dependencies are in the container: there is no network.
dpkg --install /mnt/toolgate.deb
toolgate --version
test "$(property ActiveState)" = inactive

# Without a project it ends with a message.
install -d -m 0700 /etc/toolgate
(umask 077; echo "TOOLGATE_API_KEY=$key" > /etc/toolgate/environment)
systemctl start toolgate
until_true ended_with 78
journalctl --unit toolgate --output cat --no-pager | grep 'run `toolgate init`'

# With one it serves, as a user without rights.
toolgate init /var/lib/private/toolgate
systemctl restart toolgate
until_true curl --silent --fail $url/readyz
pid=$(property MainPID)
grep 'CapEff:.*0000000000000000' "/proc/$pid/status"
test "$(stat --format %u "/proc/$pid")" != 0
test "$(curl --silent --output /tmp/refused --write-out '%{http_code}' $url/v1/tools)" = 401
curl --silent --header "X-API-Key: $key" --json '{"arguments":{}}' $url/v1/tools/disk_usage/call | grep '"status":"success"'
systemctl reload toolgate
test "$(property ActiveState)" = active

# An upgrade restarts it.
dpkg --install /mnt/toolgate.deb
until_true curl --silent --fail $url/readyz
test "$(property MainPID)" != "$pid"
pid=$(property MainPID)

# Removal stops it and keeps the settings; purging removes them. The project is removed by hand.
dpkg --remove toolgate
test ! -e "/proc/$pid"
test -e /etc/toolgate/environment
dpkg --purge toolgate
rm -r /var/lib/private/toolgate /var/lib/toolgate
files > /tmp/after
diff /tmp/before /tmp/after
echo "check-deb: passed"
