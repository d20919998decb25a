// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// The links of generated units are those that systemctl(1) makes, whether the file comes with the
// layer or with the site, and in one pass.
func TestEnablesAsSystemctl(t *testing.T) {
	require.Root(t)
	require.Tool(t, "systemctl")
	links := func(root string) string {
		var out []string
		err := filepath.WalkDir(filepath.Join(root, own), func(at string, d os.DirEntry, err error) error {
			if err == nil && d.Type()&os.ModeSymlink != 0 {
				to, _ := os.Readlink(at) // an empty one differs
				out = append(out, strings.TrimPrefix(at, root)+" -> "+filepath.Base(to))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
	write := func(root, name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	enabled := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(43, seed))
		pick := func(words ...string) string { return words[r.IntN(len(words))] }
		sections := map[string]string{}
		for _, name := range []string{"a-b.service", "can@.service", "c.socket", "t@.service"} {
			text := "[Unit]\n[Install]\n"
			for range 1 + r.IntN(3) {
				text += pick(
					"WantedBy=multi-user.target\n", "WantedBy=\n", "RequiredBy=x-%i.target\n", "WantedBy=sys-subsystem-net-devices-%i.device\n",
					"WantedBy=%p.target %N.target\n", "RequiredBy=on-%j.target\n", "Alias=other.service\n", "Alias=also-%p@.service\n", "Alias=name-%i.service\n",
					"Also=c.socket\n", "Also=gone.service a-b.service\n", "Also=t@.service can@%u.service\n", "DefaultInstance=d\n", "WantedBy=from@%i.target up%%.target\n")
			}
			sections[name] = text
		}
		unit := pick("a-b.service", "can@eth0.service", "can@a\\x2db.service", "c.socket", "t@1.service")
		dropIn := ""
		if r.IntN(3) == 0 {
			dropIn = "[Install]\n" + pick("WantedBy=more.target\n", "WantedBy=\nWantedBy=only-%i.target\n")
		}
		masked := r.IntN(4) == 0 // what an alias may be called
		theirs, ours := t.TempDir(), t.TempDir()
		var want []spec.Unit
		for _, name := range slices.Sorted(maps.Keys(sections)) {
			text := sections[name]
			write(theirs, own+"/"+name, text)
			if r.IntN(2) == 0 {
				want = append(want, spec.Unit{Name: name, Content: text})
			} else {
				write(ours, "/usr/lib/systemd/system/"+name, text)
			}
		}
		asked := spec.Unit{Name: unit, State: spec.UnitEnabled}
		if dropIn != "" {
			write(theirs, own+"/"+unit+".d/10-x.conf", dropIn)
			asked.DropIns = []spec.DropIn{{Name: "10-x", Content: dropIn}}
		}
		if n := slices.IndexFunc(want, func(u spec.Unit) bool { return u.Name == unit }); n >= 0 {
			want[n].State, want[n].DropIns = spec.UnitEnabled, asked.DropIns
		} else {
			want = append(want, asked)
		}
		if err := os.MkdirAll(ours+own, 0o755); err != nil {
			t.Fatal(err)
		}
		write(theirs, "/dev/null", "") // else a mask looks like a link that leads nowhere
		if masked {
			want = append(want, spec.Unit{Name: "other.service", State: spec.UnitMasked})
			if err := os.Symlink("/dev/null", theirs+own+"/other.service"); err != nil {
				t.Fatal(err)
			}
		}
		said, failed := exec.Command("systemctl", "--root="+theirs, "enable", unit).CombinedOutput()
		w := &world{t: t, root: ours}
		j := itemtest.Journal(t, t.TempDir())
		it := New(want, ours, nil, j)
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatal(err)
		}
		left, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		about := fmt.Sprintf("seed %d: enable %s, drop-in %q, masked %v, of %q\nsystemctl: %v %s\nleft: %+v", seed, unit, dropIn, masked, sections, failed, said, left)
		refused := slices.ContainsFunc(left, func(d spec.Drift) bool { return d.Key == unit && d.Action == spec.ActionRefuse })
		refuses := failed != nil || strings.Contains(string(said), "Failed to enable unit") || strings.Contains(string(said), "no installation config") // it ends with 0, too
		byMask := masked && strings.Contains(string(said), "other.service")
		if refused {
			if !refuses {
				t.Errorf("refused: %s", about)
			}
			continue
		}
		if len(left) > 0 {
			t.Errorf("one pass was not enough: %s", about)
		}
		if refuses && !byMask {
			t.Errorf("systemctl refuses what is taken: %s", about)
		}
		if diff := cmp.Diff(links(theirs), links(w.root)); diff != "" {
			t.Errorf("%s\n(-systemctl +ours):\n%s", about, diff)
		}
		enabled++
	}
	if enabled < 20 {
		t.Errorf("only %d of the units could be enabled", enabled)
	}
}
