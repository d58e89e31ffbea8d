# Run as root in a mount namespace of its own, with an empty directory and the program in it.
set -x
here=$1
mount -t tmpfs none /var/lib
cp -a /etc "$here/etc"
mount --bind "$here/etc" /etc
sed -i /^tenure:/d /etc/group
rm -rf /etc/tenure
export PATH=$here:$PATH

# Printed, it is what would be done; done, it is what was printed.
printed=$(tenure init --system)
grep -q 'groupadd --system tenure' <<<"$printed"
grep -q 'install -d -o root -g tenure -m 2770 /var/lib/tenure' <<<"$printed"
[ ! -e /var/lib/tenure ]

# Whatever the umask is, and twice.
for umask in 077 000; do
    (umask $umask; tenure init --system --apply)
    [ "$(stat -c '%a %U %G' /var/lib/tenure)" = '2770 root tenure' ]
    [ "$(stat -c '%a %G' /var/lib/tenure/leases.db)" = '660 tenure' ]
done
tenure -v run x -- true 2>&1 | grep -q 'store sqlite:/var/lib/tenure/leases.db'
group=$(getent group tenure | cut -d: -f3)
for file in /var/lib/tenure/leases.db*; do
    case $(stat -c '%a %G %F' "$file") in
    '660 tenure regular '* | '2770 tenure directory') ;;
    *) stat "$file"; exit 1 ;;
    esac
done

# A member meets root; who is none is told so, and gets no silent store of his own.
mkdir -m 755 "$here/home"
chown 1235 "$here/home"
export HOME=$here/home
member="setpriv --reuid 1234 --regid $group --clear-groups"
stranger='setpriv --reuid 1235 --regid 1235 --clear-groups'
$member tenure -v run x -- true 2>&1 | grep -q 'store sqlite:/var/lib/tenure/leases.db'
$member tenure run x -- sh -c 'sleep 5 & echo held > /dev/null; wait' &
until tenure ls | grep -q ^x; do sleep 0.05; done
code=0; tenure run -n x -- true || code=$?
[ $code = 75 ]
kill %1
wait %1 || true
for words in 'run x -- true' 'ls' 'show x' 'acquire -n x' 'wait --timeout 0 x'; do
    code=0; said=$($stranger tenure $words 2>&1) || code=$?
    [ $code = 77 ]
    grep -q 'members of the group' <<<"$said"
done
[ -z "$(ls -A "$here/home")" ]
code=0; $stranger tenure init --system --apply || code=$?
[ $code = 77 ]

# Somebody else's directory, or a link, is not made everybody's.
mv /var/lib/tenure /var/lib/before
mkdir /var/lib/tenure
chown 1235 /var/lib/tenure
code=0; tenure init --system --apply || code=$?
[ $code = 77 ]
rmdir /var/lib/tenure
mkdir /var/lib/elsewhere
ln -s elsewhere /var/lib/tenure
code=0; tenure init --system --apply || code=$?
[ $code = 77 ]
rm /var/lib/tenure
mv /var/lib/before /var/lib/tenure

# The machine's own file comes before the default, and after what is said closer by.
mkdir /etc/tenure
mkdir -m 700 /var/lib/other
echo 'sqlite:/var/lib/other/leases.db' > /etc/tenure/store
tenure -v ls 2>&1 | grep -q 'sqlite:/var/lib/other/leases.db'
tenure run x -- sh -c '[ "$TENURE_STORE_FILE" = /etc/tenure/store ] && tenure -v ls 2>&1' | grep -q /var/lib/other
TENURE_STORE=sqlite:/var/lib/tenure/leases.db tenure -v ls 2>&1 | grep -q 'sqlite:/var/lib/tenure/leases.db'
: > /etc/tenure/store
code=0; tenure ls || code=$?
[ $code = 64 ]
chmod 666 /etc/tenure/store
echo 'sqlite:/var/lib/other/leases.db' > /etc/tenure/store
code=0; tenure ls || code=$?
[ $code = 77 ]
echo all is well
