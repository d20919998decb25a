// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

const file = `{
 "openssl": {"CVE-2024-0001": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "3.0.14-1~deb12u1", "urgency": "high"}}}},
 "libssl3": {"CVE-2024-0002": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "3.0.14-1~deb12u1", "urgency": "low"}}}},
 "nginx": {"CVE-2024-0003": {"releases": {"bookworm": {"status": "open", "urgency": "high"}}}},
 "linux": {"CVE-2024-0004": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "6.1.128-1", "urgency": "medium"}}}}}`

var (
	adviceRelease = apt.Release{Suite: "bookworm", Origin: "Debian", Archive: "debian"}
	third         = apt.Release{Suite: "bookworm", Origin: "nginx", Archive: "repository:nginx"}
	oldSSL        = apt.Deb{Name: "libssl3", Version: "3.0.11-1+b1", SHA256: "a1", Archive: "debian", Source: "openssl", SourceVersion: "3.0.11-1"}
	newSSL        = apt.Deb{Name: "libssl3", Version: "3.0.15-1", SHA256: "a2", Archive: "debian", Source: "openssl"}
	nginx         = apt.Deb{Name: "nginx", Version: "1.27-1", SHA256: "a3", Archive: "repository:nginx", Source: "nginx"}
	kernel        = apt.Deb{Name: "linux-image-6.1.0-31-amd64", Version: "6.1.128-1", SHA256: "a4", Archive: "debian", Source: "linux-signed-amd64", SourceVersion: "6.1.128+1"}
)

func lock(debs ...apt.Deb) packages.Lock {
	return packages.Lock{Releases: []apt.Release{adviceRelease, third}, Packages: debs}
}

func open(t *testing.T, l *packages.LockFile) *Advice {
	t.Helper()
	name := filepath.Join(t.TempDir(), "json")
	if err := os.WriteFile(name, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	a, err := OpenAdvice(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ids(list []advisory.Advisory) (all []string) {
	for _, a := range list {
		all = append(all, a.ID)
	}
	return all
}

// A lock that takes an update closes its advisories, by the source; packages of other archives are not compared.
func TestLocks(t *testing.T) {
	a := open(t, nil)
	c := a.Locks(lock(oldSSL), lock(newSSL, nginx))
	if !slices.Equal(ids(c.Closed), []string{"CVE-2024-0001"}) || len(c.Opened)+len(c.Open)+len(c.ByName) > 0 {
		t.Errorf("%+v", c)
	}
	bare := oldSSL
	bare.Source, bare.SourceVersion = "", ""
	if c := a.Locks(lock(bare), lock(bare)); !slices.Equal(c.ByName, []string{"libssl3"}) || !slices.Equal(ids(c.Open), []string{"CVE-2024-0002"}) {
		t.Errorf("a lock of before: %+v", c)
	}
	if c := a.Locks(lock(bare), lock(newSSL)); len(c.ByName) > 0 || !slices.Equal(ids(c.Closed), []string{"CVE-2024-0001"}) {
		t.Errorf("a lock of before, and one with sources: %+v", c)
	}
	replaced := lock(newSSL)
	replaced.Base = []apt.Deb{oldSSL}
	if c := a.Locks(lock(oldSSL), replaced); len(c.Closed) != 1 {
		t.Errorf("a package of the base that a newer one takes the place of: %+v", c)
	}
	trixie := lock(newSSL)
	trixie.Releases = []apt.Release{{Suite: "trixie", Origin: "Debian"}}
	if c := a.Locks(lock(oldSSL), trixie); !strings.Contains(c.Why, `none of "trixie"`) {
		t.Errorf("another release: %+v", c)
	}
	if c := a.Locks(packages.Lock{}, lock(oldSSL)); len(c.Opened) > 0 || !slices.Equal(ids(c.Open), []string{"CVE-2024-0001"}) {
		t.Errorf("a first lock: %+v", c)
	}
	if c := a.Locks(lock(oldSSL), packages.Lock{}); c.Why == "" {
		t.Errorf("no release: %+v", c)
	}
}

// Packages of layers have their sources from the lock, also under another version.
func TestLayers(t *testing.T) {
	v := site.Variant{Name: "default", Recipe: spec.Recipe{Base: spec.Base{Debian: &spec.Debian{Suite: "bookworm"}}}}
	layer := func(list ...spec.InstalledPackage) *plan.Layer {
		return &plan.Layer{Digest: "sha256:1", Layer: spec.Layer{Packages: list}}
	}
	before := layer(spec.InstalledPackage{Name: "libssl3", Version: "3.0.11-1+b1"}, spec.InstalledPackage{Name: "linux-image-6.1.0-28-amd64", Version: "6.1.119-1"}, spec.InstalledPackage{Name: "nginx", Version: "1.25-1"})
	after := layer(spec.InstalledPackage{Name: "libssl3", Version: "3.0.15-1", SHA256: "a2"}, spec.InstalledPackage{Name: "linux-image-6.1.0-31-amd64", Version: "6.1.128-1", SHA256: "a4"})
	a := open(t, &packages.LockFile{Variants: map[string]packages.Lock{"default": lock(newSSL, nginx, kernel)}})
	c := a.Layers(v, before, after)
	if !slices.Equal(ids(c.Closed), []string{"CVE-2024-0001", "CVE-2024-0004"}) || len(c.Open) > 0 || c.From != "sha256:1" || !slices.Equal(c.ByName, []string{"linux-image-6.1.0-28-amd64"}) {
		t.Errorf("%+v", c)
	}
	if c := a.Layers(v, before, nil); !strings.Contains(c.Why, "not of its packages") {
		t.Errorf("to be built, by another lock: %+v", c)
	}
	if c := a.Layers(v, nil, after); c.Why == "" {
		t.Errorf("the layer before is gone: %+v", c)
	}
	if c := open(t, nil).Layers(v, before, after); !slices.Contains(c.ByName, "libssl3") {
		t.Errorf("without a lock: %+v", c)
	}
	foreign := v
	foreign.Recipe.Base = spec.Base{Tar: "x.tar"}
	if c := a.Layers(foreign, before, nil); !strings.Contains(c.Why, "in its base") {
		t.Errorf("to be built on a base of its own: %+v", c)
	}
	a.lock.Variants["default"] = packages.Lock{Packages: []apt.Deb{newSSL}}
	if c := a.Layers(foreign, before, after); c.Why != "it is not known of which release of Debian the packages are" {
		t.Errorf("a base of its own: %+v", c)
	}
}
