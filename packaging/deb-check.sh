#!/usr/bin/env bash
# Installs the package into a clean Debian root, made by debootstrap from the package mirror, and
# tries it there as root and as two users; another package than the one that is built here can be
# given. Needs root (chroot, mounts), debootstrap and the network.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "this needs root and the Debian package debootstrap" >&2
    exit 1
fi
package=${1:-$(packaging/deb.sh)}
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
root=$(mktemp -d)
trap 'umount -q "$root/proc" || true; rm -rf --one-file-system "$root"' EXIT
# Others must get in: what mktemp makes is for its owner alone.
chmod 755 "$root"
echo "== a clean root of Debian $suite"
debootstrap --variant=minbase "$suite" "$root" >"$root.log" 2>&1 || { tail "$root.log"; exit 1; }
rm -f "$root.log"
mount -t proc proc "$root/proc"
cp "$package" "$root/tenure.deb"

echo "== installed, tried and removed"
chroot "$root" /bin/bash -euxs <<'END'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/var/tmp/home
mkdir -p "$HOME"
dpkg --install /tenure.deb
dpkg --verify tenure
[ "$(tenure run demo -- echo hello)" = hello ]
tenure --version

# Man pages for all commands, which do not begin with an error of their formatter.
for command in '' $(tenure --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]\+\) .*/\1/p'); do
    [ "$command" = help ] && continue
    zcat "/usr/share/man/man1/tenure${command:+-$command}.1.gz" | grep -q '^.SH NAME'
done

# The completions of bash name the commands.
set +u
. /usr/share/bash-completion/completions/tenure
COMP_WORDS=(tenure re)
COMP_CWORD=1
_tenure tenure re tenure
set -u
case " ${COMPREPLY[*]} " in *' renew '*release* | *release*' renew '*) ;; *) exit 1 ;; esac

# The store of the machine: two users meet, a third does not get in.
tenure init --system --apply
for user in ann ben eve; do
    useradd --create-home "$user"
done
usermod --append --groups tenure ann
usermod --append --groups tenure ben
as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --init-groups env HOME="/var/tmp" "$@"; }
setpriv --reuid ann --regid ann --init-groups tenure run shared -- sleep 1000 &
until as ben tenure ls | grep -q ^shared; do sleep 0.1; done
code=0; as ben tenure run -n shared -- true || code=$?
[ $code = 75 ]
code=0; as eve tenure run -n shared -- true || code=$?
[ $code = 77 ]
kill $!
wait $! || true
as ben tenure run -w 10s shared -- true

dpkg --purge tenure
[ -z "$(find / -xdev -path /proc -prune -o -path '*tenure*' -not -path '/var/lib/tenure*' -not -path /tenure.deb -not -path '/var/tmp/*' -print)" ] || {
    find / -xdev -path '*tenure*'
    exit 1
}
END
echo "== the package is well: $package"
