// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// calmArgs are the kernel arguments of a machine of a test.
const calmArgs = "no_timer_check, systemd.mask=user@.service, console=ttyS0, net.ifnames=0"

// TestLongExampleDivingbell boots a node of examples/divingbell: what the values file says is so, by
// the nine modules. Its server of NFS is a tmpfs, and the kernel is the smaller one.
func TestLongExampleDivingbell(t *testing.T) {
	require.Long(t)
	needs(t)
	const from = "../../examples/divingbell/"
	f := example(t, programs(t), from+"site.yaml")
	data, err := os.ReadFile(from + "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values, _, ok := strings.Cut(string(data), "    divingbell_apt:\n") // a layer with dpdk would be built, too
	if !ok {
		t.Fatal("no node has packages of its own any more")
	}
	f.writes(t, "values.yaml", strings.NewReplacer("device: nfs.example.org:/export/images", "device: tmpfs", "type: nfs\n", "type: tmpfs\n", "ens3", "eth0",
		"    users:\n", "    users:\n      - user_name: admin\n        user_sudo: true\n        user_sshkeys:\n          - "+string(ssh.MarshalAuthorizedKey(f.Key.PublicKey()))).Replace(values))
	f.edits(t, "registry: registry.example.org:5000/airship\n", "registry: oci:./out\n",
		"{package: linux-image-amd64, args: [quiet]}", "{package: linux-image-cloud-amd64, args: ["+calmArgs+"]}")
	f.raise(t)
	m := f.start(t, f.byHand(t, machine.Options{Name: "ctrl-1", MAC: "52:54:00:00:10:01", Memory: 2048}))
	s := f.login(t, m)
	look(t, s,
		Check{"health", "sudo caisson-agent status", "~health      ok"},
		Check{"sysctl", "/usr/sbin/sysctl -n vm.swappiness net.ipv4.tcp_keepalive_time kernel.pid_max", "1\n600\n4194303"},
		Check{"a key of a module that is not there yet", "sudo modprobe nf_conntrack && sudo caisson-agent sync >&2 && /usr/sbin/sysctl -n net.netfilter.nf_conntrack_max", "1048576"},
		Check{"limits", "ulimit -n", "1048576"},
		Check{"mounts", "findmnt -no FSTYPE /srv/scratch; findmnt -no FSTYPE /srv/images", "tmpfs\ntmpfs"},
		Check{"exec, with arguments and environment, once", "cat /run/rng-seeded; test -s /run/report && echo reported", "seeded from /dev/hwrng by divingbell\nreported"},
		Check{"apt", "dpkg-query -Wf '${db:Status-Abbrev}${Package}\\n' chrony jq tcpdump keyboard-configuration telnetd nis 2>/dev/null | grep ^ii | sort", "ii chrony\nii jq\nii keyboard-configuration\nii tcpdump"},
		Check{"debconf", "grep ^XKBLAYOUT /etc/default/keyboard", "XKBLAYOUT=\"us\""},
		Check{"apparmor", "sudo grep ^tcpdump-site /sys/kernel/security/apparmor/profiles", "tcpdump-site (enforce)"},
		Check{"perm", "stat -c '%a %U' /etc/cron.d/* 2>/dev/null | sort -u | grep -v '^600 root$' || echo kept", "kept"},
		Check{"uamlite", "sudo -l -U oper | grep -c NOPASSWD; sudo passwd -S robot | cut -d' ' -f2", "1\nL"},
		Check{"nothing has drifted", "sudo caisson-agent status -o json | jq -c '[.drift[]? | .item + \" \" + .key]'", "[]"})
}

// TestLongExampleServices boots a node of examples/services: the service has the files of the branch
// that it follows, of which a later commit comes live.
func TestLongExampleServices(t *testing.T) {
	require.Long(t)
	needs(t)
	f := &daily{Fleet: example(t, programs(t), "../../examples/services/site.yaml")}
	rules := func(name string) {
		t.Helper()
		sh(t, `cd "$1"; mkdir -p git/prometheus/etc
test -d git/.git || git -C git init -q --initial-branch=main
printf 'rule_files: [/etc/prometheus/rules.yml]\n' >git/prometheus/etc/prometheus.yml
printf 'groups: [{name: g, rules: [{alert: %s, expr: vector(1)}]}]\n' "$2" >git/prometheus/etc/rules.yml
git -C git add .
git -C git -c user.name=Ann -c user.email=ann@example.org commit -q -m "$2"
git -C git branch -f next`, f.Dir, name)
	}
	rules("First")
	const elsewhere = "https://git.example/monitoring.git"
	here := "file://" + filepath.Join(f.Dir, "git")
	f.edits(t, "registry: registry.example:5000/monitoring\n", "registry: oci:./out\n", elsewhere, here, elsewhere, here,
		"  base: {debian: {suite: trixie}}\n", "  base: {debian: {suite: trixie}}\n  kernel: {package: linux-image-cloud-amd64, args: ["+calmArgs+"]}\n",
		"{name: mon-1, labels: {role: monitoring}}", `{name: mon-1, labels: {role: monitoring}, match: {macs: ["52:54:00:00:00:0a"]}}`,
		"conf:\n", "conf:\n  uamlite:\n    users:\n      - user_name: admin\n        user_sudo: true\n        user_sshkeys:\n          - "+string(ssh.MarshalAuthorizedKey(f.Key.PublicKey())))
	f.must(t, "services", "update")
	f.raise(t)
	m := f.start(t, f.byHand(t, machine.Options{Name: "mon-1", MAC: "52:54:00:00:00:0a", Memory: 2048}))
	s := f.login(t, m)
	loaded := func(alert string) Check {
		return Check{"rule " + alert, "until perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(\"127.0.0.1:9090\") or exit 1; print $s \"GET /api/v1/rules HTTP/1.0\\r\\n\\r\\n\"; print <$s>' | grep -o '\"name\":\"" +
			alert + "\"'; do sleep 2; done", `"name":"` + alert + `"`}
	}
	healthy := Check{"health, by the site's checks", "until sudo caisson-agent status | grep '^health      ok'; do sleep 5; done", "~ok"}
	look(t, s, loaded("First"), healthy)
	rules("Second")
	f.update(t)
	run(t, s, "sudo caisson-agent sync >&2")
	look(t, s, loaded("Second"), healthy)
}
