// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// Versions are the packages in which two layers differ. Layers that have some of them as the one and the rest as the
// other are made as the lock of each says.
type Versions struct {
	Names map[string][]string // of packages, by source: of one source none goes without the others

	good, bad locked
	build     Build
	dir       string
}

// locked is a layer with what it was built from.
type locked struct {
	Layer
	made spec.Recipe
	lock packages.Lock
}

// Versions compares two layers, each with the locks among which its own may be, and installs both once more: what
// cannot be had now cannot be mixed either. Options of b have the site's directory and private keys; dir takes what is
// made, and goes with the caller.
func (b Build) Versions(ctx context.Context, dir string, good, bad Layer, of [2]*packages.LockFile) (v *Versions, err error) {
	v = &Versions{Names: map[string][]string{}, build: b, dir: dir}
	if v.good, err = withLock(ctx, good, of[0]); err != nil {
		return nil, err
	}
	if v.bad, err = withLock(ctx, bad, of[1]); err != nil {
		return nil, err
	}
	sources := map[string]string{}
	for _, l := range []packages.Lock{v.good.lock, v.bad.lock} {
		for _, d := range slices.Concat(l.Base, l.Packages, l.Tools) {
			sources[d.Name] = cmp.Or(d.Source, d.Name)
		}
	}
	for _, c := range packages.CompareLocks(v.good.lock, v.bad.lock) {
		v.Names[sources[c.Name]] = append(v.Names[sources[c.Name]], c.Name)
	}
	if len(v.Names) == 0 || !reflect.DeepEqual(v.otherwise(v.good.made), v.otherwise(v.bad.made)) {
		return nil, errors.New("the layers differ in more than which packages they have")
	}
	for _, l := range []locked{v.good, v.bad} {
		if len(v.Names) == 1 {
			break // there is nothing to mix
		}
		if _, err := v.install(ctx, l, good); err != nil {
			return nil, fmt.Errorf("install the packages of layer %s again: %w", l.Digest, err)
		}
	}
	return v, nil
}

// withLock finds a layer's own lock. A lock is not signed: the layer tells.
func withLock(ctx context.Context, l Layer, of *packages.LockFile) (own locked, err error) {
	made, _, err := l.Made(ctx)
	if err != nil {
		return own, err
	}
	_, all := of.For(l.Variant)
	for _, lock := range all {
		if made.Base.Debian != nil && lock.Of(*made) && lock.Has(l.Packages) {
			return locked{l, *made, lock}, nil
		}
	}
	return own, fmt.Errorf("the site at the commit of its generation does not have the lock of layer %s", l.Digest)
}

// bare is a recipe without what images other than of packages are made of.
func bare(r spec.Recipe) spec.Recipe {
	r.Accounts, r.AppArmor, r.Perm = spec.Accounts{}, spec.AppArmor{}, nil
	return r
}

// otherwise is what a recipe says beside the packages that differ, and where they come from: of other packages the
// answers to debconf.
func (v *Versions) otherwise(r spec.Recipe) spec.Recipe {
	r = bare(r)
	differ := slices.Concat(slices.Collect(maps.Values(v.Names))...)
	answers := plain.Pick(r.Packages.Install, func(p spec.Package) (spec.Package, bool) {
		return spec.Package{Name: p.Name, Debconf: p.Debconf}, len(p.Debconf) > 0 && !slices.Contains(differ, p.Name)
	})
	d := *r.Base.Debian
	d.Mirror, d.Security, d.Snapshot = "", "", ""
	r.Packages.Install, r.Base.Debian = answers, &d
	return r
}

// Make makes a layer that is the good one with some packages of the bad one, by name: of its images base and packages
// count, and the loader, which has the agent of a layer.
func (v *Versions) Make(ctx context.Context, some []string, agent Layer) (l Layer, err error) {
	m := v.good
	taken := func(p spec.Package) bool { return slices.Contains(some, p.Name) }
	m.made.Packages.Install = slices.Concat(slices.DeleteFunc(slices.Clone(m.made.Packages.Install), taken),
		slices.DeleteFunc(slices.Clone(v.bad.made.Packages.Install), func(p spec.Package) bool { return !taken(p) }))
	m.lock = m.lock.With(v.bad.lock, some, m.made)
	for _, row := range v.bad.Accounts {
		if !slices.ContainsFunc(m.Accounts, func(has spec.Account) bool { return has.Name == row.Name && has.State == row.State }) {
			m.Accounts = append(slices.Clip(m.Accounts), row)
		}
	}
	built, err := v.install(ctx, m, agent)
	if err != nil {
		return l, err
	}
	to, err := registry.Open("oci:"+filepath.Join(v.dir, "layers"), registry.Options{})
	if err != nil {
		return l, err
	}
	d, err := (&Pusher{Registry: to}).Push(ctx, built, "")
	if err != nil {
		return l, err
	}
	return Read(ctx, to, d.Digest)
}

func (v *Versions) install(ctx context.Context, l locked, agent Layer) (_ *builder.Result, err error) {
	o, r, build := v.build.Options, bare(l.made), v.build.Make
	if build == nil {
		build = builder.Build
	}
	if o.Agent, err = v.agentOf(ctx, agent); err != nil {
		return nil, err
	}
	o.Lock, o.Ledger = &l.lock, l.Accounts
	return build(ctx, r, l.Variant, l.Version, o)
}

// agentOf returns a file with the agent of a layer.
func (v *Versions) agentOf(ctx context.Context, l Layer) (string, error) {
	i := slices.IndexFunc(l.Images, func(i spec.Image) bool { return i.Name == "agent" })
	if i < 0 {
		return "", fmt.Errorf("layer %s has no image of an agent", l.Digest)
	}
	dir := filepath.Join(v.dir, digest.Hex(l.Images[i].Digest))
	file := filepath.Join(dir, paths.Agent)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return "", err
	}
	if err := Save(ctx, l.registry, l.Images[i].Digest, dir+".squashfs"); err != nil {
		return "", err
	}
	if err := image.Unpack(ctx, dir+".squashfs", dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir)) // the next one must not take half of it
	}
	return file, nil
}
