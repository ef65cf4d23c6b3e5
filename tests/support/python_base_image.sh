#!/bin/sh
# python_base_image.sh TAG: make an image of Debian with Python 3.13, as python:3.13-slim is, for tests where no image registry can
# be reached. It needs root, Docker and mmdebstrap. An existing image remains.
set -eu
docker image inspect "$1" >/dev/null 2>&1 && exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# pip uses the certificates of this machine. libstdc++6 is part of every Debian image, since apt needs it.
mmdebstrap --quiet --variant=essential --include=python3-venv,python3-pip,ca-certificates,libstdc++6 \
	--dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
	--customize-hook='cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"' trixie "$folder/base.tar"
docker import "$folder/base.tar" "$1" >/dev/null
