// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongVersions builds two layers, and of their locks layers between the two. A package without what it needs is
// refused by apt; what has no lock, or differs in more than packages, is not mixed.
func TestLongVersions(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "unsquashfs", "apt-get")
	agent := filepath.Join(t.TempDir(), "caisson-agent")
	if err := os.WriteFile(agent, []byte("\x7fELF\x02\x01\x01"+strings.Repeat("\x00", 9)+"\x02\x00\x3e\x00\x01"+strings.Repeat("\x00", 43)), 0o755); err != nil {
		t.Fatal(err)
	}
	cache := cmp.Or(os.Getenv("CAISSON_TEST_CACHE"), t.TempDir()) // kept, for development
	o := builder.Options{CacheDir: cache, SiteDir: t.TempDir(), Agent: agent, Fast: true}
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	build := func(suite string, names ...string) (Layer, *packages.LockFile) {
		t.Helper()
		recipe := spec.Recipe{Fleet: "test", Arch: "amd64", Kernel: "linux-image-cloud-amd64", Base: spec.Base{Debian: &spec.Debian{Suite: suite, Components: []string{"main"}}},
			Accounts: spec.Accounts{Users: []spec.User{{Name: "alice"}}}}
		for _, name := range names {
			recipe.Packages.Install = append(recipe.Packages.Install, spec.Package{Name: name})
		}
		o := o
		var err error
		if o.Ledger, err = builder.Settle([]spec.Recipe{recipe}, nil); err != nil {
			t.Fatal(err)
		}
		made, err := builder.Build(t.Context(), recipe, "default", "1", o)
		if err != nil {
			t.Fatal(err)
		}
		d, err := (&Pusher{Registry: r}).Push(t.Context(), made, suite)
		if err != nil {
			t.Fatal(err)
		}
		l, err := Read(t.Context(), r, d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		return l, &packages.LockFile{Variants: map[string]packages.Lock{"default": made.Lock}}
	}
	good, goods := build("trixie", "tree")
	bad, bads := build("trixie", "pv", "jq")
	b := Build{Options: o}
	b.Options.Agent = "" // a layer has its own
	if _, err := b.Versions(t.Context(), t.TempDir(), good, bad, [2]*packages.LockFile{goods, nil}); err == nil || !strings.Contains(err.Error(), "does not have the lock") {
		t.Errorf("without a lock: %v", err)
	}
	if _, err := b.Versions(t.Context(), t.TempDir(), good, bad, [2]*packages.LockFile{goods, goods}); err == nil || !strings.Contains(err.Error(), "does not have the lock") {
		t.Errorf("with the lock of the other: %v", err)
	}
	v, err := b.Versions(t.Context(), t.TempDir(), good, bad, [2]*packages.LockFile{goods, bads})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"jq", "libjq1"}; !slices.Equal(v.Names["jq"], want) || len(v.Names["pv"]) != 1 || len(v.Names["tree"]) != 1 || v.Names["libonig"] == nil {
		t.Errorf("%v", v.Names)
	}
	has := func(l Layer, name string) bool {
		return slices.ContainsFunc(l.Packages, func(p spec.InstalledPackage) bool { return p.Name == name })
	}
	l, err := v.Make(t.Context(), []string{"pv"}, good)
	if err != nil {
		t.Fatal(err)
	}
	if !has(l, "pv") || !has(l, "tree") || has(l, "jq") || l.Images[0].Digest != good.Images[0].Digest {
		t.Errorf("with pv: %+v", l.Images)
	}
	if l, err = v.Make(t.Context(), []string{"tree", "jq", "libjq1", "libonig5"}, good); err != nil || has(l, "tree") || !has(l, "jq") || has(l, "pv") {
		t.Errorf("with jq, and without tree: %v", err)
	}
	for lacks, some := range map[string][]string{"libonig5": {"jq", "libjq1"}, "nothing needs it": {"libonig5"}} {
		if _, err := v.Make(t.Context(), some, good); err == nil || !strings.Contains(err.Error(), lacks) {
			t.Errorf("%q alone: %v", some, err)
		}
	}
}
