// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// lack is what a layer does not have for an overlay, or a release for a document.
type lack struct{ text, hint string }

func (l lack) Error() string { return l.text }

// Hint says how to mend it.
func (l lack) Hint() string { return l.hint }

// everywhere are the users of Debian's base-passwd, which no ledger lists.
var everywhere = []string{"root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup", "list", "irc", "_apt", "nobody"}

// Suits returns what a layer lacks that an overlay takes for granted, nil when it has all:
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
			return lack{fmt.Sprintf("service %s: it has no user %s", v.Name, v.User), "conf.uamlite adds users, packages bring their own; then 'caisson build'"}
		}
		if v.Package != "" && !slices.ContainsFunc(l.Packages, func(p InstalledPackage) bool {
			return p.Name == v.Package || p.Name+":"+p.Arch == v.Package
		}) {
			return lack{fmt.Sprintf("service %s: it has no package %s", v.Name, v.Package), "add it to conf.apt.packages; then 'caisson build'"}
		}
	}
	return nil
}
