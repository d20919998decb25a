// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"slices"
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
	UEFI       *UEFI              `json:"uefi,omitempty"` // nil where the layer has not the package
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
