// SPDX-License-Identifier: Apache-2.0

package spec

import "testing"

func TestLayerMove(t *testing.T) {
	layer := func(change func(*Layer)) *Layer {
		l := &Layer{Arch: "amd64", Kernel: KernelBlob{Release: "6.12.48", Blob: Blob{Digest: "sha256:1"}},
			Packages: []InstalledPackage{{Name: "systemd-sysv", Version: "1"}, {Name: "systemd", Version: "257.8-1~deb13u2"}}}
		change(l)
		return l
	}
	systemd := func(version string) func(*Layer) { return func(l *Layer) { l.Packages[1].Version = version } }
	same := layer(func(*Layer) {})
	for name, c := range map[string]struct {
		change func(*Layer)
		class  string
	}{
		"other packages":        {func(l *Layer) { l.Packages = append(l.Packages, InstalledPackage{Name: "nginx"}) }, ClassSoftReboot},
		"the first that can":    {systemd("254~rc1-3"), ClassSoftReboot},
		"an epoch":              {systemd("1:254"), ClassSoftReboot},
		"the last that cannot":  {systemd("253.99-1"), ClassReboot},
		"a small epoch":         {systemd("300:252.1"), ClassReboot},
		"no release":            {systemd("~git"), ClassReboot},
		"packages are not said": {func(l *Layer) { l.Packages = nil }, ClassReboot},
		"a rebuilt kernel":      {func(l *Layer) { l.Kernel.Digest = "sha256:2" }, ClassReboot},
		"a profile that came":   {func(l *Layer) { l.AppArmor.Profiles = []LoadedProfile{{Name: "q"}} }, ClassReboot},
		"another kernel":        {func(l *Layer) { l.Kernel.Release = "6.12.57" }, ClassKexec},
		"another architecture":  {func(l *Layer) { l.Arch = "arm64"; l.Kernel.Release = "6.12.57" }, ClassCold},
	} {
		for _, pair := range [][2]*Layer{{same, layer(c.change)}, {layer(c.change), same}} { // whichever is the next one
			if class, why := LayerMove(pair[0], pair[1]); class != c.class || why == "" {
				t.Errorf("%s: %s, %q; want %s", name, class, why, c.class)
			}
		}
	}
	for digest, class := range map[string]string{"sha256:1": ClassSoftReboot, "sha256:2": ClassReboot} {
		policy := func(digest string) *Layer {
			return layer(func(l *Layer) {
				l.AppArmor.Profiles = []LoadedProfile{{Name: "q"}}
				l.Images = []Image{{Name: "base"}, {Name: "policy", Blob: Blob{Digest: digest}}}
			})
		}
		if got, why := LayerMove(policy("sha256:1"), policy(digest)); got != class {
			t.Errorf("profiles of %s: %s, %s; want %s", digest, got, why, class)
		}
	}
	if Live(ClassSoftReboot) {
		t.Error("a soft-reboot is another root")
	}
}

// What differs in nothing but accounts needs no other root.
func TestOnlyAccounts(t *testing.T) {
	layer := func(change func(*Layer)) *Layer {
		l := &Layer{Version: "1", Recipe: "a", Arch: "amd64", Kernel: KernelBlob{Release: "6.12", Blob: Blob{Digest: "sha256:k"}}, Initrd: Blob{Digest: "sha256:i"},
			Images: []Image{{Name: "base", Blob: Blob{Digest: "sha256:b"}}, {Name: "packages", Blob: Blob{Digest: "sha256:p"}}, {Name: ImageAccounts, Blob: Blob{Digest: "sha256:1"}},
				{Name: "policy", Blob: Blob{Digest: "sha256:y"}}, {Name: "agent", Blob: Blob{Digest: "sha256:a"}}},
			Packages: []InstalledPackage{{Name: "systemd", Version: "257"}}, Accounts: []Account{{Name: "ann"}}, AppArmor: LoadedPolicy{Features: "f"}, Features: []string{"a"}}
		change(l)
		return l
	}
	same := layer(func(*Layer) {})
	for name, c := range map[string]struct {
		change func(*Layer)
		live   bool
	}{
		"nothing":         {func(*Layer) {}, true},
		"accounts":        {func(l *Layer) { l.Images[2].Digest, l.Images[2].Size = "sha256:2", 7 }, true},
		"what it is from": {func(l *Layer) { l.Version, l.Recipe, l.Created, l.Accounts = "2", "b", "now", nil }, true},
		"base":            {func(l *Layer) { l.Images[0].Digest = "sha256:2" }, false},
		"packages":        {func(l *Layer) { l.Images[1].Digest = "sha256:2" }, false},
		"policy":          {func(l *Layer) { l.Images[3].Digest = "sha256:2" }, false},
		"agent":           {func(l *Layer) { l.Images[4].Digest = "sha256:2" }, false},
		"one more image":  {func(l *Layer) { l.Images = append(l.Images, Image{Name: "more"}) }, false},
		"another order":   {func(l *Layer) { l.Images[2], l.Images[3] = l.Images[3], l.Images[2] }, false},
		"another form":    {func(l *Layer) { l.Images[2].MediaType = "other" }, false},
		"no accounts":     {func(l *Layer) { l.Images = append(l.Images[:2:2], l.Images[3:]...) }, false},
		"kernel":          {func(l *Layer) { l.Kernel.Digest = "sha256:2" }, false},
		"initrd":          {func(l *Layer) { l.Initrd.Digest = "sha256:2" }, false},
		"apparmor":        {func(l *Layer) { l.AppArmor.Features = "g" }, false},
		"features":        {func(l *Layer) { l.Features = l.Features[1:] }, false},
		"installed":       {func(l *Layer) { l.Packages = nil }, false},
		"architecture":    {func(l *Layer) { l.Arch = "arm64" }, false},
	} {
		for _, pair := range [][2]*Layer{{same, layer(c.change)}, {layer(c.change), same}} {
			if class, why := LayerMove(pair[0], pair[1]); (class == ClassLive) != c.live || why == "" {
				t.Errorf("%s: %s, %q; want live: %v", name, class, why, c.live)
			}
		}
	}
	twice := layer(func(l *Layer) { l.Images[1].Name = ImageAccounts })
	if class, _ := LayerMove(twice, twice); class == ClassLive || twice.Accounted() != nil {
		t.Error("two images of accounts")
	}
}
