// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// identity is what a node keeps on its state disk, and what others know it by.
const identity = "cat /etc/machine-id; cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub"

// TestStateDisk is a node that remembers: it boots without a registry, and what
// is not for it does not keep it from its last good overlay.
func TestStateDisk(t *testing.T) {
	f := fleet(t, leanSite...)
	options := f.withDisk(t)
	f.edit(t, "layer:\n", "layer:\n  persist: [/home]\n")
	f.publish(t)
	m := f.boot(t, options)
	s := f.login(t, m)
	first := status(t, s)
	id := run(t, s, identity)
	if first.Source != "fetched" || first.Health != "ok" {
		t.Fatalf("first boot: %+v", first)
	}
	if got := run(t, s, "stat -c %U:%a ~; echo kept > note; sync; ls -a /etc/ssh/authorized_keys.d"); !strings.HasPrefix(got, "admin:7") {
		t.Errorf("the persisted home: %q", got)
	}
	m.PowerCut()

	// From here on each boot has a copy of the disk.
	byHand := f.byHand(t, options)
	t.Run("no registry", func(t *testing.T) {
		t.Parallel()
		f.alone(t, byHand, first, id)
	})
	t.Run("tampered overlay, and a disk that takes no writes", func(t *testing.T) {
		t.Parallel()
		f.tampered(t, byHand, first)
	})
}

// TestLongPoorNetwork is a node that remembers, and has no network card, or a registry that
// sends a byte a second.
func TestLongPoorNetwork(t *testing.T) {
	require.Long(t)
	f := fleet(t, leanSite...)
	node, first := f.proven(t)
	t.Run("no network card", func(t *testing.T) { f.noCard(t, node) })
	t.Run("a registry that sends a byte a second", func(t *testing.T) { f.slowRegistry(t, node, first.Generation) })
}

// alone boots a node whose registry is dead.
func (f *Fleet) alone(t *testing.T, node machine.Options, first spec.Status, id string) {
	o := copyOf(t, node, "alone")
	o.Forwards = map[string]string{}
	o.Append = "console=ttyS0 net.ifnames=0" // one argument is missing: the node enters its kernel by kexec
	m := f.start(t, o)
	s := f.login(t, m)
	st := status(t, s)
	if st.Source != "cached" || st.Sync != "unreachable" || st.Overlay != first.Overlay || st.Health != "ok" {
		t.Errorf("without a registry: %+v", st)
	}
	if got := run(t, s, "cat note"); got != "kept" {
		t.Errorf("the persisted home has %q", got)
	}
	if got := run(t, s, "grep -o transparent_hugepage=never /proc/cmdline"); got == "" || !strings.Contains(m.Console.String(), "caisson: kexec: kernel") {
		t.Errorf("kernel argument %q, without a kexec", got)
	}
	if got := run(t, s, identity); got != id {
		t.Errorf("the node is another one: %s, before %s", got, id)
	}
}

// tampered boots a node whose overlay somebody has changed, and whose disk can only be read:
// it goes on by what that has, and nothing but the disk is wrong with it.
func (f *Fleet) tampered(t *testing.T, node machine.Options, first spec.Status) {
	if err := f.Tamper(t.Context(), "alpha", `"value":"10"`, `"value":"99"`); err != nil {
		t.Fatal(err)
	}
	o := copyOf(t, node, "tampered")
	o.ReadOnly = true
	m := f.start(t, o)
	waitFor(t, m, 0, "caisson: refused:subject")
	waitFor(t, m, 0, "caisson: booting the last good overlay")
	s := f.login(t, m)
	st := status(t, s)
	if st.Source != "cached" || st.Sync != "refused:subject" || st.Overlay != first.Overlay {
		t.Errorf("with a tampered overlay: %+v", st)
	}
	if st.Health != "degraded" || len(st.Drift) != 1 || !strings.Contains(st.Drift[0].Reason, "can only be read") {
		t.Errorf("on a read-only disk: %+v", st)
	}
	if got := run(t, s, "cat /proc/sys/vm/swappiness"); got != "10" {
		t.Errorf("swappiness is %s", got)
	}
}
