#!/usr/bin/env bash
# Builds the Debian package, and prints its path: the program as the profile `dist` makes it, its
# man pages, the completions of three shells, the pages of docs/ and the recipes.
# Needs dpkg-deb, and of the C compiler's package objdump and readelf.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
umask 022

cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
# The same sources give the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

"$cargo" build --locked --profile dist -p tenure-cli >&2
program=$target/dist/tenure
root=$target/deb/root
rm -rf "$root"
install -D -m 755 "$program" "$root/usr/bin/tenure"

man=$root/usr/share/man/man1
mkdir -p "$man"
"$program" man | gzip -9n > "$man/tenure.1.gz"
# The commands are those that the page of the whole names.
commands=$("$program" man | sed -n 's/^tenure\\-\([a-z]*\)(1)$/\1/p')
[ "$(wc -w <<<"$commands")" -gt 10 ]
for command in $commands; do
    "$program" man "$command" | gzip -9n > "$man/tenure-$command.1.gz"
done

completions() { # shell, file
    mkdir -p "$root/$(dirname "$2")"
    "$program" completions "$1" > "$root/$2"
}
completions bash usr/share/bash-completion/completions/tenure
completions zsh usr/share/zsh/vendor-completions/_tenure
completions fish usr/share/fish/vendor_completions.d/tenure.fish

doc=$root/usr/share/doc/tenure
mkdir -p "$doc/docs/recipes"
install -m 644 README.md LICENSE-MIT "$doc"
install -m 644 docs/*.md "$doc/docs"
install -m 644 docs/recipes/* "$doc/docs/recipes"
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
{
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo "Upstream-Name: tenure"
    echo
    echo "Files: *"
    echo "Copyright: the authors of tenure"
    echo "License: Expat or Apache-2.0"
    echo " The first is in LICENSE-MIT beside this file, the second in"
    echo " /usr/share/common-licenses/Apache-2.0."
    echo
    echo "Comment: compiled into the program are SQLite (public domain) and these crates:"
    "$cargo" tree --locked -p tenure-cli -e normal --prefix none --format '{p}: {l}' |
        sed 's/ ([^)]*)//g' | grep -v '^tenure' | sort -u | sed 's/^/ /'
} > "$doc/copyright"

# What the program needs, and of which age. A library that is not listed here ends the build.
depends=
for library in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $library in
    libc.so.6 | libm.so.6 | ld-linux*)
        newest=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
        package="libc6 (>= ${newest#GLIBC_})"
        ;;
    libgcc_s.so.1) package="libgcc-s1" ;;
    *) echo "no package is known for $library" >&2; exit 1 ;;
    esac
    case ", $depends, " in *", $package, "*) ;; *) depends=${depends:+$depends, }$package ;; esac
done

mkdir "$root/DEBIAN"
cat > "$root/DEBIAN/control" <<END
Package: tenure
Version: $version
Architecture: $architecture
Maintainer: the authors of tenure <tenure-rs@users.noreply.github.com>
Installed-Size: $(du -sk --exclude DEBIAN "$root" | cut -f 1)
Depends: $depends
Suggests: bash-completion
Section: utils
Priority: optional
Homepage: $(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
Description: run a command under a distributed lease
 A lease is a lock with a time limit, kept in a store that outlives the processes
 that share it. tenure runs a command while the lease is held, renews it meanwhile,
 ends the command when the lease is lost, and releases it when the command has ended.
 Each lease has a fencing token by which a resource can refuse the late write of a
 holder that was paused.
END
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"

package=$target/deb/tenure_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >&2
echo "$package"
