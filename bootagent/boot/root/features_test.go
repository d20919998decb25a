// SPDX-License-Identifier: Apache-2.0

package root

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// compiledAgainst puts the features into the layer's root, as the builder does.
func compiledAgainst(t *testing.T, root, features string, profiles ...spec.LoadedProfile) spec.LoadedPolicy {
	t.Helper()
	dir := filepath.Join(root, paths.AppArmorDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "features"), []byte(features), 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(features))
	return spec.LoadedPolicy{Features: "sha256:" + hex.EncodeToString(sum[:]), Profiles: profiles}
}

func withFeatures(t *testing.T) {
	t.Helper()
	dir := kernel(t, "")
	for name, text := range map[string]string{
		"capability": "0xffffff\n", "caps/mask": "chown kill\n", "domain/version": "1.2\n", "namespaces/pivot_root": "no\n", "policy/versions/v9": "yes\n",
	} {
		path := filepath.Join(dir, "features", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLacks(t *testing.T) {
	withFeatures(t)
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"capability {0xffffff\n}\ncaps {mask {chown kill\n}\n}\npolicy {versions {v9 {yes\n}\n}\n}\n", nil},
		{"capability {0x1\n}\n", nil},
		{"capability {0x1000000\n}\n", []string{"capability 0x1000000"}},
		{"caps {mask {chown bpf\n}\n}\n", []string{"caps/mask bpf"}},
		{"domain {version {1.1\n}\n}\n", nil},
		{"domain {version {1.3\n}\n}\n", []string{"domain/version 1.3"}},
		{"namespaces {pivot_root {no\n}\n}\n", nil},
		{"namespaces {pivot_root {yes\n}\n}\n", []string{"namespaces/pivot_root yes"}},
		{"io_uring {mask {sqpoll\n}\n}\n", []string{"io_uring/mask sqpoll"}},
		{".. {profiles {x\n}\n}\n", []string{"../profiles x"}},
	} {
		got, err := lacks(test.text)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", test.text, err, diff)
		}
	}
	for _, broken := range []string{"caps {mask {chown\n}\n", "}\n"} {
		if got, err := lacks(broken); refusal.Of(err) != refusal.Layer {
			t.Errorf("%q: %v, %v", broken, got, err)
		}
	}
}

func TestPolicyForAnotherKernelIsNotLoaded(t *testing.T) {
	withFeatures(t)
	root := t.TempDir()
	web := spec.LoadedProfile{Name: "web", Mode: "enforce", File: "/web"}
	if err := os.WriteFile(filepath.Join(root, "web"), []byte("binary"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadProfiles(root, compiledAgainst(t, root, "io_uring {mask {sqpoll\n}\n}\n", web)); refusal.Of(err) != refusal.AppArmor {
		t.Errorf("%v, want apparmor", err)
	}
	other := compiledAgainst(t, root, "capability {0xffffff\n}\n", web)
	other.Features = "sha256:00"
	if _, err := LoadProfiles(root, other); refusal.Of(err) != refusal.Layer {
		t.Errorf("features that the description does not name: %v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(appArmor, ".replace")); len(got) > 0 {
		t.Errorf("the kernel was given %q", got)
	}
	if n, err := LoadProfiles(root, compiledAgainst(t, root, "capability {0xffffff\n}\n", web)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
