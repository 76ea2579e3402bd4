#!/bin/sh
# Makes the secrets that weir.toml and compose.yaml name, in ./secrets or the folder that is named: make-secrets.sh [FOLDER].
# What is there stays as it is. Providers' files are made empty: put in the keys of those that you have.
set -eu
umask 077
folder=${1:-"$(dirname "$0")/secrets"}
mkdir -p "$folder"
cd "$folder"

# Written beside its place, so that there never is half a secret.
keep() {
    if [ -e "$1" ]; then
        cat > /dev/null
        return
    fi
    cat > "$1.new"
    mv "$1.new" "$1"
}

for name in pepper sealing webhooks postgres-password redis-password; do
    openssl rand -hex 32 | keep "$name"
done
echo "postgres://weir:$(cat postgres-password)@postgres/weir" | keep database-url
echo "redis://:$(cat redis-password)@redis:6379/0" | keep redis-url
for name in openai anthropic gemini; do
    keep "$name" < /dev/null
done
echo "The secrets are in $(pwd). Keep a copy where the database's backups are not."
