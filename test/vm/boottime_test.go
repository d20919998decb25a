// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// reached has a guest's systemd, 256 or newer, say on the console that it has come to
// multi-user.target.
var reached = map[string]string{
	"systemd.unit-dropin.multi-user.target": "[Unit]\nWants=reached.service\n",
	"systemd.extra-unit.reached.service":    "[Unit]\nDefaultDependencies=no\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo it has come to multi-user >/dev/ttyS0'\n",
}

// TestLongBootTime measures how much of the time from power-on to multi-user.target is the
// loader's: over the network, and from a disk that has the layer. It compares processor
// seconds of the machine, which other work of the host does not change, and prints the clock's
// beside them, with the steps of the loader's trace.
//
// What the loader itself does is held to a share. That images come over the network and are
// hashed is told beside it: an emulated processor spends a hundred times as much on a byte
// as one that knows SHA-256, and the emulated network is QEMU's own work.
func TestLongBootTime(t *testing.T) {
	require.Long(t)
	f := fleet(t, withUEFI...)
	t.Run("netboot", func(t *testing.T) {
		f.bootTime(t, "caisson: fetched agent:", func() *machine.Machine { // the last image
			return f.boot(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b", Credentials: reached})
		})
	})
	t.Run("disk", func(t *testing.T) {
		o := f.medium("alpha", "52:54:00:00:00:0a")
		o.Credentials, o.Disk = reached, filepath.Join(f.Dir, "alpha.raw")
		sh(t, `cp --sparse=always "$2" "$1" && truncate -s 3G "$1"`, o.Disk, f.image(t, "boot.raw"))
		m, s := f.arrives(t, o) // the layer comes to the disk, and proves itself
		shutDown(t, m, s)
		f.bootTime(t, "caisson: overlay of node", func() *machine.Machine { return f.start(t, o) })
	})
}

// share is what the loader may have of a boot.
const share = 0.08

// bootTime starts a machine and says what its loader had. fetched is what the console says
// when all images are there.
func (f *Fleet) bootTime(t *testing.T, fetched string, start func() *machine.Machine) {
	t.Helper()
	began := time.Now()
	m := start()
	type moment struct{ clock, processor float64 }
	at := func(marker string) moment {
		t.Helper()
		waitFor(t, m, 0, marker)
		used, err := m.Used()
		if err != nil {
			t.Fatal(err)
		}
		return moment{time.Since(began).Seconds(), used.Seconds()}
	}
	loader, told, here, entered, up := at("caisson: loader of fleet"), at("caisson: overlay of node"), at(fetched), at("caisson: entering the layer"), at("it has come to multi-user")
	s := f.login(t, m)
	var trace spec.Trace
	if err := json.Unmarshal([]byte(run(t, s, "sudo caisson-agent status --trace -o json")), &trace); err != nil {
		t.Fatal(err)
	}
	var steps strings.Builder
	for _, step := range trace.Boot {
		fmt.Fprintf(&steps, " %s %.2f", step.Name, step.Took/1000)
	}
	for _, by := range []struct {
		what string
		of   func(moment) float64
	}{{"processor", func(m moment) float64 { return m.processor }}, {"clock", func(m moment) float64 { return m.clock }}} {
		all, fetch := by.of(up), by.of(here)-by.of(told)
		own := by.of(entered) - by.of(loader) - fetch
		t.Logf("%s: the loader has %.1f %% of the time from power-on to multi-user, fetching %.1f %% more: firmware and kernel %.1f s, loader %.1f, fetching %.1f, root %.1f",
			by.what, 100*own/all, 100*fetch/all, by.of(loader), own, fetch, all-by.of(entered))
		if by.what == "processor" && own/all > share {
			t.Errorf("the loader has %.1f %% of a boot", 100*own/all)
		}
	}
	t.Logf("steps of the loader, in seconds by the clock:%s", steps.String())
}
