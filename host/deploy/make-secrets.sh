#!/bin/sh
# Usage: make-secrets.sh [FOLDER]
#
# Creates the secrets that weir.toml and compose.yaml name, by default in the folder `secrets` beside this script. Existing
# files keep their text. Files of providers are empty: write your API keys into them.
#
# The folder has mode 0700, so that only its owner and root reach the files. The files have mode 0644, because Compose
# mounts each file alone, with its owner and mode, and the user of the container must read it.
set -eu

usage() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
}

case ${1-} in
    -h | --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
esac
if [ $# -gt 1 ]; then
    usage >&2
    exit 2
fi

umask 077
folder=${1:-"$(dirname "$0")/secrets"}
mkdir -p "$folder"
cd "$folder"
case $(ls -ld .) in
    d???------*) ;;
    *)
        echo "make-secrets.sh: other users can open the folder $(pwd): run chmod 700 $(pwd)" >&2
        exit 1
        ;;
esac

# Writes the lines of a file, unless it exists, to a temporary file first, so that no file ever has half a secret.
keep() {
    name=$1
    shift
    if [ ! -e "$name" ]; then
        for line; do
            printf '%s\n' "$line"
        done > "$name.new"
        mv "$name.new" "$name"
    fi
    chmod 644 "$name"
}

for name in pepper sealing webhooks postgres-password redis-password; do
    # An assignment fails with its command, and a pipe does not.
    secret=$(openssl rand -hex 32)
    keep "$name" "$secret"
done
keep database-url "postgres://weir:$(cat postgres-password)@postgres/weir"
keep redis-url "redis://:$(cat redis-password)@redis:6379/0"
for name in openai anthropic gemini; do
    keep "$name"
done
echo "The secrets are in $(pwd). Keep a copy where the database's backups are not."
