// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// servicesFromGit takes one service through all that happens to it: commits, holds of the
// fleet and of the node, a reboot, a repository that is gone, its end.
const servicesFromGit = ownHost + `
export GIT_CONFIG_GLOBAL=/mnt/gitconfig
git config --global user.name Ann
git config --global user.email ann@example.org
mkdir -p /etc/monitor /srv
echo package >/etc/monitor/conf
grep -q ^monitor: /etc/passwd || echo 'monitor:x:54321:54321::/:/bin/false' >>/etc/passwd
git init -q --bare --initial-branch=main conf.git
git init -q work; git -C work remote add origin /mnt/conf.git
git -C work checkout -q -b main
commit() {
	mkdir -p work/etc work/rules
	echo $1 >work/etc/conf
	echo $1 >work/rules/all
	git -C work add .
	git -C work commit -q -m $1
	git -C work push -q origin main
}
site() {
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	attached: true
	nodes: [{name: superhost}]
	END
	test -z "$1" || cat >>site.yaml <<-END
	---
	apiVersion: caisson.dev/v1alpha1
	kind: NodeService
	metadata: {name: monitor}
	spec:
	  git: {url: "file:///mnt/conf.git", branch: main}
	  user: monitor
	  package: none-such-package
	  directories: [{from: etc, to: /etc/monitor}, {from: rules, to: /srv/deep/rules}, {from: rules/all, to: /etc/default/monitor, file: true}]
	END
}
publish() { caisson publish site.yaml --to oci:out --key keys/operator.key --cache cache; }
update() { caisson services update --cache cache && publish; }
has() { test "$(cat /etc/monitor/conf /srv/deep/rules/all /etc/default/monitor | sort -u)" = $1; }

commit one
site services
update
caisson serve oci:out --listen 127.0.0.1:5001 &
serve=$!
await caisson-agent enroll --from 127.0.0.1:5001 --fleet metal-a --key keys/operator.pub
caisson-agent apply
has one
test "$(stat -c %U /srv/deep)" = monitor
caisson-agent status | grep 'apt-get install none-such-package'

# A commit is followed; nobody edits the files on the node.
commit two
update
caisson-agent sync
has two
not sh -c 'echo edited >/etc/monitor/conf'
not sh -c 'echo edited >/srv/deep/rules/all'
rm /etc/default/monitor
echo edited >/etc/default/monitor
caisson-agent apply
has two

# Frozen on the node it stays, whatever comes, also after a reboot.
caisson-agent service freeze monitor --reason 'look at it'
commit three
update
caisson-agent sync
has two
caisson-agent service list | grep 'frozen since .*: look at it, the fleet has'
findmnt -rno TARGET | grep ^/run/caisson/service | xargs umount -l
umount -l /etc/monitor
rm -rf /run/caisson
caisson-agent run &
run=$!
await has two
kill $run
wait $run
has two

# Back one more, and forward.
caisson-agent service rollback monitor
has one
caisson-agent service forward monitor
has three
not caisson-agent service rollback none

# The fleet goes back, stays, and forward; the node goes along.
caisson services rollback monitor --reason 'alerts are lost' --cache cache
publish
caisson-agent sync
has two
commit four
update
caisson-agent sync
has two
caisson services forward monitor --cache cache
publish
caisson-agent sync
has four

# A repository that is gone stops no publish and no node.
mv conf.git gone.git
not caisson services update --cache cache
publish
caisson-agent sync
has four

# And back to what was before.
site
publish
caisson-agent sync
test "$(cat /etc/monitor/conf)" = package
test ! -e /srv/deep
test ! -e /etc/default/monitor
test ! -e /run/caisson/service
test ! -e /etc/systemd/system/monitor.service.d
kill $serve
`

// TestServicesFromGitInNamespaces runs both programs of today against a repository.
func TestServicesFromGitInNamespaces(t *testing.T) {
	require.Tool(t, "git", "mksquashfs", "findmnt")
	t.Parallel()
	inNamespaces(t, servicesFromGit)
}
