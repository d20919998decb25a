// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/plan"
	"github.com/caisson-os/caisson/test/require"
)

// world is a fleet whose settings are drawn of every kind.
type world struct {
	drawn
	choice map[string]int           // by part: which of its ways to be written
	sent   map[string]*spec.Overlay // what each node was sent last
	parts  map[string]int           // how often a change of each was seen
}

// parts are the settings that a person may edit, each with the ways to write it.
// Every field of every kind is in one of them.
var parts = map[string][]string{
	"args":     {"[]", "[quiet]", "[quiet, hugepages=16]"},
	"persist":  {"[]", "[/var/log]", "[/home, /var/log]"},
	"kernel":   {"linux-image-amd64", "linux-image-cloud-amd64"},
	"dns":      {"{}", "{dns: [192.0.2.53]}", "{dns: [192.0.2.53], search: [example.org]}", "{ntp: [ntp.example.org]}", "{interfaces: [{name: eth1, addresses: [169.254.7.7/16]}]}", "{interfaces: [{name: eth1, addresses: [169.254.7.7/16], gateway: 169.254.0.1, mtu: 9000}]}"},
	"machine":  {"{}", "{kernel: {args: [isolcpus=1]}}", "{overrides: {hosts: [{name: a, conf: {kernel: {args: [isolcpus=2]}}}]}}"},
	"trust":    {"{}", "{onExpired: hold}"},
	"sysctl":   {"{}", "{vm.swappiness: 1}", "{vm.swappiness: 2}", "{-kernel.pid_max: 2, kernel.panic: 5}"},
	"limits":   {"{}", "{a: {domain: '*', type: '-', item: nofile, value: 1}}", "{a: {domain: root, type: '-', item: nofile, value: 1}}", "{a: {domain: root, type: hard, item: nofile, value: 1}}", "{a: {domain: root, type: hard, item: core, value: 0}}"},
	"mounts":   {"{}", "{a: {mnt_tgt: /srv/a, device: tmpfs, type: tmpfs}}", "{a: {mnt_tgt: /srv/b, device: tmpfs, type: tmpfs}}", "{a: {mnt_tgt: /srv/a, device: tmpfs, type: tmpfs, options: ro}}", "{s: {mnt_tgt: none, device: /dev/vdc, type: swap}}", "{s: {mnt_tgt: none, device: /dev/vdc, type: swap, options: pri=3}}", "{a: {mnt_tgt: /srv/a, device: /dev/vdb, type: ext4, before: db.service}}", "{a: {mnt_tgt: /srv/a, device: /dev/vdb, type: ext4, after: raid.service}}"},
	"ethtool":  {"{}", "{eth0: {tso: on}}", "{eth0: {tso: off}}", "{eth1: {tso: off, gro: on}}"},
	"perm":     {"{}", "{paths: [{path: /srv/x, permissions: '0640'}]}", "{paths: [{path: /srv/x, owner: root, permissions: '0640'}]}", "{paths: [{path: /srv/x, group: adm}], rerun_policy: never}", "{paths: [{path: /srv/x, group: adm}], rerun_interval: 300}", "{paths: [{path: /srv/x, group: adm}], ignore_missing: true}", "{paths: [{path: /usr/bin/x, permissions: '4755'}]}", "{paths: [{path: /usr/bin/x, owner: root}, {path: /srv/x, group: adm}]}"},
	"exec":     {"{}", "{a: {data: '#!/bin/sh'}}", "{a: {data: '#!/bin/sh -e'}}", "{a: {data: '#!/bin/sh', args: [x]}}", "{a: {data: '#!/bin/sh', env: {A: b}}}", "{a: {data: '#!/bin/sh', rerun_policy: never, once: per-machine}}", "{a: {data: '#!/bin/sh', blocking_policy: background}}", "{a: {data: '#!/bin/sh', timeout: 5}}", "{a: {data: '#!/bin/sh', rerun_interval: 60, rerun_max_count: 2}}", "{a: {data: '#!/bin/sh', retry_interval: 90, retry_max_count: 2}}", "{a: {data: '#!/bin/sh', rerun_interval: 60, rerun_interval_persist: false, retry_interval_persist: false}}", "{a: {data: '#!/bin/sh', revert: '#!/bin/true'}}", "{a: {data: '#!/bin/sh', onFailure: rollback}}"},
	"files":    {"{}", "{/etc/motd: {content: a}}", "{/etc/motd: {content: b}}", "{/etc/motd: {content: a, mode: 0600}}", "{/etc/motd: {content: a, owner: daemon}}", "{/etc/motd: {content: a, group: adm}}", "{/etc/issue: {content: a}}"},
	"apt":      {"{}", "{packages: [{name: jq}]}", "{packages: [{name: jq, version: 1.7}]}", "{packages: [{name: jq, debconf: [{question: q, question_type: string, answer: a}]}]}", "{packages: [{name: jq, debconf: [{question: q, question_type: string, answer: b}]}]}", "{packages: [{name: jq}, {name: tree}]}", "{packages: [{name: tree}], hold: [tree]}", "{packages: [{name: jq}], blacklistpkgs: [nis]}", "{packages: [{name: jq}], upgrade: true, recommends: true}", "{packages: [{name: jq}], allow_downgrade: true, strict: true, whitelistpkgs: [x]}", "{packages: [{name: jq}], repositories: {r: {url: 'https://apt.example.org', distributions: [d], components: [main]}}}"},
	"uamlite":  {"{}", "{users: [{user_name: ann}]}", "{users: [{user_name: ann, user_sudo: true}]}", "{users: [{user_name: ann, user_crypt_passwd: '*'}]}", "{users: [{user_name: ann, user_crypt_passwd: '!'}]}", "{users: [{user_name: ann, user_sshkeys: ['" + key + " one']}]}", "{users: [{user_name: ann, user_sshkeys: ['" + key + " two']}]}", "{users: [{user_name: ann, user_sshkeys: [Unmanaged]}]}", "{users: [{user_name: ann, user_uid: 1234}]}", "{users: [{user_name: ann, user_groups: [adm]}]}", "{users: [{user_name: ann, user_shell: /bin/sh}]}", "{users: [{user_name: ben}], purge_expired_users: true}", "{users: [{user_name: ben}], builtin_account: admin}"},
	"apparmor": {"{}", "{profiles: {p: 'profile p { }'}}", "{profiles: {p: 'profile p { /x r, }'}}", "{profiles: {p: 'profile p { }'}, complain_mode: true}", "{profiles: {q: 'profile q { }'}}"},
}

// key is a public key, without its comment.
const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

// way is how a part is written now.
func (w *world) way(part string) string { return parts[part][w.choice[part]] }

func (w *world) site() *site.Site {
	w.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nlayer: {base: {debian: {suite: trixie, components: [main]}}, kernel: {package: %s, args: %s}, persist: %s}\n",
		w.way("kernel"), w.way("args"), w.way("persist"))
	fmt.Fprintf(&b, "network: %s\nmachine: %s\ntrust: %s\nnodes:\n", w.way("dns"), w.way("machine"), w.way("trust"))
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "  - {name: %s, match: {macs: [\"52:54:00:00:%02x:%02x\"]}}\n", n, w.mac, n[0])
	}
	b.WriteString("conf:\n")
	for _, m := range module.Conf() {
		if parts[m.Name] != nil {
			fmt.Fprintf(&b, "  %s: %s\n", m.Name, w.way(m.Name))
		}
	}
	// One host has what the others do not, of a kind of each half.
	fmt.Fprintf(&b, "  overrides:\n    divingbell_sysctl: {hosts: [{name: b, conf: {sysctl: %s}}]}\n    divingbell_apt: {hosts: [{name: c, conf: {apt: %s}}]}\n", parts["sysctl"][w.choice["host sysctl"]], parts["apt"][w.choice["host apt"]])
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(b.String())}}, "site.yaml")
	if err := found.Err(); err != nil {
		w.t.Fatalf("%v\n%s", err, b.String())
	}
	return s
}

// edit changes the site, or nothing, in a way that a person might.
func (w *world) edit() {
	names := slices.Sorted(maps.Keys(parts))
	switch w.rand.IntN(10) {
	case 0: // nothing
	case 1:
		w.choice["host sysctl"] = w.rand.IntN(len(parts["sysctl"]))
	case 2:
		w.choice["host apt"] = w.rand.IntN(3)
	case 3:
		w.join()
	case 4:
		w.leave()
	case 5:
		w.mac = w.rand.IntN(2)
	default:
		part := names[w.rand.IntN(len(names))]
		w.choice[part] = w.rand.IntN(len(parts[part]))
	}
}

// shown are the names under which a plan shows parts of an overlay; others have
// their own. What a plan need not show is "".
var shown = map[string]string{"kernelArgs": "kernel", "variant": "", "needs": "", "dns": "network", "search": "network", "ntp": "network", "interface": "network", "base": ""}

func name(part string) string {
	part = strings.TrimPrefix(part, "items.")
	if other, ok := shown[part]; ok {
		return other
	}
	return part
}

// judge compares what the plan says of each node with what the node was sent before
// and is sent now: every part that differs, none that does not, and whether the
// node goes on without a reboot.
func (w *world) judge(p *plan.Plan, nodes []publish.Node) {
	w.t.Helper()
	planned := map[string]plan.NodePlan{}
	for _, n := range p.Nodes {
		planned[n.Name] = n
	}
	maps.DeleteFunc(w.sent, func(node string, _ *spec.Overlay) bool { // one that left is new when it comes back
		return !slices.ContainsFunc(nodes, func(n publish.Node) bool { return n.Name == node })
	})
	for _, n := range nodes {
		doc, err := n.Doc()
		if err != nil {
			w.t.Fatal(err)
		}
		now := new(spec.Overlay)
		if err := spec.Decode(doc, now); err != nil {
			w.t.Fatal(err)
		}
		before := w.sent[n.Name]
		w.sent[n.Name] = now
		if before == nil {
			continue // all of it is new
		}
		want, may, live := map[string]bool{}, map[string]bool{"": true}, true
		for _, e := range spec.Changes(before, now) {
			want[name(e.Part)], live = true, live && spec.Live(e.Class)
		}
		if before.Layer != now.Layer {
			a, b := w.made[before.Layer], w.made[now.Layer]
			for _, m := range module.Conf() {
				if m.Baked != nil && !same(w.t, m.Baked(&a), m.Baked(&b)) {
					want[m.Name] = true
				}
			}
			may["apt"] = true // the archive has newer packages
			if a.Kernel != b.Kernel {
				want["kernel"] = true
			}
		}
		delete(want, "")
		got := map[string]bool{}
		for _, c := range planned[n.Name].Changes {
			if item := name(c.Item); want[item] || !may[item] {
				got[item] = true
			}
		}
		if !maps.Equal(want, got) {
			w.t.Fatalf("node %s: the plan shows %v, what differs is %v\n%+v", n.Name, got, want, planned[n.Name])
		}
		if class := planned[n.Name].Class; spec.Live(class) != live {
			w.t.Fatalf("node %s: class %q, and the node applies it live: %v", n.Name, class, live)
		}
		for part := range want {
			w.parts[part]++
		}
	}
}

func same(t *testing.T, a, b any) bool {
	t.Helper()
	x, errA := spec.Encode(a)
	y, errB := spec.Encode(b)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	return bytes.Equal(x, y)
}

// TestPlanIsWhatPublishDoes edits, builds and publishes at random. What a plan
// says is what the publish after it does, node by node and part by part, and a plan
// without changes is followed by a publish without any.
func TestPlanIsWhatPublishDoes(t *testing.T) {
	require.Slow(t)
	seen, changes := map[string]int{}, map[string]int{}
	for seed := range uint64(4) {
		w := &world{drawn: draw(t, seed), choice: map[string]int{}, sent: map[string]*spec.Overlay{}, parts: changes}
		for range 20 {
			for range []int{0, 0, 1, 3, 5, 8}[w.rand.IntN(6)] {
				w.edit()
			}
			s := w.site()
			if w.rand.IntN(2) == 0 {
				w.build(s)
			}
			if p, nodes, ok := w.round(s, seen); ok {
				w.judge(p, nodes)
				w.settled(s)
			}
		}
	}
	for part := range parts {
		if as, ok := map[string]string{"args": "kernel", "machine": "kernel", "dns": "network", "trust": "onExpired"}[part]; ok {
			part = as
		}
		if changes[part] == 0 {
			t.Errorf("no change of %s was seen: %v", part, changes)
		}
	}
	for _, what := range []string{"to be built", "nothing", "changes"} {
		if seen[what] < 3 {
			t.Errorf("%d rounds ended in %q: it tests nothing", seen[what], what)
		}
	}
}
