// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/layers/image"
)

// BenchmarkOnePackage is a build after a package above the base has a new version: goal ≤ 2 s.
func BenchmarkOnePackage(b *testing.B) { benchUpdate(b, "tree", nil) }

// BenchmarkBaseUpdate is a build after a package of the base has a new version, as a security
// update brings it, and beside it, in turn, what a Dockerfile on a kept base runs: an upgrade
// above the tree that is there, and mksquashfs of the whole by the same command. The goal is
// at most 1 times that ("x-kept").
func BenchmarkBaseUpdate(b *testing.B) { benchUpdate(b, "ca-certificates", keptTree) }

// benchUpdate builds with one version after the other of a package; beside is made once, and
// says how long the same takes it.
func benchUpdate(b *testing.B, name string, beside func(*testing.B, Options) func(Options) time.Duration) {
	recipe, o := locked(b, true)
	o.Debs, o.Unsigned = b.TempDir(), []string{apt.AnyPackage}
	mustBuild(b, recipe, o)
	var peer func(Options) time.Duration
	if beside != nil {
		peer = beside(b, o)
	}
	var ours, kept time.Duration
	for b.Loop() {
		lock := *o.Lock
		lock.Base, lock.Packages = slices.Clone(lock.Base), slices.Clone(lock.Packages)
		o.Lock = &lock
		newer(b, o, name)
		start := time.Now()
		mustBuild(b, recipe, o)
		ours += time.Since(start)
		if peer != nil {
			kept += peer(o)
		}
	}
	b.ReportMetric(ours.Seconds()/float64(b.N), "s/build")
	if peer != nil {
		b.ReportMetric(ours.Seconds()/kept.Seconds(), "x-kept")
	}
}

// newer gives a package of the lock another version, which no build before had.
func newer(b *testing.B, o Options, name string) {
	b.Helper()
	store := &apt.Store{Dir: filepath.Join(o.CacheDir, "debs")}
	for _, debs := range [][]apt.Deb{o.Lock.Base, o.Lock.Packages} {
		i := slices.IndexFunc(debs, func(d apt.Deb) bool { return d.Name == name })
		if i < 0 {
			continue
		}
		d := debs[i]
		tree := filepath.Join(b.TempDir(), "tree")
		tool(b, "dpkg-deb", "-R", store.Path(d), tree)
		d.Version = fmt.Sprint(strings.Split(d.Version, "+u")[0], "+u", time.Now().UnixNano())
		tool(b, "sed", "-i", "s/^Version: .*/Version: "+d.Version+"/", filepath.Join(tree, "DEBIAN", "control"))
		file := filepath.Join(o.Debs, d.FileName())
		tool(b, "dpkg-deb", "-b", tree, file)
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		sum := sha256.Sum256(data)
		d.SHA256, d.Size = hex.EncodeToString(sum[:]), int64(len(data))
		debs[i] = d
		return
	}
	b.Fatalf("package %s is not in the lock", name)
}

// keptTree makes a tree of the lock's packages once, and upgrades it above itself each time.
func keptTree(b *testing.B, o Options) func(Options) time.Duration {
	b.Helper()
	repo := func(o Options) string {
		dir := filepath.Join(b.TempDir(), "repo")
		if err := (&apt.Store{Dir: filepath.Join(o.CacheDir, "debs")}).Repo(dir, "trixie", append(slices.Clone(o.Lock.Base), o.Lock.Packages...)); err != nil {
			b.Fatal(err)
		}
		return dir
	}
	tree := filepath.Join(b.TempDir(), "tree")
	tool(b, "mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", `--aptopt=APT::Install-Recommends "false"`,
		"--include="+strings.Join(append(slices.Clone(base.Include), "linux-image-cloud-amd64", "tree"), ","), "trixie", tree,
		"deb [trusted=yes] copy:"+(&url.URL{Path: repo(o)}).EscapedPath()+" ./")
	return func(o Options) time.Duration {
		source, dir := repo(o), b.TempDir()
		upper, work, root := filepath.Join(dir, "upper"), filepath.Join(dir, "work"), filepath.Join(dir, "root")
		for _, d := range []string{upper, work, root} {
			if err := os.Mkdir(d, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		defer unix.Unmount(root, unix.MNT_DETACH) // with what is mounted below; the benchmark has failed if it is there
		start := time.Now()
		tool(b, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+tree+",upperdir="+upper+",workdir="+work, root)
		tool(b, "mkdir", filepath.Join(root, "repo"))
		tool(b, "mount", "--bind", source, filepath.Join(root, "repo"))
		tool(b, "chroot", root, "sh", "-ec", "echo 'deb [trusted=yes] file:/repo ./' >/etc/apt/sources.list; apt-get -qq update; apt-get -qq -y upgrade; rm -rf /var/lib/apt/lists/*")
		tool(b, "umount", filepath.Join(root, "repo"))
		tool(b, "mksquashfs", root, filepath.Join(dir, "image"), "-noappend", "-comp", "zstd", "-Xcompression-level", fmt.Sprint(image.LevelFast),
			"-b", "128K", "-no-fragments", "-no-progress", "-quiet")
		took := time.Since(start)
		if upgraded, err := filepath.Glob(filepath.Join(upper, "var/lib/dpkg/info/ca-certificates.list")); err != nil || len(upgraded) == 0 {
			b.Fatalf("nothing was upgraded: %v", err)
		}
		return took
	}
}
