// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// plainPackages are of nodes for storage, network, containers and databases, and some whose files
// have capabilities, groups of their own, alternatives and diversions.
var plainPackages = []string{"open-iscsi", "nfs-kernel-server", "frr", "keepalived", "podman", "uidmap", "postgresql", "iputils-ping", "mtr-tiny", "vim", "nano", "munge", "snmpd", "ssl-cert", "fuse3",
	"docker.io", "bird2", "haproxy", "wireguard-tools", "mariadb-server", "systemd-cryptsetup", "lvm2", "nvme-cli"}

// TestLongBesidePlain: a layer and a root that mmdebstrap makes of the same packages have the same
// paths, types, modes, owners, capabilities and links, but for what docs/building.md lists with
// its reason; and each row of that list is of something.
func TestLongBesidePlain(t *testing.T) {
	require.Long(t)
	recipe := testRecipe()
	recipe.Packages.Install = nil
	for _, name := range plainPackages {
		recipe.Packages.Install = append(recipe.Packages.Install, spec.Package{Name: name})
	}
	o := testOptions(t)
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	result, err := Build(t.Context(), recipe, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	layer, plain := mounted(t, result), plainRoot(t, o, result.Lock)
	here, there := attributes(t, layer), attributes(t, plain)
	rows := explained(t)
	used := make([]int, len(rows))
	paths := map[string]bool{}
	for p := range here {
		paths[p] = true
	}
	for p := range there {
		paths[p] = true
	}
	var bad []string
	for p := range paths {
		if here[p] == there[p] {
			continue
		}
		at := slices.IndexFunc(rows, func(r difference) bool { return r.is(p, here[p], there[p]) })
		if at < 0 {
			bad = append(bad, fmt.Sprintf("%s\n\tlayer %s\n\tplain %s", p, cmp.Or(here[p], "-"), cmp.Or(there[p], "-")))
			continue
		}
		used[at]++
	}
	slices.Sort(bad)
	t.Logf("%d paths, %d and %d", len(paths), len(here), len(there))
	for _, b := range bad[:min(len(bad), 2000)] {
		t.Error(b)
	}
	for i, n := range used {
		if n == 0 {
			t.Errorf("docs/building.md explains %v, and nothing differs so", rows[i])
		}
	}
}

// mounted is a layer as a node has it, below an empty writable tree.
func mounted(t *testing.T, r *Result) string {
	t.Helper()
	var lowers []string
	for _, i := range r.Layer.Images {
		blob := r.Blobs[slices.IndexFunc(r.Blobs, func(b Blob) bool { return b.Title == i.Name })]
		lowers = append([]string{filepath.Join(filepath.Dir(blob.Path), "tree")}, lowers...)
	}
	dir := t.TempDir()
	if err := unix.Mount("overlay", dir, "overlay", unix.MS_RDONLY, "lowerdir="+strings.Join(lowers, ":")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// plainRoot is what mmdebstrap makes of the packages of a lock, and of nothing else.
func plainRoot(t *testing.T, o Options, lock packages.Lock) string {
	t.Helper()
	dir := t.TempDir()
	repo, tree := filepath.Join(dir, "repo"), filepath.Join(dir, "tree")
	debs := append(slices.Clone(lock.Base), lock.Packages...)
	store := &apt.Store{Dir: filepath.Join(o.CacheDir, "debs")}
	if err := store.Repo(repo, "trixie", debs); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range debs {
		names = append(names, d.Name)
	}
	tool(t, "mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", "--include="+strings.Join(names, ","), `--aptopt=APT::Install-Recommends "false"`, "trixie", tree,
		"deb [trusted=yes] copy:"+(&url.URL{Path: repo}).EscapedPath()+" ./")
	return tree
}

// attributes returns type, mode, owner, group, capabilities and link of each path of a tree.
func attributes(t *testing.T, dir string) map[string]string {
	t.Helper()
	users, groups := namesOf(t, dir+"/etc/passwd"), namesOf(t, dir+"/etc/group")
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s %s:%s", info.Mode(), users[st.Uid], groups[st.Gid])
		if e.Type() == fs.ModeSymlink {
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text = "-> " + to
		}
		value := make([]byte, 64)
		switch n, err := unix.Lgetxattr(name, "security.capability", value); {
		case err == nil:
			text += fmt.Sprintf(" capabilities %x", value[:n])
		case !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP):
			return err
		}
		all["/"+strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// namesOf reads the names of numbers from a passwd or group file.
func namesOf(t *testing.T, file string) map[uint32]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint32]string{}
	for line := range strings.Lines(string(data)) {
		var id uint32
		f := strings.Split(line, ":")
		if _, err := fmt.Sscan(f[2], &id); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		names[id] = f[0]
	}
	return names
}

// difference is a row of docs/building.md: paths that differ in a way.
type difference struct{ paths, how string }

// is reports whether a row explains how a path differs.
func (d difference) is(name, here, there string) bool {
	switch d.how {
	case "only in the layer":
		if there != "" {
			return false
		}
	case "left out":
		if here != "" {
			return false
		}
	default:
		if here == "" || there == "" {
			return false
		}
	}
	for pattern := range strings.SplitSeq(d.paths, ", ") {
		pattern = strings.Trim(pattern, "`")
		if below, ok := strings.CutSuffix(pattern, "/**"); ok {
			for dir := name; dir != "/"; dir = path.Dir(dir) {
				if hit, err := path.Match(below, dir); err == nil && hit {
					return true
				}
			}
		}
		if hit, err := path.Match(pattern, name); err == nil && hit {
			return true
		}
	}
	return false
}

// explained reads the table below the heading of docs/building.md.
func explained(t *testing.T) (rows []difference) {
	t.Helper()
	f, err := os.Open("../docs/building.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // only read
	in := false
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			in = s.Text() == "## Beside a plain Debian"
		}
		if cells := strings.Split(s.Text(), " | "); in && len(cells) == 3 && strings.HasPrefix(cells[0], "| `") {
			rows = append(rows, difference{strings.TrimPrefix(cells[0], "| "), cells[1]})
		}
	}
	return rows
}
