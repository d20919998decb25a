// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/doctext"
)

// TestThePageShowsTheOrder: each kind says when it is there, and the page shows it. With
// CAISSON_UPDATE it is written there.
func TestThePageShowsTheOrder(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| kind | moment | but later |\n|---|---|---|\n")
	whens := Whens()
	for _, kind := range slices.Sorted(maps.Keys(whens)) {
		when := whens[kind]
		if !slices.Contains([]When{WhenLoader, WhenEarly, WhenAgent}, when) || (kindOf(kind).early != nil) != (when == WhenEarly) {
			t.Errorf("%s: nothing says when it is there: %q", kind, when)
		}
		var but []string
		for _, l := range Laters {
			if l.Kind == kind {
				but = append(but, l.What+": "+string(l.When)+", as "+l.Why)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", kind, when, strings.Join(but, "; "))
	}
	for _, l := range Laters {
		if k := kindOf(l.Kind); k.early == nil || l.What == "" || l.Why == "" || l.When != WhenRemote && l.When != WhenAgent {
			t.Errorf("%+v is about no kind that is set early, or has no reason", l)
		}
	}
	if err := doctext.Printed("../docs/order.md", "order", "spec", b.String()+"\n"); err != nil {
		t.Error(err)
	}
}

// TestWhatIsEarly: what needs the network, or comes after something, is left to the agent, and
// so is what lies on it.
func TestWhatIsEarly(t *testing.T) {
	all := Items{
		Mounts: []Mount{
			{Target: "/srv/a", Device: "LABEL=a", Type: "ext4"},
			{Target: "/srv/nfs", Device: "host:/", Type: "nfs4"},
			{Target: "/srv/nfs/in", Device: "tmpfs", Type: "tmpfs"},
			{Target: "/srv/iscsi", Device: "/dev/sdx", Type: "ext4", Options: []string{"_netdev"}},
			{Target: "/srv/late", Device: "/dev/sdy", Type: "ext4", After: []string{"raid.service"}},
			{Target: "/srv/bound", Device: "/srv/late/x", Type: "none", Options: []string{"bind"}},
			{Target: "/srv/fuse", Device: "x", Type: "fuse.x"},
			{Target: "/srv/up", Device: "overlay", Type: "overlay", Options: []string{"lowerdir=/usr/share:/srv/stack", "workdir=/w", "upperdir=/u"}},
			{Target: "/srv/stack", Device: "overlay", Type: "overlay", Options: []string{"ro", "lowerdir=/srv/a:/srv/nfs/x"}},
			{Target: "/srv/local", Device: "overlay", Type: "overlay", Options: []string{"lowerdir=/srv/a:/usr/share"}},
		},
		Swaps:  []Swap{{Device: "/srv/late/swap"}, {Device: "LABEL=space"}},
		Sysctl: []Sysctl{{Key: "kernel/modules_disabled", Value: "1"}, {Key: "net/ipv4/ip_nonlocal_bind", Value: "1"}},
		Files:  []File{{Path: "/etc/motd"}},
	}
	early := all.Early()
	if len(early.Mounts) != 2 || early.Mounts[0].Target != "/srv/a" || early.Mounts[1].Target != "/srv/local" || len(early.Swaps) != 1 || early.Swaps[0].Device != "LABEL=space" || len(early.Sysctl) != 1 || early.Files != nil || early.IsEmpty() {
		t.Errorf("%+v", early)
	}
	if len(all.Mounts) != 10 || len(all.Sysctl) != 2 {
		t.Error("it changed what it was asked about")
	}
	for refused, want := range map[string]string{
		"":          "/srv/nfs /srv/nfs/in /srv/iscsi /srv/late /srv/bound /srv/up /srv/stack",
		"/srv/late": "/srv/nfs /srv/nfs/in /srv/iscsi /srv/up /srv/stack",
		"/srv/nfs":  "/srv/iscsi /srv/late /srv/bound",
	} {
		var got []string
		for _, m := range all.Remote(func(m Mount) bool { return m.Target != refused }) {
			got = append(got, m.Target)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("but %q remote are %q", refused, got)
		}
	}
	for _, none := range []Items{{}, {Files: all.Files}, {Mounts: all.Mounts[1:2]}, {Sysctl: all.Sysctl[:1]}} {
		if early := none.Early(); !early.IsEmpty() {
			t.Errorf("%+v has %+v", none, early)
		}
	}
}
