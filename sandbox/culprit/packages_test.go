// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/compare"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// archive has packages in two versions, by name; "" is of a side that has not the package.
type archive struct {
	versions map[string][2]string
	source   map[string]string
	together [2]string // apt refuses one of these two without the other
	builds   int
	answers  bool // p0 has other answers to debconf on the bad side
}

// drawArchive has nine packages, the first two of one source, some that are new and some that are gone.
func drawArchive(r *rand.Rand) *archive {
	a := &archive{versions: map[string][2]string{}, source: map[string]string{"p0": "s0", "p1": "s0"}}
	for i := range 9 {
		a.versions[fmt.Sprintf("p%d", i)] = [][2]string{{"1", "2"}, {"1", "2"}, {"", "2"}, {"1", ""}, {"1", "1"}}[r.IntN(5)]
	}
	a.versions["p0"], a.versions["p1"], a.versions["p2"] = [2]string{"1", "2"}, [2]string{"1", "2"}, [2]string{"1", "2"}
	return a
}

func sum(name, version string) string { return digest.Hex(digest.Of([]byte(name + version))) }

// lock is that of a side, 0 or 1, and recipe what it is of.
func (a *archive) lock(side int) packages.Lock {
	l := packages.Lock{Releases: []apt.Release{{Suite: "trixie", Date: "2026-01-01T00:00:00Z"}}, BaseDate: "2026-01-01T00:00:00Z"}
	for name, v := range a.versions {
		if v[side] != "" {
			l.Packages = append(l.Packages, apt.Deb{Name: name, Version: v[side], SHA256: sum(name, v[side]), Source: a.source[name]})
		}
	}
	return l.With(packages.Lock{}, nil, a.recipe(side))
}

func (a *archive) recipe(side int) (r spec.Recipe) {
	r = spec.Recipe{Fleet: "f", Arch: "amd64", Kernel: "linux-image-amd64", Base: spec.Base{Debian: &spec.Debian{Suite: "trixie"}},
		Accounts: spec.Accounts{Users: []spec.User{{Name: fmt.Sprintf("user%d", side)}}}}
	for _, name := range slices.Sorted(maps.Keys(a.versions)) {
		if a.versions[name][side] != "" {
			p := spec.Package{Name: name}
			if a.answers && name == "p0" {
				p.Debconf = []spec.Debconf{{Question: "p0/side", Answer: fmt.Sprint(side)}}
			}
			r.Packages.Install = append(r.Packages.Install, p)
		}
	}
	return r
}

// texts are those of the layer of a side, of which only the packages are other ones.
func (a *archive) texts(t *testing.T, side int, agent string) map[string]string {
	t.Helper()
	recipe, err := spec.Encode(a.recipe(side))
	if err != nil {
		t.Fatal(err)
	}
	l := struct{ Packages []spec.InstalledPackage }{}
	for _, d := range a.lock(side).Packages {
		l.Packages = append(l.Packages, spec.InstalledPackage{Name: d.Name, Version: d.Version, SHA256: d.SHA256})
	}
	layer, err := json.Marshal(map[string]any{"packages": l.Packages})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"recipe": string(recipe), "layer": string(layer), "packages": fmt.Sprint(side), "file": agent}
}

// make is a build in place of apt: it refuses what does not belong together, and what a recipe asks for in vain.
func (a *archive) make(t *testing.T) func(context.Context, spec.Recipe, string, string, builder.Options) (*builder.Result, error) {
	return func(_ context.Context, r spec.Recipe, variant, version string, o builder.Options) (*builder.Result, error) {
		a.builds++
		if len(r.Accounts.Users) > 0 {
			t.Error("accounts are made again")
		}
		if text, err := os.ReadFile(o.Agent); err != nil || string(text) != "the agent" {
			t.Errorf("the agent is %q: %v", text, err)
		}
		if !o.Lock.Of(r) {
			t.Errorf("the lock is not of the recipe")
		}
		has := map[string]string{}
		l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "f", Version: version, Variant: variant, Arch: "amd64", Created: "2026-01-01T00:00:00Z", Roots: map[string]string{}}
		for _, d := range o.Lock.Packages {
			has[d.Name] = d.Version
			l.Packages = append(l.Packages, spec.InstalledPackage{Name: d.Name, Version: d.Version, SHA256: d.SHA256})
		}
		for _, p := range r.Packages.Install {
			if has[p.Name] == "" {
				t.Errorf("%s is asked for, and not in the lock", p.Name)
			}
		}
		newer := func(name string) bool { return name != "" && has[name] == a.versions[name][1] }
		if newer(a.together[0]) != newer(a.together[1]) {
			return nil, fmt.Errorf("install packages: %s depends on another version", a.together[0])
		}
		result := &builder.Result{Recipe: []byte("{}")}
		put := func(title, mediaType string) spec.Blob {
			data := make([]byte, 4096)
			copy(data, fmt.Sprint(title, has))
			name := filepath.Join(t.TempDir(), title)
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			b := spec.Blob{Digest: digest.Of(data), Size: int64(len(data))}
			result.Blobs = append(result.Blobs, builder.Blob{Blob: b, MediaType: mediaType, Path: name, Title: title})
			return b
		}
		for _, name := range []string{"base", "packages", "accounts", "agent"} {
			i := spec.Image{Name: name, MediaType: mediatype.Squashfs, Blob: put(name, mediatype.Squashfs)}
			l.Images = append(l.Images, i)
			l.Roots[i.Digest] = strings.Repeat("0", 64)
		}
		l.Kernel, l.Initrd, l.Recipe = spec.KernelBlob{Release: "6.12", Blob: put("kernel", mediatype.Kernel)}, put("initrd", mediatype.Initrd), digest.Of(result.Recipe)
		result.Layer = l
		return result, nil
	}
}

// Of two layers the package is found that breaks the check, by names: what apt refuses is passed by, packages of one
// source go together, and the line of the site is named. What a machine has is read from what it would boot.
func TestPackagesByName(t *testing.T) {
	t.Parallel()
	require.Tool(t, "mksquashfs", "unsquashfs")
	agent := agentImage(t)
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 7))
		a := drawArchive(r)
		f := newShelf(t)
		o := fixture.Overlay(nil)
		for side, commit := range []string{strings.Repeat("a", 40), strings.Repeat("b", 40)} {
			f.publish(t, o, pushed(t, f.registry, fmt.Sprint(side), a.texts(t, side, agent)), publish.By{Commit: commit})
		}
		n := f.node(t, "layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\nconf:\n  apt:\n    packages:\n      - {name: p2}\n")
		n.Then = func(commit string) Past {
			return Past{Locks: &packages.LockFile{Variants: map[string]packages.Lock{"default": a.lock(strings.Index("ab", commit[:1]))}}}
		}
		n.Box.Build.Make = a.make(t)
		var differ []string // by part
		for name, v := range a.versions {
			if v[0] != v[1] && a.source[name] == "" {
				differ = append(differ, name)
			}
		}
		slices.Sort(differ)
		fault := differ[r.IntN(len(differ))]
		if i := r.IntN(len(differ)); i > 0 {
			a.together = [2]string{differ[i-1], differ[i]}
		}
		n.boot = func(_ context.Context, k *sandbox.Kept) (Answer, error) {
			version := ""
			for _, p := range k.Layer.Packages {
				if p.Name == fault {
					version = p.Version
				}
			}
			if version == a.versions[fault][1] {
				return Answer{Bad, "the fault is there"}, nil
			}
			return Answer{Outcome: Good}, nil
		}
		cache := t.TempDir()
		var found *Result
		err := ErrMost
		for q := (Question{Good: "1", Cache: cache, Most: 3}); errors.Is(err, ErrMost); n.kept = nil {
			found, err = n.Find(t.Context(), q, t.Logf)
			halfAgent(t, cache, agent)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"layer/packages/" + fault}
		if slices.Contains(a.together[:], fault) {
			want = []string{"layer/packages/" + a.together[0], "layer/packages/" + a.together[1]}
		}
		var got []string
		for _, p := range found.Parts {
			got = append(got, p.Name)
			if name := strings.TrimPrefix(p.Name, "layer/packages/"); len(p.Changes) != 1 || p.Changes[0].Key != name || (p.Origin != nil) != (name == "p2") {
				t.Errorf("%d: %+v", seed, p)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: found %q, planted %s of %v", seed, got, fault, a)
		}
		if left, _ := filepath.Glob(cache + "/bisect/*"); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

// halfAgent leaves behind what a run leaves that is killed as it unpacks an agent, where a search is to go on.
func halfAgent(t *testing.T, cache, agent string) {
	t.Helper()
	going, _ := filepath.Glob(cache + "/bisect/*.json") // the pattern is ours
	for _, answers := range going {
		file := filepath.Join(answers+".work/run", digest.Hex(digest.Of([]byte(agent))), paths.Agent)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("the ag"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// agentImage is the image of an agent.
func agentImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tree", paths.Agent)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("the agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := image.Squashfs(t.Context(), dir+"/tree", dir+"/image", image.Options{Level: image.LevelFast, AsRoot: true}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(dir + "/image")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Where one of the layers cannot be built again, its packages are one part, and that is said. Of a disk that is full
// nothing is remembered.
func TestPackagesAreOnePart(t *testing.T) {
	t.Parallel()
	require.Tool(t, "mksquashfs", "unsquashfs")
	agent := agentImage(t)
	two := func(a *archive) (*Node, *packages.LockFile) {
		f, o := newShelf(t), fixture.Overlay(nil)
		for side := range 2 {
			f.publish(t, o, pushed(t, f.registry, fmt.Sprint(side), a.texts(t, side, agent)), publish.By{Commit: strings.Repeat("a", 40)})
		}
		n := f.node(t, "")
		n.boot = func(_ context.Context, k *sandbox.Kept) (Answer, error) {
			if k.Layer.Version == "1" {
				return Answer{Bad, "the fault is there"}, nil
			}
			return Answer{Outcome: Good}, nil
		}
		return n, &packages.LockFile{Variants: map[string]packages.Lock{"old": a.lock(0), "default": a.lock(1)}}
	}
	some := drawArchive(rand.New(rand.NewPCG(1, 8)))
	same := &archive{versions: map[string][2]string{"p0": {"1", "1"}}}
	answered := &archive{versions: maps.Clone(some.versions), answers: true}
	answered.versions["p0"] = [2]string{"1", "1"}
	for says, test := range map[string]struct {
		of     *archive
		unread bool
		fails  error
	}{
		"does not have the lock of layer":     {of: some, unread: true},
		"the mirror has not":                  {of: some, fails: errors.New("the mirror has not")},
		"differ in more than which packages ": {of: same},
		"more than which packages they have":  {of: answered},
	} {
		n, locks := two(test.of)
		n.Then = func(string) Past {
			if test.unread {
				return Past{}
			}
			return Past{Locks: locks}
		}
		n.Box.Build.Make = func(context.Context, spec.Recipe, string, string, builder.Options) (*builder.Result, error) {
			return nil, test.fails
		}
		var said strings.Builder
		r, err := n.Find(t.Context(), Question{Good: "1", Cache: t.TempDir()}, func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) })
		if err != nil || len(r.Parts) != 1 || r.Parts[0].Name != compare.Layer || !strings.Contains(said.String(), "packages are not tried apart: ") || !strings.Contains(said.String(), says) {
			t.Errorf("%s: %+v, %v\n%s", says, r, err, said.String())
		}
	}
	builds := 0
	n, locks := two(some)
	n.Then = func(string) Past { return Past{Locks: locks} }
	n.Box.Build.Make = func(context.Context, spec.Recipe, string, string, builder.Options) (*builder.Result, error) {
		if builds++; builds > 2 {
			return nil, fmt.Errorf("write: %w", unix.ENOSPC)
		}
		return nil, nil
	}
	if r, err := n.Find(t.Context(), Question{Good: "1", Cache: t.TempDir()}, t.Logf); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("with a full disk: %+v, %v", r, err)
	}
}
