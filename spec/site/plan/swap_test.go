// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

const swapping = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-cloud-amd64}}
nodes: [{name: a, labels: {rack: r1}}]
swap:
- windows: [night]
  when: [{absent: /run/busy}]
  slot: {by: rack, max: 1, fleetlock: "https://lock.example"}
  soak: 5m
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: UTC, duration: 4h, startGuard: 30m, opens: [{weekly: sat, at: "22:00"}]}
`

// TestASwapInAPlan says when a node starts over by itself into what takes a boot, and
// of what does not, nothing.
func TestASwapInAPlan(t *testing.T) {
	args := strings.Replace(swapping, "swap:", "machine: {kernel: {args: [quiet]}}\nswap:", 1)
	layer := strings.Replace(swapping, "swap:", "conf: {apt: {packages: [{name: jq}]}}\nswap:", 1)
	live := strings.Replace(swapping, "swap:", "conf: {sysctl: {vm.swappiness: 1}}\nswap:", 1)
	const now, next = "2026-11-16 12:00", "swap from 2026-11-21T22:00Z in window night"
	for _, c := range []struct {
		name, before, after, now string
		class, swap, said        string
	}{
		{"kernel arguments", swapping, args, now, spec.ClassKexec, next, "  reboots by itself: " + next + "\n"},
		{"a layer", swapping, layer, now, spec.ClassReboot, next, "  reboots by itself: " + next + "\n"},
		{"as its window is open", swapping, args, "2026-11-21 23:00", spec.ClassKexec, "swap from 2026-11-21T23:00Z in window night", ""},
		{"as its window closes", swapping, args, "2026-11-22 01:45", spec.ClassKexec, "swap from 2026-11-28T22:00Z in window night", ""},
		{"always", strings.Replace(swapping, "[night]", "[always]", 1), strings.Replace(args, "[night]", "[always]", 1), now, spec.ClassKexec, "swap from 2026-11-16T12:00Z", ""},
		{"never open", swapping, strings.Replace(args, "startGuard: 30m", "except: [{from: 2026-11-01, to: 2027-12-31}]", 1), now, spec.ClassKexec, "swap, of which no window is known to open", ""},
		{"live", swapping, live, now, spec.ClassLive, "", ""},
		{"nothing", swapping, swapping, now, spec.ClassNone, "", ""},
		{"its first boot", "", swapping, now, spec.ClassCold, "", ""},
		{"without a policy", swapping, args[:strings.Index(args, "swap:")] + args[strings.Index(args, "---"):], now, spec.ClassKexec, "", "- swap windows: night"},
		{"a policy from now on", strings.Replace(swapping, "\n  soak: 5m", "", 1), args, now, spec.ClassKexec, next,
			"+ swap soak: 5m\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, err := time.Parse("2006-01-02 15:04", c.now)
			if err != nil {
				t.Fatal(err)
			}
			read := func(text string) *site.Site {
				s, r := site.ParseAt(at, fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
				if r.Err() != nil {
					t.Fatal(r.Problems)
				}
				return s
			}
			published, layers := map[string]*spec.Overlay{}, built{}
			if c.before != "" {
				published, layers = publish(t, read(c.before))
			}
			all := planAll(read(c.after), published, layers)
			var text strings.Builder
			all.Write(&text)
			if n := all.Nodes[0]; n.Class != c.class || n.Swap.text() != c.swap || !strings.Contains(text.String(), c.said) || c.swap == "" && strings.Contains(text.String(), "by itself") {
				t.Errorf("class %s, swap %q; want %s, %q; the plan says\n%s", n.Class, n.Swap.text(), c.class, c.swap, text.String())
			}
		})
	}
}
