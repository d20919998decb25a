// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site"
)

func (a *app) planCommand() *cobra.Command {
	var from, layer string
	var which chosen
	var reach access
	var known memoryFlags
	var objects fromCluster
	var secrets opening
	var advisories advisoryFlag
	c := verb("plan", func(c *cobra.Command, names []string) error {
		s, err := objects.load(c.Context(), a, names)
		if err != nil {
			return err
		}
		from = cmp.Or(from, s.Registry())
		known.remember = cmp.Or(known.remember, memoryName(besideName(names)))
		w, err := a.preview(s, from, layer, reach, known)
		if err != nil {
			return err
		}
		if advisories != "" {
			lock, err := builder.ReadLock(lockName(besideName(names)))
			if err != nil {
				return err
			}
			by, err := advisories.open(lock)
			if err != nil {
				return err
			}
			w.Advise = by.Layers
		}
		only, err := which.of(s)
		if err != nil {
			return err
		}
		sealer, err := secrets.open(c.Context(), &objects, s, only, false)
		if err != nil {
			return err
		}
		if sealer != nil {
			sealer.Expect = true
		}
		p, err := w.Plan(c.Context(), only)
		if err != nil {
			return err
		}
		if sealer != nil {
			p.NotLooked = append(p.NotLooked, sealer.NotLooked()...)
			for i, n := range p.Nodes {
				if _, accepted := sealer.Accepted()[n.Name]; accepted { // publish seals to it
					p.Nodes[i].NoKey = nil
				}
			}
		}
		return cmp.Or(a.print(p), drift(p.Changed()))
	})
	f := c.Flags()
	f.StringVar(&from, "from", "", "where the site is published; the site's registry when absent")
	f.StringVar(&layer, "layer", "current", "the layer that would be published: a `TAG`, or the digest of its index or manifest")
	which.some(f, "plan")
	secrets.looking(f)
	advisories.flag(f)
	objects.flags(c, 0)
	known.looking(f)
	reach.flags(a, f)
	return c
}

// empty reports whether ref is a directory that is not there yet: nothing was published, and no
// key is needed to see that.
func (a *app) empty(ref oci.Ref, known memoryFlags) (bool, error) {
	if !ref.IsLayout() {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(ref.Layout, "index.json")); !errors.Is(err, fs.ErrNotExist) {
		return false, nil // opening it says what else there is
	}
	m, err := known.open(a, nil, false)
	if err == nil {
		err = elsewhere(ref, m)
	}
	if err == nil {
		a.say(nothingYet, ref)
	}
	return true, err
}

// nothingYet is said of a place that holds no fleet.
const nothingYet = "%s: nothing is published there yet"

// preview prepares a plan.
func (a *app) preview(s *site.Site, from, layer string, reach access, known memoryFlags) (*preview.Preview, error) {
	w := &preview.Preview{Site: s, Layer: layer}
	parsed, err := oci.ParseRef(from)
	if from == "" || err != nil {
		return nil, cli.Usage("host[:port]/prefix, or oci:DIR", "--from: %q does not name a registry", from)
	}
	if err := policy.SameFleet(s); err != nil {
		return nil, err
	}
	if empty, err := a.empty(parsed, known); empty || err != nil {
		return w, err
	}
	if w.Policy, err = policy.Site(s, ""); err != nil {
		return nil, err
	}
	r, err := reach.open(from)
	if err != nil {
		return nil, err
	}
	if w.Publisher, err = a.publisher(r, nil, &trustFlags{}, known); err != nil {
		return nil, err
	}
	if w.Publisher.Memory != nil {
		w.Publisher.Memory.Fixed()
	}
	return w, nil
}
