// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/fleet/git"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/test/gittest"
	"github.com/caisson-os/caisson/test/require"
)

const authored = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: mon}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: prometheus}
spec: {git: {url: "URL", branch: main}, directories: [{from: prometheus/etc, to: /etc/prometheus}, {from: motd, to: /etc/motd.d/prometheus, file: true}]}
`

// desk is where somebody works with a site whose service comes from a server of git.
type desk struct {
	*Source
	git  *gittest.Repository
	text string
	lock *service.Lock
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	require.Tool(t, "mksquashfs")
	g := gittest.New(t)
	return &desk{git: g, text: strings.Replace(authored, "URL", g.URL, 1), lock: service.NewLock(),
		Source: &Source{Cache: t.TempDir(), Say: t.Logf}}
}

// site reads the site with the lock as it is now.
func (d *desk) site(t *testing.T) *site.Site {
	t.Helper()
	data, err := d.lock.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(d.text)}, "services.lock": {Data: data}}, "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return s
}

func (d *desk) service(t *testing.T) *service.Service {
	t.Helper()
	return &d.site(t).Services().List[0]
}

func (d *desk) update(t *testing.T) Change {
	t.Helper()
	c, err := d.Update(t.Context(), d.lock, d.service(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (d *desk) locked() service.Locked { return d.lock.Services["prometheus"] }

func conf(n string) map[string]string {
	return map[string]string{"prometheus/etc/prometheus.yml": n, "motd": "hello " + n, "other/x": "x" + n}
}

// TestUpdate locks the last commit of the service's directories, and shows what came.
func TestUpdate(t *testing.T) {
	d := newDesk(t)
	one := d.git.Commit("one", conf("1"))
	if c := d.update(t); c.From != "" || c.To != one || !c.Changed() || len(c.Commits) != 1 {
		t.Errorf("first: %+v", c)
	}
	first := d.locked()
	if first.Commit != one || first.Image.Size == 0 || first.Date.Format(time.DateOnly) != "2026-11-01" {
		t.Errorf("%+v", first)
	}
	d.git.Commit("elsewhere", map[string]string{"other/x": "y", "prometheus/etcetera": "z"})
	if c := d.update(t); c.Changed() || d.locked().Image != first.Image {
		t.Errorf("a commit elsewhere: %+v", c)
	}
	two := d.git.Commit("two", conf("2"))
	c := d.update(t)
	if c.From != one || c.To != two || len(c.Commits) != 1 || c.Commits[0].Subject != "two" || fmt.Sprint(c.Paths) != "[motd prometheus/etc/prometheus.yml]" {
		t.Errorf("%+v", c)
	}
	if d.locked().Image == first.Image {
		t.Error("other files have the same image")
	}
	if o, err := d.site(t).Overlay("mon", ""); err != nil || o.Services[0].Commit != two || o.Services[0].Image != d.locked().Image {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestImageIsTheSame wherever it is made.
func TestImageIsTheSame(t *testing.T) {
	d := newDesk(t)
	d.git.Commit("one", conf("1"))
	d.update(t)
	first := d.locked()
	for _, mask := range []int{0o077, 0o002} {
		old := unix.Umask(mask)
		d.Cache, d.lock = t.TempDir(), service.NewLock()
		d.update(t)
		unix.Umask(old)
		if d.locked().Image != first.Image {
			t.Errorf("umask %o: %+v, want %+v", mask, d.locked().Image, first.Image)
		}
	}
}

// TestHold: a service that is frozen, or went back, stays until it goes forward.
func TestHold(t *testing.T) {
	d := newDesk(t)
	one := d.git.Commit("one", conf("1"))
	two := d.git.Commit("two", conf("2"))
	d.update(t)
	why := service.Frozen{Reason: "it fails", Author: "me", Since: time.Unix(1, 0).UTC()}
	c, err := d.Rollback(t.Context(), d.lock, d.service(t), "", why)
	if err != nil || c.From != two || c.To != one || *c.Frozen != why || fmt.Sprint(c.Paths) != "[motd prometheus/etc/prometheus.yml]" {
		t.Errorf("%+v, %v", c, err)
	}
	d.git.Commit("three", conf("3"))
	if c := d.update(t); c.Changed() || c.Frozen == nil || d.locked().Commit != one {
		t.Errorf("it went on: %+v", c)
	}
	if _, err := d.Rollback(t.Context(), d.lock, d.service(t), "", why); err == nil {
		t.Error("went back to before the first commit")
	}
	if c, err := d.Rollback(t.Context(), d.lock, d.service(t), two[:10], why); err != nil || c.To != two {
		t.Errorf("to a commit: %+v, %v", c, err)
	}
	if _, err := d.Rollback(t.Context(), d.lock, d.service(t), strings.Repeat("1", 40), why); !errors.Is(err, git.ErrGone) {
		t.Errorf("to a commit that never was: %v", err)
	}
	if d.locked().Commit != two || d.locked().Frozen == nil {
		t.Errorf("%+v", d.locked())
	}
	if !Thaw(d.lock, "prometheus") || Thaw(d.lock, "prometheus") {
		t.Error("thawed never, or twice")
	}
	if c := d.update(t); c.To == two || d.locked().Frozen != nil {
		t.Errorf("it did not go on: %+v", c)
	}
	if _, err := Freeze(d.lock, "prometheus", why); err != nil || d.locked().Frozen.Reason != "it fails" {
		t.Errorf("%+v, %v", d.locked(), err)
	}
	if _, err := Freeze(d.lock, "none", why); err == nil {
		t.Error("froze what there is not")
	}
}

// TestHistoryAsItComes: a rewritten history is followed, a branch that vanished leaves
// the lock as it is.
func TestHistoryAsItComes(t *testing.T) {
	d := newDesk(t)
	d.git.Commit("root", conf("0"))
	old := d.git.Commit("old", conf("1"))
	d.update(t)
	d.git.Git("reset", "--quiet", "--hard", "HEAD~")
	fresh := d.git.Commit("fresh", conf("2"))
	if c := d.update(t); c.From != old || c.To != fresh || len(c.Commits) != 1 || len(c.Paths) != 2 {
		t.Errorf("%+v", c)
	}
	d.git.Git("branch", "-m", "main", "trunk")
	before := d.locked()
	if _, err := d.Update(t.Context(), d.lock, d.service(t)); !errors.Is(err, git.ErrGone) || !strings.Contains(err.Error(), "service prometheus") {
		t.Errorf("%v", err)
	}
	if fmt.Sprint(d.locked()) != fmt.Sprint(before) {
		t.Errorf("%+v", d.locked())
	}
	d.git.Git("branch", "-m", "trunk", "main")
	if c := d.update(t); c.Changed() { // an error that is over leaves nothing behind
		t.Errorf("%+v", c)
	}
}

// TestUpdateRefuses what must not reach a node, and keeps the lock.
func TestUpdateRefuses(t *testing.T) {
	d := newDesk(t)
	d.git.Commit("one", conf("1"))
	d.update(t)
	before := d.locked()
	if err := os.Symlink("/etc/shadow", filepath.Join(d.git.Dir, "prometheus/etc/secret")); err != nil {
		t.Fatal(err)
	}
	d.git.Commit("a link", nil)
	if _, err := d.Update(t.Context(), d.lock, d.service(t)); err == nil || !strings.Contains(err.Error(), "out of prometheus/etc") {
		t.Errorf("%v", err)
	}
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d.git.Git("revert", "--no-edit", "HEAD")
	d.text = strings.Replace(d.text, "branch: main", "branch: main, allowedSigners: "+signers, 1)
	if _, err := d.Update(t.Context(), d.lock, d.service(t)); err == nil || !strings.Contains(err.Error(), "is not signed by") {
		t.Errorf("%v", err)
	}
	if fmt.Sprint(d.locked()) != fmt.Sprint(before) {
		t.Errorf("%+v", d.locked())
	}
	if left, err := filepath.Glob(filepath.Join(d.Cache, "service", "tmp-*")); err != nil || left != nil {
		t.Errorf("left %q, %v", left, err)
	}
}

// TestPush brings an image once, and asks git only for what nobody else has.
func TestPush(t *testing.T) {
	d := newDesk(t)
	d.git.Commit("one", conf("1"))
	d.update(t)
	open := func() *registry.Registry {
		t.Helper()
		r, err := registry.Open("oci:"+filepath.Join(t.TempDir(), "out"), registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	push := func(r *registry.Registry, want string) {
		t.Helper()
		err := d.Push(t.Context(), r, d.site(t))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Fatalf("%v, want %q", err, want)
		}
		if want != "" {
			return
		}
		tags, err := r.Tags(t.Context(), oci.RepoService)
		if err != nil || !slices.Equal(tags, []string{Tag(d.locked().Image.Digest)}) {
			t.Errorf("tags %q, %v", tags, err)
		}
		body, size, err := r.Blob(context.WithoutCancel(t.Context()), oci.RepoService, d.locked().Image.Digest)
		if err != nil || size != d.locked().Image.Size {
			t.Fatalf("%d bytes, %v", size, err)
		}
		_ = body.Close() // only looked at
	}
	r := open()
	push(r, "")
	d.Cache = t.TempDir()
	push(open(), "") // it is built again
	if info, err := os.Stat(filepath.Join(d.Cache, "service")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others can read what was in a repository: %v, %v", info, err)
	}
	if err := os.Truncate(d.file(d.locked().Image.Digest), 10); err != nil {
		t.Fatal(err)
	}
	push(open(), "") // what rots in a cache is not pushed
	if err := os.RemoveAll(d.git.Dir); err != nil {
		t.Fatal(err)
	}
	d.Cache = t.TempDir()
	push(r, "") // it is there
	push(open(), "service prometheus: ")
}

// TestTextsOn: what a service brings to paths whose files a program of the layer is asked about is
// given to it, and nothing else.
func TestTextsOn(t *testing.T) {
	d := newDesk(t)
	const unit = "[Service]\nExecStart=/usr/bin/nothere\n"
	d.git.Commit("one", map[string]string{"units/x.service": unit, "units/y.service.d/10-x.conf": "[Unit]\n", "prometheus/etc/prometheus.yml": "x", "sudo": "ann ALL=ALL", "motd": "x"})
	d.text = strings.Replace(d.text, "directories: [", "directories: [{from: units/x.service, to: /etc/systemd/system/x.service, file: true}, {from: units/y.service.d, to: /etc/systemd/system/y.service.d}, "+
		"{from: sudo, to: /etc/sudoers.d/ann, file: true}, ", 1)
	d.update(t)
	sets, err := d.TextsOn(t.Context(), d.site(t), []string{"mon"})
	if err != nil || len(sets) != 1 {
		t.Fatalf("%+v, %v", sets, err)
	}
	got := map[string]string{}
	for _, text := range sets[0] {
		got[text.Path] = text.Content
		if !strings.HasPrefix(text.At, "site.yaml:9:") {
			t.Errorf("%s is said to be of %s", text.Path, text.At)
		}
	}
	want := map[string]string{"/etc/systemd/system/x.service": unit, "/etc/systemd/system/y.service.d/10-x.conf": "[Unit]\n", "/etc/sudoers.d/ann": "ann ALL=ALL"}
	if !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if sets, err := d.TextsOn(t.Context(), d.site(t), []string{"other"}); err != nil || sets != nil {
		t.Errorf("of no node: %+v, %v", sets, err)
	}
	d.Cache = t.TempDir()
	said := ""
	d.Say = func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
	if sets, err := d.TextsOn(t.Context(), d.site(t), []string{"mon"}); err != nil || sets != nil || !strings.Contains(said, "not in this cache") {
		t.Errorf("without the image: %+v, %v, %q", sets, err, said)
	}
}
