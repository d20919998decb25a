// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"slices"
	"testing"
)

// folders are the floors of the module, from the ground up.
var folders = []Floor{
	{[]string{"internal", "packaging/systemd"}, "tools for files, text, networks and tests, and units: they know no document of caisson"},
	{[]string{"spec", "layers"}, "documents between programs, and images on disks: bytes in, values out, wherever they travel"},
	{[]string{"oci"}, "artifacts, signatures and registries carry documents; refusals of what they carry are named by the contract"},
	{[]string{"oci/trust"}, "what may be believed is decided of signed artifacts"},
	{[]string{"builder", "bootagent"}, "what makes a layer and what runs one share the contract and nothing else"},
	{[]string{"builder/release"}, "a release is built, then signed and pushed"},
	{[]string{"fleet", "media/netboot", "media"}, "fleets and first boots are made of releases"},
	{[]string{"sandbox"}, "a node is tried with a layer, an overlay and boot files as it would get them"},
	{[]string{"cmd", "packaging/hack", "packaging"}, "programs choose what is linked with what"},
	{[]string{"test"}, "suites look at everything; no program links them"},
}

// TestFloors: no import runs up, and none runs along a floor.
func TestFloors(t *testing.T) {
	for _, v := range Upward(folders, List(t, "./...")) {
		t.Error(v)
	}
}

// TestUpwardIsSeen keeps TestFloors from passing blindly.
func TestUpwardIsSeen(t *testing.T) {
	p := func(name string, imports ...string) Package {
		for i := range imports {
			imports[i] = Module + "/" + imports[i]
		}
		return Package{ImportPath: Module + "/" + name, Imports: imports}
	}
	floors := []Floor{{[]string{"ground"}, "w"}, {[]string{"left", "right"}, "w"}}
	for _, c := range []struct {
		all  []Package
		want []string
	}{
		{[]Package{p("ground/a", "ground/b"), p("left", "ground"), p("right/x", "ground/a")}, nil},
		{[]Package{p("ground/a", "left"), p("left"), p("right")}, []string{"ground/a imports left, which is not below it: left, right: w"}},
		{[]Package{p("ground"), p("left", "right/x"), p("right/x")}, []string{"left imports right/x, which is not below it: left, right: w"}},
		{[]Package{p("ground"), p("left"), p("right"), p("cellar")}, []string{"cellar is on no floor"}},
		{[]Package{p("ground"), p("left")}, []string{"right has no package"}},
	} {
		if got := Upward(floors, c.all); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.all, got, c.want)
		}
	}
	if got := Upward([]Floor{{Folders: []string{"a"}}}, []Package{p("a")}); len(got) != 1 {
		t.Errorf("a floor without a reason: %q", got)
	}
}
