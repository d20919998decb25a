// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/test/require"
)

// The next program sees over the flattened
// tree what the first one saw in its stack, and no mark is left.
func TestFlatten(t *testing.T) {
	r := stack(t)
	require.Tool(t, "busybox")
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	bottom := r.Lowers[1]
	write(t, bottom, map[string]string{"bin/sh": string(busybox), "proc/": "", "sys/": "", "dev/": "", "tmp/": "",
		"again/old": "x", "again/both/old": "x", "again/kept": "x", "again/file": "x", "away/x": "x", "link": "→again"})
	if err := os.Chmod(filepath.Join(bottom, "bin/sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	list := func(r *Root) (lines []string) {
		t.Helper()
		err := r.Run(context.Background(), Command{Args: []string{"/bin/sh", "-c", "busybox find /again /opt /link /link/ /usr /dir | busybox sort"}, Line: func(l string) { lines = append(lines, l) }})
		if err != nil {
			t.Fatal(err, lines)
		}
		return lines
	}
	write(t, bottom, map[string]string{"bin/busybox": string(busybox)})
	if err := os.Chmod(filepath.Join(bottom, "bin/busybox"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := `set -e; busybox rm -r /again /away /link; busybox mkdir -p /again/both/new /again/file /link; echo x >/again/kept; echo x >/again/both/b; echo x >/link/l`
	if err := r.Run(context.Background(), Command{Args: []string{"/bin/sh", "-c", script}}); err != nil {
		t.Fatal(err)
	}
	want := list(r)
	if err := image.Flatten(r.Upper, r.Lowers); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"again", "again/both", "link"} {
		if image.IsOpaque(filepath.Join(r.Upper, dir)) {
			t.Errorf("%s is opaque", dir)
		}
	}
	for _, name := range []string{"again/old", "again/both/old", "away"} {
		if info, err := os.Lstat(filepath.Join(r.Upper, name)); err != nil || !image.IsWhiteout(info) {
			t.Errorf("%s is not a whiteout: %v, %v", name, info, err)
		}
	}
	if got := list(&Root{Lowers: append([]string{r.Upper}, r.Lowers...), Work: r.Work}); !slices.Equal(got, want) {
		t.Errorf("the next program sees %q, the one before saw %q", got, want)
	}
	for _, name := range []string{"again/file", "link/l"} { // a whiteout where nothing is below would show
		if entries, err := os.ReadDir(filepath.Join(r.Upper, name)); err == nil && len(entries) > 0 {
			t.Errorf("%s has %v", name, entries)
		}
	}
	// The mark of a user namespace means the same.
	if err := unix.Setxattr(filepath.Join(r.Upper, "usr"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("this file system keeps no attributes of users: %v", err)
	}
	if err := image.Flatten(r.Upper, r.Lowers); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(r.Upper, "usr/lib/a")); err != nil || !image.IsWhiteout(info) || image.IsOpaque(filepath.Join(r.Upper, "usr")) {
		t.Errorf("/usr/lib/a is not hidden: %v, %v", info, err)
	}
}
