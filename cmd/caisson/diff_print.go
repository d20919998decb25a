// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/release"
)

func (a *app) printDifference(d release.Difference) {
	cli.Printf(a.out, "variant %s: %s → %s\n", d.Variant, d.From, d.To)
	if d.Kernel != nil {
		cli.Printf(a.out, "  kernel %s → %s\n", d.Kernel.From, d.Kernel.To)
	}
	for _, list := range []struct {
		what    string
		changes []release.Change
	}{{"package", d.Packages}, {"account", d.Accounts}, {"profile", d.Profiles}} {
		for _, c := range list.changes {
			switch {
			case c.From == "":
				cli.Printf(a.out, "+ %s %s %s\n", list.what, c.Name, c.To)
			case c.To == "":
				cli.Printf(a.out, "- %s %s %s\n", list.what, c.Name, c.From)
			default:
				cli.Printf(a.out, "  %s %s %s → %s\n", list.what, c.Name, c.From, c.To)
			}
		}
	}
	for _, i := range d.Images {
		cli.Printf(a.out, "  image %s %s → %s, new in it %s\n", i.Name, plain.Bytes(i.From), plain.Bytes(i.To), plain.Bytes(i.Fetch))
	}
	for _, f := range d.Files {
		cli.Printf(a.out, "%s file %s\n", f.Mark(), f.Path)
	}
	cli.Printf(a.out, "a node that has the first fetches %s\n", plain.Bytes(d.Bytes))
}
