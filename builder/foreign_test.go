// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// tar packs the base tree, as somebody else's base.
func (i *installer) tar(dir string) string {
	i.t.Helper()
	file := filepath.Join(dir, "base.tar")
	if said, err := exec.Command("tar", "--create", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--directory", i.base, "--file", file, ".").CombinedOutput(); err != nil {
		i.t.Fatalf("tar: %v\n%s", err, said)
	}
	return file
}

// A base that somebody else made, as a tar and as an OCI image: what it has is
// taken as it is, accounts and profiles go on top, no package comes from anywhere.
func TestForeignBase(t *testing.T) {
	i := newInstaller(t)
	dir := t.TempDir()
	file := i.tar(dir)
	o := testOptions(t)
	o.SiteDir = dir
	recipe := testRecipe()
	recipe.Packages = spec.Packages{}
	recipe.Base = spec.Base{Tar: "base.tar"}
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	fromTar, err := Build(context.Background(), recipe, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	if l := fromTar.Layer; l.Kernel.Release == "" || len(l.Packages) < 100 || len(accounts.People(l.Accounts)) != 1 || l.Created < "2020" {
		t.Errorf("the layer is not whole: kernel %+v, %d packages, accounts %v, created %s", l.Kernel, len(l.Packages), l.Accounts, l.Created)
	}
	trees, _ := filepath.Glob(filepath.Join(sharedCache, "steps", "base-*", "tree"))
	for _, tree := range trees {
		if _, err := (&root.Root{Lowers: []string{tree}}).Lstat("/usr/bin/sudo"); err != nil {
			t.Errorf("%s: %v", tree, err)
		}
	}

	recipe.Base = spec.Base{OCI: "registry.example.org/base@" + digest.Of([]byte(dir))}
	asked := ""
	o.OpenOCI = func(_ context.Context, ref string) (io.ReadCloser, error) {
		asked = ref
		return os.Open(file)
	}
	fromOCI, err := Build(context.Background(), recipe, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	if asked != recipe.Base.OCI {
		t.Errorf("asked for %q", asked)
	}
	if a, b := fromTar.Layer.Images[0].Digest, fromOCI.Layer.Images[0].Digest; a != b {
		t.Errorf("the same tree by two ways is %s and %s", a, b)
	}

	for what, change := range map[string]func(*spec.Recipe){
		"no such file":  func(r *spec.Recipe) { r.Base = spec.Base{Tar: "none.tar"} },
		"no digest":     func(r *spec.Recipe) { r.Base = spec.Base{OCI: "registry.example.org/base:latest"} },
		"two bases":     func(r *spec.Recipe) { r.Base.Tar = "base.tar" },
		"no Debian":     func(r *spec.Recipe) { r.Base = spec.Base{Tar: "empty.tar"} },
		"a lacking one": func(r *spec.Recipe) { r.Base = spec.Base{Tar: "base.tar"}; r.Kernel = "linux-image-none" },
	} {
		if err := os.WriteFile(filepath.Join(dir, "empty.tar"), make([]byte, 10240), 0o644); err != nil {
			t.Fatal(err)
		}
		bad := recipe
		change(&bad)
		if _, err := Build(context.Background(), bad, "default", "1", o); err == nil {
			t.Errorf("%s: built", what)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
}
