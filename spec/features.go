// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// feature is something that came after 0.9.0 and that a reader must know: an overlay that
// uses it is not applied, and a site.cpio that uses it not booted from, by an agent that
// does not know it.
type feature struct {
	name   string                // for good: what it stands for never changes
	used   func(*Overlay) bool   // nil: by no overlay
	loaded func(*Bootstrap) bool // used by a site.cpio; nil: by none
	drop   func(*Bootstrap)      // takes it out, for a reader that does not know it; set where loaded is
}

// features is the one table, sorted by name. Loaders, layers and publishers of
// different releases meet: the layer's description lists what its agent knows,
// the overlay what it needs, and publish compares the two before it signs.
//
// It lacks what 0.9.0 has: every agent knows what 0.9.0 has, which also holds for what a loader
// leaves to the layer's agent, as the end of a boot's deadline. A later release adds a row
// for each key, and for each word of a known key, that an agent must not pass over, and one
// that nothing uses for what publishers or loaders must know of an agent.
var features = []feature{
	{name: BootNetworkFeature, loaded: func(b *Bootstrap) bool { return len(b.Network)+len(b.Nodes) > 0 },
		drop: func(b *Bootstrap) { b.Network, b.Nodes = nil, nil }},
	{name: KeyChainFeature, loaded: func(b *Bootstrap) bool { return b.Chain != nil }, drop: func(b *Bootstrap) { b.Chain = nil }},
	{name: RescueFeature},
	{name: SecretsFeature, used: func(o *Overlay) bool { return len(o.Secrets) > 0 || o.Items.refersToSecrets() }},
}

// BootNetworkFeature is a loader that reaches the registry as site.cpio says: an older one
// asks by DHCP on each card whatever stands there, which may lead it to another network.
const BootNetworkFeature = "boot-network"

// KeyChainFeature is an agent, and a loader, that follows fleet:keys.
const KeyChainFeature = "key-chain"

// RescueFeature is an agent that obeys a [Rescue].
const RescueFeature = "rescue"

// SecretsFeature is an agent that opens secrets: another would write empty files, start
// scripts without what they need, and leave accounts without their passwords.
const SecretsFeature = "secrets"

// Features returns the names of what this release's agent knows beyond 0.9.0, for a
// layer's description.
func Features() (names []string) {
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

// SetNeeds makes o say which features it uses. Those that a later release said of it, and
// that this one does not know, stay. The compiler calls it last.
func (o *Overlay) SetNeeds() {
	o.Needs = needs(o.Needs, func(f feature) bool { return f.used != nil && f.used(o) })
}

// SetNeeds is that of an overlay. A writer of a site.cpio calls it last.
func (b *Bootstrap) SetNeeds() {
	b.Needs = needs(b.Needs, func(f feature) bool { return f.loaded != nil && f.loaded(b) })
}

// Without returns b as a reader takes it that knows these features: a loader hands it to the
// agent, or the loader, of an earlier release.
func (b Bootstrap) Without(known []string) Bootstrap {
	for _, f := range features {
		if f.drop != nil && !slices.Contains(known, f.name) {
			f.drop(&b)
		}
	}
	b.SetNeeds()
	return b
}

func needs(said []string, uses func(feature) bool) []string {
	list := Missing(said, Features())
	for _, f := range features {
		if uses(f) {
			list = append(list, f.name)
		}
	}
	slices.Sort(list)
	return list
}

// Missing returns the needs that known lacks, nil when all are there.
func Missing(needs, known []string) (missing []string) {
	for _, n := range needs {
		if !slices.Contains(known, n) {
			missing = append(missing, n)
		}
	}
	return missing
}

// lack names what a layer lacks for an overlay, or a release for a document.
type lack struct{ text, hint string }

func (l lack) Error() string { return l.text }

// Hint says how to mend it.
func (l lack) Hint() string { return l.hint }

// everywhere are the users of Debian's base-passwd, which no ledger lists.
var everywhere = []string{"root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp",
	"proxy", "www-data", "backup", "list", "irc", "_apt", "nobody"}

// Suits returns an error where a layer lacks what an overlay needs, nil when it has all:
// the rule for the layer that the overlay names, and for each other one on which it may
// be applied.
func (l *Layer) Suits(o *Overlay) error {
	return errors.Join(Knows(o, l.Features), l.serves(o))
}

// Knows wants the features of an agent to be those that an overlay uses.
func Knows(o *Overlay, features []string) error {
	if missing := Missing(o.Needs, features); missing != nil {
		return lack{"its agent does not know " + strings.Join(missing, ", "), "build the layer with this release, or publish without them"}
	}
	return nil
}

// Boots wants the features of a layer's loader to be those that a site.cpio uses.
func (l *Layer) Boots(b *Bootstrap) error {
	if missing := Missing(b.Needs, l.Features); missing != nil {
		return lack{"its loader does not know " + strings.Join(missing, ", "), "build the layer with this release, or take that out of the site"}
	}
	return nil
}

// serves wants a layer to have what services, and passwords, take for granted. Who owns files
// must be known before there are any, and a unit comes with its package.
func (l *Layer) serves(o *Overlay) error {
	for _, p := range o.Items.Passwords {
		if !slices.ContainsFunc(l.Accounts, func(a Account) bool { return a.Name == p.User && a.State == "active" }) {
			return lack{fmt.Sprintf("password of %s: it has no such user", p.User), "conf.uamlite adds users; then 'caisson build'"}
		}
	}
	for _, v := range o.Services {
		if v.User != "" && !slices.Contains(everywhere, v.User) && !slices.ContainsFunc(l.Accounts, func(a Account) bool {
			return a.Name == v.User && (a.State == "active" || a.State == "system")
		}) {
			return lack{fmt.Sprintf("service %s: it has no user %s", v.Name, v.User),
				"conf.uamlite adds users, packages bring their own; then 'caisson build'"}
		}
		if v.Package != "" && !slices.ContainsFunc(l.Packages, func(p InstalledPackage) bool {
			return p.Name == v.Package || p.Name+":"+p.Arch == v.Package
		}) {
			return lack{fmt.Sprintf("service %s: it has no package %s", v.Name, v.Package), "add it to conf.apt.packages; then 'caisson build'"}
		}
	}
	return nil
}
