// SPDX-License-Identifier: Apache-2.0

package images

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/peers/debian"
	"github.com/caisson-os/caisson/test/require"
)

// TestOneSystem: all peers are given the same packages and users, and none of a step before.
func TestOneSystem(t *testing.T) {
	if len(named) != 40 || !slices.IsSorted(named) {
		t.Errorf("%d packages are named, or not in order", len(named))
	}
	for _, p := range peers {
		dir := t.TempDir()
		for _, users := range []int{21, 20} {
			if err := p.write(system{node, append([]string{"unzip"}, named...), users}, dir); err != nil {
				t.Fatal(err)
			}
			text := content(t, dir)
			for _, want := range []string{"unzip", "tree", user(users-1) + "@example.org"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q is not in what it is given", p.name, want)
				}
			}
			if strings.Contains(text, user(users)+"@example.org") {
				t.Errorf("%s: there is one user too many", p.name)
			}
		}
	}
}

// TestRows: builds that are not equal are marked.
func TestRows(t *testing.T) {
	one := func(peer string, equal bool) life {
		l := life{Peer: peer, Steps: map[string]debian.Took{}, Equal: equal}
		for _, s := range steps {
			l.Steps[s.name] = debian.Took{Seconds: 2, Processor: 1}
		}
		return l
	}
	all := rows([]life{one("caisson", true), one("other", false)})
	if len(all) != 2*len(steps)+1 {
		t.Fatalf("%d rows", len(all))
	}
	for _, row := range all {
		for _, b := range row.Bars {
			if marked := b.Note != ""; marked != (b.Peer == "other" && row.Name == "from nothing again") {
				t.Errorf("%s, %s: %q", row.Name, b.Peer, b.Note)
			}
		}
	}
}

// TestLongImages has everybody but caisson make a small system: those that promise so make the
// same bytes from nothing.
func TestLongImages(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Tool(t, "mmdebstrap", "unshare", "tar")
	tar, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	for _, name := range []string{"caisson", "caisson-agent"} { // nobody starts them
		if err := os.WriteFile(filepath.Join(work, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := debian.NewArchive(work)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, p := range slices.Backward(peers[1:]) {
		l, err := live(p, stepsOf(system{nil, []string{"passwd", "tree"}, 2}), tar, work, archive)
		if err != nil {
			t.Error(err)
			continue
		}
		if t.Logf("%+v", l); l.Bytes < 10e6 || !l.Equal && p.name == "mmdebstrap" {
			t.Errorf("%+v", l)
		}
	}
}

// content returns the text of all files below a directory.
func content(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
