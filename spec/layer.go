// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Layer describes a built system layer: it is the config blob of the layer's
// manifest. Digests are "sha256:<hex>", sizes are bytes.
type Layer struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"` // KindLayer
	Fleet      string             `json:"fleet"`
	Version    string             `json:"version"`
	Variant    string             `json:"variant"`
	Recipe     string             `json:"recipe"` // sha256 of the encoded recipe
	Arch       string             `json:"arch"`
	Created    string             `json:"created"` // RFC 3339, SOURCE_DATE_EPOCH of the build
	Images     []Image            `json:"images"`  // bottom first
	Kernel     KernelBlob         `json:"kernel"`
	Initrd     Blob               `json:"initrd"`
	UEFI       *UEFI              `json:"uefi,omitempty"` // since 0.10.0: nil where the layer has not the package
	Packages   []InstalledPackage `json:"packages,omitempty"`
	Accounts   []Account          `json:"accounts,omitempty"`
	AppArmor   LoadedPolicy       `json:"apparmor,omitzero"`
	Features   []string           `json:"features,omitempty"` // what the layer's agent knows beyond 0.9.0, see Features; sorted

	// Roots are those of the images' hash trees (internal/verity), by the image's digest, 64
	// hex digits each.
	Roots map[string]string `json:"roots,omitempty"`

	Fast bool `json:"fast,omitempty"` // compressed weakly, for development: no image is as a build without it has it
}

// Blob names content of the same artifact. In the JSON of a type that embeds it, its
// two keys stand among the type's own, at the place of the field.
type Blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // bytes
}

// Image is one read-only file system in the layer.
type Image struct {
	Name      string `json:"name"` // base, packages, accounts, policy, agent
	MediaType string `json:"mediaType"`
	Blob
	Chunks *Blob `json:"chunks,omitempty"` // chunk index for deltas
}

// KernelBlob is the kernel that the images' modules belong to.
type KernelBlob struct {
	Release string `json:"release"` // uname -r
	Blob
}

// UEFI are systemd's programs for firmware, of the package systemd-boot-efi: what disks,
// CDs and unified kernel images begin with.
type UEFI struct {
	Stub    Blob `json:"stub"`    // systemd-stub(7): starts the kernel behind it
	Manager Blob `json:"manager"` // systemd-boot(7): chooses among loaders
}

// InstalledPackage describes one package as dpkg does.
type InstalledPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	SHA256  string `json:"sha256,omitempty"` // of the .deb, hex
}

// Account is one row of the ledger: a UID, once given, belongs to its name for ever.
// The states are of people (active, expired, purged) and of what packages make: a
// user (system) and a group (system-group, UID -1).
type Account struct {
	Name  string `json:"name"`
	UID   int    `json:"uid"`   // number of the user
	GID   int    `json:"gid"`   // number of the group
	State string `json:"state"` // active, expired, purged, system, system-group
}

// LoadedPolicy lists the compiled AppArmor profiles that the node loads.
type LoadedPolicy struct {
	Features string          `json:"features,omitempty"` // sha256 of the features file compiled against
	Profiles []LoadedProfile `json:"profiles,omitempty"`
}

// Modes returns the modes of the profiles, by name.
func (p LoadedPolicy) Modes() map[string]string {
	modes := map[string]string{}
	for _, one := range p.Profiles {
		modes[one.Name] = one.Mode
	}
	return modes
}

// LoadedProfile is one profile as the kernel will list it.
type LoadedProfile struct {
	Name string `json:"name"`
	Mode string `json:"mode"` // enforce or complain
	File string `json:"file"` // compiled file, absolute path in the layer
}

// kernelDefaults are on every command line that caisson writes, unless the site
// names the same parameter. See kernel-parameters.txt.
//
// panic=30: a kernel that panics before /init stays dead otherwise, with the last
// good generation on its disk. Only a start-over leads back to it; 30 seconds leave
// time to read why.
//
// What is not here, on purpose: oops=panic, softlockup_panic=1, hung_task_panic=1,
// nmi_watchdog=panic. They end a node over a fault that its workload may survive,
// and on a busy hypervisor, or with a slow disk, over no fault at all. A kernel that
// no longer schedules is ended by the hardware watchdog. A site that wants them puts
// them into its kernel arguments.
var kernelDefaults = []string{"panic=30"}

// KexecMarker is on the command line of a kernel that the loader entered by kexec.
const KexecMarker = "caisson.kexec=1"

// KernelLine returns the author's kernel arguments, followed by the defaults that
// the author did not name.
func KernelLine(args []string) []string {
	line := slices.Clone(args)
	for _, word := range kernelDefaults {
		name, _, _ := strings.Cut(word, "=")
		named := func(arg string) bool { return arg == name || strings.HasPrefix(arg, name+"=") }
		if !slices.ContainsFunc(args, named) {
			line = append(line, word)
		}
	}
	return line
}

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

// Recipe is everything that one variant of a system layer is made of: the image
// -time half of a site, already merged, with no reference to any node. Two nodes
// with equal recipes share a layer; [Encode] of a recipe is its identity.
type Recipe struct {
	Fleet    string   `json:"fleet"`
	Arch     string   `json:"arch"` // Debian's name: amd64, arm64
	Base     Base     `json:"base"`
	Kernel   string   `json:"kernel"`                 // package name
	Modules  []string `json:"modules,omitempty"`      // loader's modules: "network", "storage", or names; empty is both
	Programs bool     `json:"diskPrograms,omitempty"` // the loader has mke2fs and e2fsck
	Packages Packages `json:"packages"`
	Accounts Accounts `json:"accounts"`
	AppArmor AppArmor `json:"apparmor"`
	Perm     *Perm    `json:"perm,omitempty"` // of baked paths only
}

// Arches are the architectures that layers are made for, by Debian's names.
var Arches = []string{"amd64", "arm64"}

// Base is where the first files come from: exactly one of the three is set.
type Base struct {
	Debian *Debian `json:"debian,omitempty" site:","`
	OCI    string  `json:"oci,omitempty" doc:"OCI image, as REF@sha256:…"`
	Tar    string  `json:"tar,omitempty" doc:"tar archive, relative to the site's directory"`
}

// Debian is a base bootstrapped from an archive. An empty Mirror stands for the
// build host's own apt sources.
type Debian struct {
	Suite      string   `json:"suite" site:",required" doc:"Debian suite, for example trixie"`
	Components []string `json:"components" doc:"archive components; main when absent"`
	Mirror     string   `json:"mirror,omitempty" doc:"URL of the archive; the build host's own apt sources when absent"`
	Security   string   `json:"security,omitempty" doc:"URL of the security archive, beside mirror"`
	Snapshot   string   `json:"snapshot,omitempty" doc:"time of the archive's snapshot, as YYYYMMDDTHHMMSSZ"`
	Keyring    string   `json:"keyring,omitempty" doc:"file with the archive's keys; the suite's own keys when absent"`
	// since 0.10.0
	Documentation bool `json:"documentation,omitempty" doc:"keep man and info pages, documentation and translations; left out when absent"`
}

// Packages is the apt part, see reference of apt in docs/divingbell.md.
type Packages struct {
	Install []Package `json:"install,omitempty"`
	// never present in the layer
	Blacklist      []string     `json:"blacklist,omitempty" site:"blacklistpkgs" doc:"packages never in the layer; insecure ones when absent"`
	Whitelist      []string     `json:"whitelist,omitempty" site:"whitelistpkgs" doc:"packages that strict does not remove"`
	Upgrade        bool         `json:"upgrade,omitempty" site:","`
	AllowDowngrade bool         `json:"allowDowngrade,omitempty" site:"allow_downgrade"`
	Strict         bool         `json:"strict,omitempty" doc:"remove packages that were not requested"`
	Recommends     bool         `json:"recommends,omitempty" doc:"install recommended packages too"`
	Hold           []string     `json:"hold,omitempty" doc:"packages kept at their version"`
	Repositories   []Repository `json:"repositories,omitempty"`
	Exclusive      bool         `json:"exclusive,omitempty"` // only these repositories
}

// Package is one package to install.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// since 0.10.0, as a lock has the version: release that it comes from, with what it needs from there; not with Version
	From    string    `json:"from,omitempty"`
	Debconf []Debconf `json:"debconf,omitempty"`
}

// Debconf is one preseeded answer.
type Debconf struct {
	Question string `json:"question" site:",required"`
	Type     string `json:"type" site:"question_type,required"`
	Answer   string `json:"answer" site:",required"`
}

// Repository is one archive with its own key.
type Repository struct {
	ID            string   `json:"id"`
	URL           string   `json:"url" site:",required"`
	Distributions []string `json:"distributions" site:",required"`
	Components    []string `json:"components" doc:"required but for a flat repository, whose distributions end with a slash"`
	Subrepos      []string `json:"subrepos,omitempty" site:","`
	// armoured OpenPGP, becomes Signed-By
	Key string `json:"key,omitempty" site:"gpgkey,block" doc:"armoured OpenPGP key of this repository"`
}

// Accounts are the users that the layer carries.
type Accounts struct {
	Users        []User `json:"users,omitempty"`
	PurgeExpired bool   `json:"purgeExpired,omitempty"` // a user who left is purged instead of expired
	Builtin      string `json:"builtin,omitempty"`      // account expired once another verified login path exists
}

// User is one account. Nil Keys are Unmanaged: the file is left as it is.
type User struct {
	Name     string   `json:"name"`
	UID      int      `json:"uid,omitempty"` // 0: given by the ledger
	Sudo     bool     `json:"sudo,omitempty"`
	Password string   `json:"password,omitempty"` // crypt(5) hash, "*" or "!"; empty is "*"
	Keys     []string `json:"keys"`
	Groups   []string `json:"groups,omitempty"`
	Shell    string   `json:"shell,omitempty"` // empty is /bin/bash
}

// AppArmor is the set of profiles.
type AppArmor struct {
	Complain bool      `json:"complain,omitempty"`
	Profiles []Profile `json:"profiles,omitempty"`
}

// Profile is one profile file, its text verbatim.
type Profile struct {
	File string `json:"file"` // name below /etc/apparmor.d
	Text string `json:"text"`
}
