// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/spec"
)

// locked returns options that build from a lock, in the shared cache.
func locked(b *testing.B, fast bool) (spec.Recipe, Options) {
	b.Helper()
	o := testOptions(b)
	o.Progress, o.Fast = nil, fast
	recipe := testRecipe()
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		b.Fatal(err)
	}
	r := mustBuild(b, recipe, o)
	o.Lock = &r.Lock
	return recipe, o
}

func mustBuild(b *testing.B, recipe spec.Recipe, o Options) *Result {
	b.Helper()
	r, err := Build(context.Background(), recipe, "default", "1", o)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// BenchmarkUnchanged is a build that has nothing to do: goal ≤ 0.3 s.
func BenchmarkUnchanged(b *testing.B) {
	recipe, o := locked(b, true)
	for b.Loop() {
		mustBuild(b, recipe, o)
	}
}

// BenchmarkAccountsOnly is a build with one more user each time: goal ≤ 2 s.
func BenchmarkAccountsOnly(b *testing.B) {
	recipe, o := locked(b, true)
	n := time.Now().UnixNano()
	for b.Loop() {
		n++
		recipe.Accounts.Users = []spec.User{{Name: fmt.Sprintf("u%d", n)}}
		var err error
		if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
			b.Fatal(err)
		}
		mustBuild(b, recipe, o)
	}
}

// BenchmarkFull is a build from nothing but package files, and beside it, in
// turn, mmdebstrap of the same packages to a directory and mksquashfs by the same
// command: goal ≤ 1.15 times that ("x-plain"). A third peer installs the packages
// in a second step, as a Dockerfile does ("x-layered" is our time over its). The
// fourth, "x-buildah", is a Dockerfile that installs them on Debian's smallest
// image, built by buildah and compressed by the same command.
func BenchmarkFull(b *testing.B) {
	for name, fast := range map[string]bool{"fast": true, "release": false} {
		b.Run(name, func(b *testing.B) {
			recipe, warm := locked(b, fast)
			level := image.LevelRelease
			if fast {
				level = image.LevelFast
			}
			var ours, plain, layered, dockerfile time.Duration
			buildah := newBuildah(b, warm)
			for b.Loop() {
				o := warm
				o.CacheDir = b.TempDir()
				linkDebs(b, filepath.Join(warm.CacheDir, "debs"), filepath.Join(o.CacheDir, "debs"))
				start := time.Now()
				mustBuild(b, recipe, o)
				ours += time.Since(start)
				plain += peer(b, warm, level, false)
				layered += peer(b, warm, level, true)
				dockerfile += buildah.image(level)
			}
			b.ReportMetric(ours.Seconds()/plain.Seconds(), "x-plain")
			b.ReportMetric(ours.Seconds()/layered.Seconds(), "x-layered")
			b.ReportMetric(ours.Seconds()/float64(b.N), "s/build")
			b.ReportMetric(plain.Seconds()/float64(b.N), "s/plain")
			b.ReportMetric(layered.Seconds()/float64(b.N), "s/layered")
			if dockerfile > 0 {
				b.ReportMetric(ours.Seconds()/dockerfile.Seconds(), "x-buildah")
				b.ReportMetric(dockerfile.Seconds()/float64(b.N), "s/buildah")
			}
		})
	}
}

func linkDebs(b *testing.B, from, to string) {
	b.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		b.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(from, "*"))
	for _, f := range files {
		if err := os.Link(f, filepath.Join(to, filepath.Base(f))); err != nil {
			b.Fatal(err)
		}
	}
}

// tool runs a program of the host and returns its last line.
func tool(b testing.TB, args ...string) string {
	b.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "INITRD=No", "DEBIAN_FRONTEND=noninteractive")
	said, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v\n%s", args[0], err, said)
	}
	text := strings.TrimSpace(string(said))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// peer makes one image with the plain tools.
func peer(b *testing.B, o Options, level int, twoSteps bool) time.Duration {
	b.Helper()
	dir := b.TempDir()
	repo := filepath.Join(dir, "repo")
	store := &apt.Store{Dir: filepath.Join(o.CacheDir, "debs")}
	if err := store.Repo(repo, "trixie", append(slices.Clone(o.Lock.Base), o.Lock.Packages...)); err != nil {
		b.Fatal(err)
	}
	include := append(slices.Clone(base.Include), "linux-image-cloud-amd64")
	if !twoSteps {
		include = append(include, "tree")
	}
	tree := filepath.Join(dir, "tree")
	source := "deb [trusted=yes] copy:" + (&url.URL{Path: repo}).EscapedPath() + " ./"
	run := func(args ...string) { tool(b, args...) }
	start := time.Now()
	args := []string{"mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", "--include=" + strings.Join(include, ","), `--aptopt=APT::Install-Recommends "false"`}
	for _, exclude := range []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"} {
		args = append(args, "--dpkgopt=path-exclude="+exclude)
	}
	run(append(args, "trixie", tree, source)...)
	if twoSteps {
		run("mksquashfs", tree, filepath.Join(dir, "one"), "-noappend", "-comp", "zstd", "-Xcompression-level", fmt.Sprint(level), "-b", "128K", "-no-fragments", "-no-progress", "-quiet")
		run("cp", "-a", "--reflink=auto", tree, tree+"2")
		run("cp", "-a", repo, filepath.Join(tree+"2", "repo"))
		run("chroot", tree+"2", "sh", "-c", "echo 'deb [trusted=yes] file:/repo ./' >/etc/apt/sources.list; apt-get -qq update && apt-get -qq -y install tree && rm -r /repo")
		tree += "2"
	}
	run("mksquashfs", tree, filepath.Join(dir, "image"), "-noappend", "-comp", "zstd", "-Xcompression-level", fmt.Sprint(level), "-b", "128K", "-no-fragments", "-no-progress", "-quiet")
	return time.Since(start)
}
