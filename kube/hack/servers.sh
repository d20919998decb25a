#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Kubernetes that the tests of kube/ run against from its modules, see
# servers/go.mod, once: kube-apiserver, kube-controller-manager, kubectl and etcd, into
# ${XDG_CACHE_HOME:-~/.cache}/caisson/kube/VERSION, which is printed. It takes some ten
# minutes on two cores. With --kubelet it builds the kubelet, too, which machines of tests
# run; with --where it builds nothing.
set -eu
cd "$(dirname "$0")/servers"
version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/caisson/kube/$version
echo "$cache"
[ "${1-}" = --where ] && exit
kubelet=
[ "${1-}" = --kubelet ] && kubelet=k8s.io/kubernetes/cmd/kubelet
for program in k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kubectl ./etcd $kubelet; do
	[ -x "$cache/${program##*/}" ] && continue
	echo "building $program $version into $cache" >&2
	CGO_ENABLED=0 GOFLAGS=-trimpath nice -n 19 go build -p "${JOBS:-2}" -o "$cache/" \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" "$program"
done
