// SPDX-License-Identifier: Apache-2.0

package units

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestOrderAsSystemd: an order is a circle where systemd finds one, of units with all that orders
// them.
func TestOrderAsSystemd(t *testing.T) {
	require.Tool(t, "systemd-analyze")
	circle := func(root string) bool {
		out, _ := exec.Command("systemd-analyze", "verify", "--root="+root, "--man=no", "all.target").CombinedOutput() // a circle is an error
		return strings.Contains(string(out), "ordering cycle")
	}
	names := []string{"a.service", "b.service", "c@1.service", "d.socket", "d.service", "e.target",
		"f.timer", "f.service", "g.path", "h.service", "dbus.socket"}
	met := map[bool]int{}
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(43, seed))
		one := func() string { return names[r.IntN(len(names))] }
		root := t.TempDir()
		files := map[string]string{
			"all.target":     "[Unit]\nDefaultDependencies=no\nWants=basic.target " + strings.Join(names, " ") + "\n",
			"sysinit.target": "[Unit]\n",
			"basic.target": "[Unit]\nRequires=sysinit.target\nAfter=sysinit.target sockets.target\n" +
				"Wants=sockets.target timers.target paths.target\n",
			"sockets.target": "[Unit]\n", "timers.target": "[Unit]\n", "paths.target": "[Unit]\n",
		}
		for n, name := range names {
			text := "[Unit]\n"
			for range r.IntN(3) { // most circles come of what is implied
				lower, higher := names[r.IntN(n+1)], names[n+r.IntN(len(names)-n)]
				text += []string{"After=" + lower, "Before=" + higher, "Wants=" + one(), "Requires=" + one()}[r.IntN(4)] + "\n"
			}
			if r.IntN(3) == 0 {
				text += "DefaultDependencies=" + []string{"no", "yes", "false"}[r.IntN(3)] + "\n"
			}
			if r.IntN(8) == 0 {
				text += "Before=" + []string{"sysinit.target", "sockets.target", "c@1.service"}[r.IntN(3)] + "\n"
			}
			switch filepath.Ext(name) {
			case ".service":
				text += "[Service]\nExecStart=/bin/true\n"
				if r.IntN(4) == 0 {
					text += "Type=dbus\nBusName=org.example." + name[:1] + "\n"
				}
			case ".socket":
				text += "[Socket]\nListenStream=/run/x\n"
			case ".timer":
				text += "[Timer]\nOnBootSec=1\n"
			case ".path":
				text += "[Path]\nPathExists=/x\nUnit=h.service\n"
			}
			files[strings.Replace(name, "c@1", "c@", 1)] = text
		}
		if r.IntN(2) == 0 {
			files[one()+".d/x.conf"] = "[Unit]\nAfter=" + one() + "\n"
		}
		for name, text := range files {
			write(t, filepath.Join(root, []string{"etc", "usr/lib"}[r.IntN(2)], "systemd/system", name), text)
		}
		own := filepath.Join(root, "etc/systemd/system")
		for _, link := range [][2]string{{"/usr/lib/systemd/system/a.service", "alias.service"}, {"/dev/null", "b.service"},
			{"../h.service", "e.target.wants/h.service"}} {
			if r.IntN(3) == 0 {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(own, link[1])), 0o755); err != nil {
					t.Fatal(err)
				}
				_ = os.Remove(filepath.Join(own, link[1])) // it may be there
				if err := os.Symlink(link[0], filepath.Join(own, link[1])); err != nil {
					t.Fatal(err)
				}
			}
		}
		if circle(root) {
			continue // it has one by itself
		}
		for k := range 8 {
			unit, other := one(), one()
			if k%2 == 0 && slices.Index(names, unit) > slices.Index(names, other) {
				unit, other = other, unit // which is a circle more often
			}
			if o := ReadOrder(root); unit == other || !o.Has(unit) || !o.Has(other) {
				continue
			}
			want := ReadOrder(root).After(unit, other)
			tried := filepath.Join(own, unit+".d/zz.conf")
			write(t, tried, "[Unit]\nAfter="+other+"\n")
			if circle(root) == want {
				t.Errorf("seed %d: %s after %s: %v, and systemd says otherwise of %q", seed, unit, other, want, files)
			}
			if err := os.Remove(tried); err != nil {
				t.Fatal(err)
			}
			met[want]++
		}
	}
	if met[true] < 10 || met[false] < 5 {
		t.Errorf("orders and circles: %v", met)
	}
}
