// SPDX-License-Identifier: Apache-2.0

package root

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

func kernel(t *testing.T, profiles string) string {
	t.Helper()
	old := appArmor
	appArmor = t.TempDir()
	t.Cleanup(func() { appArmor = old })
	for name, text := range map[string]string{"profiles": profiles, ".replace": ""} {
		if err := os.WriteFile(filepath.Join(appArmor, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return appArmor
}

var policy = spec.LoadedPolicy{Profiles: []spec.LoadedProfile{
	{Name: "web", Mode: "enforce", File: "/p/web"},
	{Name: "web//child", Mode: "enforce", File: "/p/web"},
	{Name: "name with (blank)", Mode: "complain", File: "/p/other"},
}}

func TestCheckProfiles(t *testing.T) {
	kernel(t, "web (enforce)\nname with (blank) (enforce)\nforeign (enforce)\n")
	got, err := CheckProfiles(policy)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Drift{
		{Item: "apparmor", Key: "web//child", To: "enforce", Action: spec.ActionAdd},
		{Item: "apparmor", Key: "name with (blank)", From: "enforce", To: "complain", Action: spec.ActionChange},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoad(t *testing.T) {
	dir := kernel(t, "")
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "p"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "p/web"), []byte("binary"), 0o644); err != nil {
		t.Fatal(err)
	}
	one := compiledAgainst(t, root, "", policy.Profiles[:2]...)
	if n, err := LoadProfiles(root, one); n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, ".replace")); string(got) != "binary" {
		t.Errorf("the kernel was given %q", got)
	}
	if _, err := LoadProfiles(root, compiledAgainst(t, root, "", policy.Profiles...)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file was loaded: %v", err)
	}
	appArmor = filepath.Join(dir, "none")
	if _, err := LoadProfiles(root, one); refusal.Of(err) != refusal.AppArmor {
		t.Errorf("on a kernel without AppArmor: %v", err)
	}
}
