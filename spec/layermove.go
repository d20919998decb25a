// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ImageAccounts is the name of the image with a layer's accounts.
const ImageAccounts = "accounts"

// softRebootSince is the first release of systemd whose init goes on in another root.
const softRebootSince = 254

// LayerMove returns the class of going from one layer to another, and why it is not a
// lower one. Kernel arguments are an overlay's, see Effects.
func LayerMove(from, to *Layer) (class, why string) {
	if onlyAccounts(from, to) {
		return ClassLive, "only accounts differ: they are put over the running root"
	}
	return RootMove(from, to)
}

// RootMove is LayerMove for a node whose running root cannot have the other layer, as one
// with accounts of its own in the way.
func RootMove(from, to *Layer) (class, why string) {
	switch {
	case from.Arch != to.Arch:
		return ClassCold, "the architecture changes"
	case from.Kernel.Release != to.Kernel.Release:
		return ClassKexec, "the kernel changes"
	}
	const stacked = "the root is stacked from other images"
	if from.Kernel.Digest != to.Kernel.Digest {
		return ClassReboot, stacked + ", and the kernel is another build of the same release"
	}
	if !samePolicy(from, to) {
		return ClassReboot, stacked + ", and the AppArmor profiles of before would stay in the kernel"
	}
	for _, l := range []*Layer{from, to} {
		switch release, err := systemdRelease(l); {
		case err != nil:
			return ClassReboot, stacked + ", and " + err.Error()
		case release < softRebootSince:
			return ClassReboot, fmt.Sprintf(stacked+", and a layer has systemd %d, a soft-reboot needs %d", release, softRebootSince)
		}
	}
	return ClassSoftReboot, stacked + ", and the kernel goes on"
}

// samePolicy reports whether a kernel that has the profiles of one layer has those of the
// other.
func samePolicy(a, b *Layer) bool {
	if len(a.AppArmor.Profiles) == 0 && len(b.AppArmor.Profiles) == 0 {
		return true
	}
	compiled := func(l *Layer) string {
		for _, i := range l.Images {
			if i.Name == "policy" {
				return i.Digest
			}
		}
		return ""
	}
	return reflect.DeepEqual(a.AppArmor, b.AppArmor) && compiled(a) == compiled(b)
}

// onlyAccounts reports whether two layers are the same but for their accounts.
func onlyAccounts(a, b *Layer) bool {
	if a.Arch != b.Arch || a.Kernel != b.Kernel || a.Initrd != b.Initrd || len(a.Images) != len(b.Images) || a.Accounted() == nil ||
		!reflect.DeepEqual(a.AppArmor, b.AppArmor) || !slices.Equal(a.Features, b.Features) || !slices.Equal(a.Packages, b.Packages) {
		return false
	}
	for i, image := range a.Images {
		other := b.Images[i]
		if image.Name != other.Name || image.MediaType != other.MediaType || image.Name != ImageAccounts && image.Blob != other.Blob {
			return false
		}
	}
	return true
}

// Accounted is the image of a layer's accounts, nil where it has none, or several.
func (l *Layer) Accounted() *Image {
	is := func(i Image) bool { return i.Name == ImageAccounts }
	at := slices.IndexFunc(l.Images, is)
	if at < 0 || slices.ContainsFunc(l.Images[at+1:], is) {
		return nil
	}
	return &l.Images[at]
}

// systemdRelease returns the release of a layer's systemd, as its package says it.
func systemdRelease(l *Layer) (int, error) {
	i := slices.IndexFunc(l.Packages, func(p InstalledPackage) bool { return p.Name == "systemd" })
	if i < 0 {
		return 0, fmt.Errorf("the systemd of a layer is not known")
	}
	version := l.Packages[i].Version
	if _, rest, ok := strings.Cut(version, ":"); ok { // an epoch
		version = rest
	}
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(version)
	}
	release, err := strconv.Atoi(version[:end])
	if err != nil {
		return 0, fmt.Errorf("the systemd of a layer has no release: %q", l.Packages[i].Version)
	}
	return release, nil
}
