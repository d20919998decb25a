// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Inspected is a layer and what is attached to it, as inspect -o json prints it.
type Inspected struct {
	Digest    string     `json:"digest"`
	Bytes     int64      `json:"bytes"`
	Layer     spec.Layer `json:"layer"`
	Referrers []Referrer `json:"referrers"`
	Released  *bool      `json:"released,omitempty"` // where keys were named

	Refused error `json:"-"` // why not Released
}

// Inspect returns what there is of a layer, and whether one of the keys released it where any are
// named.
func Inspect(ctx context.Context, l Layer, by []sign.Verifier) (one Inspected, err error) {
	one = Inspected{Digest: l.Digest, Bytes: l.Bytes(), Layer: l.Layer}
	if one.Referrers, err = l.Referrers(ctx); err != nil || len(by) == 0 {
		return one, err
	}
	one.Refused = l.Verify(ctx, by)
	released := one.Refused == nil
	one.Released = &released
	return one, nil
}

// Write prints the layer for people, its packages and profiles one by one where they are wanted.
func (i Inspected) Write(w io.Writer, packages, profiles bool) {
	l := i.Layer
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) { cli.Printf(t, "%s\t", key); cli.Printf(t, format+"\n", args...) }
	row("layer", "%s", i.Digest)
	row("fleet", "%s", l.Fleet)
	row("version", "%s, variant %s, %s, %s", l.Version, l.Variant, l.Arch, l.Created)
	row("size", "%.1f MB", float64(i.Bytes)/1e6)
	for _, image := range l.Images {
		row("image", "%s\t%s\t%s", image.Name, plain.Bytes(image.Size), image.Digest)
	}
	row("kernel", "%s\t%s\t%s", l.Kernel.Release, plain.Bytes(l.Kernel.Size), l.Kernel.Digest)
	row("initrd", "\t%s\t%s", plain.Bytes(l.Initrd.Size), l.Initrd.Digest)
	row("packages", "%d", len(l.Packages))
	if packages {
		for _, p := range l.Packages {
			row("", "%s\t%s\t%s", p.Name, p.Version, p.Arch)
		}
	}
	system := 0
	for _, acc := range l.Accounts {
		if accounts.IsSystem(acc) {
			system++
			continue
		}
		row("account", "%s\t%d\t%s", acc.Name, acc.UID, acc.State)
	}
	if system > 0 {
		row("accounts", "%d\tsystem users and groups whose numbers are kept", system)
	}
	modes := map[string]int{}
	for _, p := range l.AppArmor.Profiles {
		modes[p.Mode]++
	}
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		row("profiles", "%d\t%s", modes[mode], mode)
	}
	if profiles {
		for _, p := range l.AppArmor.Profiles {
			row("profile", "%s\t%s", p.Name, p.Mode)
		}
	}
	for _, r := range i.Referrers {
		row("attached", "%s\t%s", r.Type, r.Predicate)
	}
	if i.Released != nil {
		row("released", "%v", *i.Released)
	}
	_ = t.Flush() // the verb ends with what its output could not take
}
