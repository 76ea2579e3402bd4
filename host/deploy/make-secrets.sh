#!/bin/sh
# Usage: make-secrets.sh [FOLDER]. Creates the secrets that weir.toml and compose.yaml name, by default in the folder `secrets`
# beside this script. Existing files stay unchanged. Files of providers are empty: write your API keys into them.
set -eu
umask 077
folder=${1:-"$(dirname "$0")/secrets"}
mkdir -p "$folder"
cd "$folder"

# A secret is written to a temporary file first, so that no file ever has half a secret.
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
