// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// Words of a recipe end in command lines, lists and scripts that run as root.
func TestCheckRecipe(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *spec.Recipe)
		want   string
	}{
		{"good", func(*spec.Recipe) {}, ""},
		{"two bases", func(r *spec.Recipe) { r.Base.Tar = "x.tar" }, "exactly one"},
		{"no kernel", func(r *spec.Recipe) { r.Kernel = "" }, "needs a kernel"},
		{"an option as a kernel", func(r *spec.Recipe) { r.Kernel = "-oDPkg::Pre-Invoke::=id" }, "layer.kernel.package"},
		{"a pattern as a kernel", func(r *spec.Recipe) { r.Kernel = "linux.*" }, "layer.kernel.package"},
		{"another machine", func(r *spec.Recipe) { r.Arch = "amd64,i386" }, "layer.arch"},
		{"an option as a package", func(r *spec.Recipe) { r.Packages.Install = []spec.Package{{Name: "--allow-unauthenticated"}} }, "not the name of a package"},
		{"an option as a held package", func(r *spec.Recipe) { r.Packages.Hold = []string{"-x"} }, "not the name of a package"},
		{"a package that is to go away by pattern", func(r *spec.Recipe) { r.Packages.Blacklist = []string{"lib*"} }, "not the name of a package"},
		{"a version that is two words", func(r *spec.Recipe) { r.Packages.Install = []spec.Package{{Name: "tree", Version: "1 -o x"}} }, "not a package version"},
		{"a repository with a second line", func(r *spec.Recipe) {
			r.Packages.Repositories = []spec.Repository{{ID: "a", URL: "http://x/ y\ndeb [trusted=yes] http://z", Distributions: []string{"d"}}}
		}, "not the URL"},
		{"a suite with a second line", func(r *spec.Recipe) { r.Base.Debian.Suite = "trixie\ndeb" }, "cannot be in a list"},
		{"a profile beside the others", func(r *spec.Recipe) { r.AppArmor.Profiles = []spec.Profile{{File: "../rc.local"}} }, "../rc.local"},
		{"a user that is an option", func(r *spec.Recipe) { r.Accounts.Users = []spec.User{{Name: "-rf"}} }, "-rf"},
		{"an owner that is an option", func(r *spec.Recipe) {
			r.Perm = &spec.Perm{Paths: []spec.PermPath{{Path: "/x", Owner: "--from=x", Mode: "0600"}}}
		}, "--from"},
	} {
		r := testRecipe()
		c.change(&r)
		if err := Check(r); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
