// SPDX-License-Identifier: Apache-2.0

package spec

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
	Suite         string   `json:"suite" site:",required" doc:"Debian suite, for example trixie"`
	Components    []string `json:"components" doc:"archive components; main when absent"`
	Mirror        string   `json:"mirror,omitempty" doc:"URL of the archive; the build host's own apt sources when absent"`
	Security      string   `json:"security,omitempty" doc:"URL of the security archive, beside mirror"`
	Snapshot      string   `json:"snapshot,omitempty" doc:"time of the archive's snapshot, as YYYYMMDDTHHMMSSZ"`
	Keyring       string   `json:"keyring,omitempty" doc:"file with the archive's keys; the suite's own keys when absent"`
	Documentation bool     `json:"documentation,omitempty" doc:"keep man pages, documentation, info files and translations; left out when absent"`
}

// Packages is the apt part, see reference of apt in docs/divingbell.md.
type Packages struct {
	Install []Package `json:"install,omitempty"`
	// never present in the layer
	Blacklist      []string     `json:"blacklist,omitempty" site:"blacklistpkgs" doc:"packages that are never in the layer; a few insecure packages when absent"`
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
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"`
	From    string    `json:"from,omitempty"` // release that it comes from, with what it needs from there; not with Version
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
