// SPDX-License-Identifier: Apache-2.0

// Package networkd writes the files by which systemd-networkd makes a node's interfaces, see
// systemd.network(5) and systemd.netdev(5), so that it carries on what the loader has made.
// It only words them: what a node has, and where files go, is package handover's business.
package networkd

import (
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// Boot is the network that a loader made: its lease, and the interface of that with what it
// is made of. The zero value is a boot without one.
type Boot struct {
	Lease *state.Lease
	Made  spec.Network // the interface of the lease is the last one; empty from loaders of 0.9
}

// Files returns the files' texts by their names. The interface that the loader used keeps
// its address: same hardware address, same client id, and what it has is not dropped when
// networkd starts. Where the site says nothing of the loader's cards they stay as the loader
// has made them.
func Files(site spec.Network, boot Boot) map[string]string {
	boot = boot.complete()
	files := map[string]string{}
	lines := resolverLines(site)
	for i, one := range site.Interfaces {
		add(files, fmt.Sprintf("10-caisson-%02d", i), one, site.Interfaces, lines, boot.is(one, site.Interfaces))
	}
	switch {
	case boot.coveredBy(site.Interfaces):
	case boot.Lease != nil:
		if len(site.DNS) == 0 && boot.Lease.Static { // nobody else says
			lines = resolverLines(spec.Network{DNS: boot.Made.DNS, Search: site.Search})
		}
		all := boot.Made.Interfaces
		for i, one := range all {
			name, top := "20-caisson-boot", i == len(all)-1
			if !top {
				name = fmt.Sprintf("20-caisson-boot-%02d", i)
			}
			add(files, name, one, all, lines, top)
		}
	case len(site.Interfaces) == 0:
		// Booted without network: whichever interface comes alive later may.
		files["20-caisson-any.network"] = "[Match]\nType=ether\nKind=!*\n\n[Link]\nRequiredForOnline=no\n" +
			"\n[Network]\nDHCP=ipv4\n" + lines + leaseLines + "UseMTU=yes\n"
	}
	return files
}

// add adds the files of one of all interfaces.
func add(files map[string]string, name string, one spec.Interface, all []spec.Interface, shared string, keeps bool) {
	if one.Bond != nil {
		for j, member := range one.Bond.Members {
			files[fmt.Sprintf("%s-member%d.network", name, j)] = memberFile(one, member)
		}
	}
	if text := deviceFile(one); text != "" {
		files[name+".netdev"] = text
	}
	files[name+".network"] = interfaceFile(one, all, shared, keeps)
}

func resolverLines(own spec.Network) string {
	var b strings.Builder
	for _, server := range own.DNS {
		fmt.Fprintf(&b, "DNS=%s\n", server)
	}
	if len(own.Search) > 0 {
		fmt.Fprintf(&b, "Domains=%s\n", strings.Join(own.Search, " "))
	}
	return b.String()
}
