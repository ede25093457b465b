#!/bin/sh
# Makes server.pem anew: a certificate for 127.0.0.1 that nobody has signed, with its key. `openssl ca` alone lets
# it begin before today: what reads it may have another clock. A leaf with its identifiers, as strict checks want it.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/index"
cat >"$work/config" <<END
[ca]
default_ca = own
[own]
database = $work/index
new_certs_dir = $work
rand_serial = yes
default_md = sha256
policy = any
x509_extensions = leaf
[any]
commonName = supplied
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1
END
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$work/key" -subj /CN=test \
    -out "$work/request"
openssl ca -batch -notext -selfsign -config "$work/config" -keyfile "$work/key" -in "$work/request" \
    -startdate 20200101000000Z -enddate 21000101000000Z -out "$work/certificate"
cat "$work/key" "$work/certificate" >server.pem
