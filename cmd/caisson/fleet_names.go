// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/cli"
)

// names are the words of commands on the service's pages: its site, and the private halves of as
// many keys as sign, beside the public ones that count now. They are relative to where the site is,
// since who pastes a command has a copy of it.
func (v *serving) names() server.Names {
	s := v.siteNow()
	if s == nil {
		n := server.Names{}
		for _, key := range v.look.whom.keys {
			n.Verifies += " --trust " + cli.ShellWord(key)
			n.Signs += " --key " + privateHalf(key)
		}
		n.Verifies, n.Signs = strings.TrimPrefix(n.Verifies, " "), strings.TrimPrefix(n.Signs, " ")
		return n
	}
	below := func(name string) string {
		if to, err := filepath.Rel(s.Dir(), name); err == nil && filepath.IsLocal(to) {
			return to
		}
		return name
	}
	var sites, verifies, signs []string
	for _, name := range v.look.whom.site {
		word := cli.ShellWord(below(name))
		sites, verifies = append(sites, word), append(verifies, "--site "+word)
	}
	trust := s.Trust()
	for _, key := range trust.Operator[:min(len(trust.Operator), max(1, trust.Threshold))] {
		signs = append(signs, "--key "+privateHalf(below(key)))
	}
	return server.Names{Site: strings.Join(sites, " "), Verifies: strings.Join(verifies, " "), Signs: strings.Join(signs, " ")}
}

// privateHalf is the file that 'caisson keys generate' writes beside a public key.
func privateHalf(public string) string {
	return cli.ShellWord(strings.TrimSuffix(public, ".pub") + ".key")
}
