// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// A change of the packages that touches neither profiles nor modules makes one
// image, and the steps that are not made again hold what they would have made.
func TestOnePackageMore(t *testing.T) {
	o := testOptions(t)
	state := map[string]string{}
	o.Progress = func(e Event) {
		if e.State == "cached" || e.State == "done" {
			state[e.Step] = e.State
		}
	}
	recipe := testRecipe()
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	build := func() map[string]Blob {
		t.Helper()
		r, err := Build(context.Background(), recipe, "default", "1", o)
		if err != nil {
			t.Fatal(err)
		}
		blobs := map[string]Blob{}
		for _, b := range r.Blobs {
			blobs[b.Title] = b
		}
		return blobs
	}
	before := build()
	fresh := fmt.Sprint(time.Now().UnixNano()) // which no cache has
	recipe.Packages.Install = append(recipe.Packages.Install, spec.Package{Name: "lsof", Debconf: []spec.Debconf{{Question: "lsof/" + fresh, Type: "string", Answer: fresh}}})
	after := build()
	for step, want := range map[string]string{stepBase: "cached", stepPackages: "done", stepPolicy: "cached", stepBoot: "cached", stepAgent: "cached"} {
		if state[step] != want {
			t.Errorf("step %s was %s, want %s", step, state[step], want)
		}
	}
	if after["packages"].Digest == before["packages"].Digest || after["policy"].Digest != before["policy"].Digest {
		t.Errorf("packages %s after %s, policy %s after %s", after["packages"].Digest, before["packages"].Digest, after["policy"].Digest, before["policy"].Digest)
	}
	for _, title := range []string{"policy", "initrd"} {
		if err := os.RemoveAll(filepath.Dir(after[title].Path)); err != nil {
			t.Fatal(err)
		}
	}
	again := build()
	for step, title := range map[string]string{stepPolicy: "policy", stepBoot: "initrd"} {
		if state[step] != "done" || again[title].Digest != after[title].Digest {
			t.Errorf("step %s was %s, and made %s, not %s", step, state[step], again[title].Digest, after[title].Digest)
		}
	}
}
