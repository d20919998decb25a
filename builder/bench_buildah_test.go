// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
)

// buildah is the Dockerfile-style peer: an image store of its own with Debian's
// smallest image in it, as if it had been pulled, and a repository of packages.
type buildah struct {
	b         *testing.B
	dir, repo string
	args      []string
}

// newBuildah is nil where there is no buildah: the other peers are measured.
func newBuildah(b *testing.B, o Options) *buildah {
	b.Helper()
	if _, err := exec.LookPath("buildah"); err != nil {
		b.Log("without the Dockerfile-style peer: program buildah is not installed")
		return nil
	}
	p := &buildah{b: b, dir: b.TempDir()}
	p.repo = filepath.Join(p.dir, "repo")
	if err := (&apt.Store{Dir: filepath.Join(o.CacheDir, "debs")}).Repo(p.repo, "trixie", append(slices.Clone(o.Lock.Base), o.Lock.Packages...)); err != nil {
		b.Fatal(err)
	}
	p.args = []string{"buildah", "--root", filepath.Join(p.dir, "root"), "--runroot", filepath.Join(p.dir, "run"), "--storage-driver", "overlay"}
	b.Cleanup(func() { unix.Unmount(filepath.Join(p.dir, "root", "overlay"), unix.MNT_DETACH) }) // buildah leaves it
	if err := os.Mkdir(filepath.Join(p.dir, "base"), 0o755); err != nil {
		b.Fatal(err)
	}
	source := "deb [trusted=yes] copy:" + (&url.URL{Path: p.repo}).EscapedPath() + " ./"
	tool(b, "mmdebstrap", "--mode=root", "--variant=apt", "trixie", filepath.Join(p.dir, "base", "debian.tar"), source)
	p.build("debian", "base", "FROM scratch\nADD debian.tar /\n")
	return p
}

func (p *buildah) run(args ...string) string {
	p.b.Helper()
	return tool(p.b, append(slices.Clone(p.args), args...)...)
}

// build makes an image from a Dockerfile in a directory.
func (p *buildah) build(name, dir, text string) {
	p.b.Helper()
	file := filepath.Join(p.dir, dir, "Dockerfile")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		p.b.Fatal(err)
	}
	p.run("build", "--isolation", "chroot", "--network", "host", "--layers=false", "--volume", p.repo+":/repo:ro", "-t", name, filepath.Dir(file))
}

// image builds once and says how long that took.
func (p *buildah) image(level int) time.Duration {
	if p == nil {
		return 0
	}
	p.b.Helper()
	dir, err := os.MkdirTemp(p.dir, "image-")
	if err != nil {
		p.b.Fatal(err)
	}
	names := append(slices.Clone(base.Include), "linux-image-cloud-amd64", "tree")
	start := time.Now()
	p.build("layer", filepath.Base(dir), "FROM localhost/debian\nENV DEBIAN_FRONTEND=noninteractive INITRD=No\n"+
		"RUN echo 'deb [trusted=yes] file:/repo ./' >/etc/apt/sources.list && apt-get -qq update && apt-get -qq -y --no-install-recommends install "+strings.Join(names, " ")+
		" && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale\n")
	container := p.run("from", "localhost/layer")
	tree := p.run("mount", container)
	tool(p.b, "mksquashfs", tree, filepath.Join(dir, "image"), "-noappend", "-comp", "zstd", "-Xcompression-level", fmt.Sprint(level), "-b", "128K", "-no-fragments", "-no-progress", "-quiet")
	took := time.Since(start)
	p.run("rm", container)
	p.run("rmi", "localhost/layer")
	return took
}
